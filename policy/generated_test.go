package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/reference"
)

const (
	schemaFile   = "../deploy/policy/ckd-policy.schema.json"
	documentFile = "../docs/policy.md"
	exampleFile  = "../deploy/policy/fetal-health.yaml"
)

// TestGenerated checks that schemas and docs are what the tags and comments of struct fields say. TestPolicySchema in deploy/test tries the
// schema.
func TestGenerated(t *testing.T) {
	docs := comments(t)
	reference.File(t, "schema.json", func(string) string { return fileSchema(docs) })
	reference.File(t, schemaFile, func(string) string { return fileSchema(docs) })
	reference.Section(t, documentFile, "the table of fields", fieldTable(docs))
}

// documentation has the comments of struct fields, by type and field. Keys without a struct field of
// their own are mappings that exist in files alone.
type documentation map[string]string

func comments(t *testing.T) documentation {
	docs := documentation(reference.Comments(t, ".", "risk", "earlystop"))
	docs["passes"] = "How many passes an input has."
	docs["calibrated"] = "What ckd calibrate measured: written by machines, save for lines, which a person may lower. " +
		"The lines, the model of risk and the rule for early stopping are part of the hash; the rest is not."
	return docs
}

// comment returns the comment of a key.
func (d documentation) comment(f *field, in reflect.Type) string {
	if f.index == nil {
		return d[f.name]
	}
	last := len(f.index) - 1
	for _, i := range f.index[:last] {
		in = target(in.Field(i).Type)
	}
	return d[in.String()+"."+in.Field(f.index[last]).Name]
}

// inner returns the struct that holds the keys of a mapping or of an entry of a list.
func inner(f *field, in reflect.Type) reflect.Type {
	for _, i := range f.index {
		in = target(in.Field(i).Type)
	}
	if in.Kind() == reflect.Slice {
		return in.Elem()
	}
	return in
}

// fieldTable returns the table of the keys in Markdown, each in few words; the schema has all of them.
func fieldTable(docs documentation) string {
	var b strings.Builder
	b.WriteString("| field | value | meaning |\n|---|---|---|\n")
	var write func(prefix string, in reflect.Type, fields []field)
	write = func(prefix string, in reflect.Type, fields []field) {
		for i := range fields {
			f := &fields[i]
			fmt.Fprintf(&b, "| `%s%s` | %s | %s |\n", prefix, f.name, f.inTable(), reference.Clause(docs.comment(f, in), 22))
			suffix := "."
			if f.kind == listValue {
				suffix = "[]."
			}
			if f.sub != nil && f.name != "calibrated" {
				write(prefix+f.name+suffix, inner(f, in), f.sub)
			}
		}
	}
	write("", reflect.TypeFor[Policy](), modelFields)
	return b.String()
}

// inTable returns the values that a key takes and its default.
func (f *field) inTable() string {
	values := strings.TrimPrefix(f.words(), "a ")
	switch f.kind {
	case textValue:
		values = "text"
	case mappingValue:
		values = "mapping"
	case listValue:
		values = "list"
	case choiceValue:
		values = strings.Join(f.choices, ", ")
	case periodValue:
		values = "time"
	case alarmValue:
		values = "alarm"
	}
	if len(f.choices) > 4 {
		values = "a [score](#scores)"
	}
	switch {
	case f.required:
		return "**" + values + "**"
	case f.standard.IsValid() && f.kind == numberValue:
		return values + " (" + strconv.FormatFloat(f.standard.Float(), 'f', -1, 64) + ")"
	case f.standard.IsValid():
		return fmt.Sprintf("%s (%v)", values, f.standard)
	case f.otherwise != "" && f.otherwise != "none" && f.otherwise != "empty":
		return values + " (" + f.otherwise + ")"
	}
	return values
}

// schema is a JSON schema, or a part of one.
type schema map[string]any

// fileSchema returns the schema (JSON Schema 2020-12) of policy files, for editors. It knows every
// rule about one key; rules across keys are left to Parse.
func fileSchema(docs documentation) string {
	models := schema{"type": "array", "minItems": 1, "description": "The models, each with its policy.",
		"items": docs.schema(reflect.TypeFor[Policy](), modelFields)}
	out, err := json.MarshalIndent(schema{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "ckd policy file", "type": "object",
		"properties": schema{modelsField: models}, "required": []string{modelsField}, "additionalProperties": false,
	}, "", "  ")
	if err != nil {
		panic(err) // struct tags are constants of the program
	}
	return string(out) + "\n"
}

// schema returns the schema of a mapping with the keys of a struct.
func (d documentation) schema(in reflect.Type, fields []field) schema {
	properties, required := schema{}, []string{}
	for i := range fields {
		f := &fields[i]
		property := f.schema()
		switch f.kind {
		case mappingValue:
			property = d.schema(inner(f, in), f.sub)
		case listValue:
			property["items"] = d.schema(inner(f, in), f.sub)
		}
		property["description"] = d.comment(f, in)
		if f.standard.IsValid() {
			property["default"] = f.standard.Interface()
			if p, ok := property["default"].(Period); ok {
				property["default"] = p.String()
			}
		}
		properties[f.name] = property
		if f.required {
			required = append(required, f.name)
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// schema returns the schema of a key's value. What a YAML reader may take for a number or a boolean
// stays a text in policies.
func (f *field) schema() schema {
	scalar := []string{"string", "number", "boolean"}
	class := schema{"type": scalar, "minLength": 1, "maxLength": maxText}
	switch f.kind {
	case textValue:
		if f.form.regexp == nil || f.form == classForm {
			return schema{"type": scalar, "maxLength": f.form.most}
		}
		return schema{"type": scalar, "pattern": f.form.regexp.String()}
	case choiceValue:
		return schema{"type": "string", "enum": f.choices}
	case classValue:
		return class
	case namesValue:
		return schema{"type": "array", "items": class, "minItems": f.within.Least, "maxItems": f.within.Most, "uniqueItems": true}
	case wholeValue:
		s := f.bounds()
		s["type"] = "integer"
		return s
	case quantileValue:
		return schema{"type": "array", "items": f.bounds(), "minItems": Levels, "maxItems": Levels}
	case periodValue:
		return schema{"type": "string", "pattern": "^[0-9]{1,9}[dhms]$"}
	case boolValue:
		return schema{"type": "boolean"}
	case alarmValue:
		return schema{"type": "string", "pattern": alarmForm}
	case listValue:
		return schema{"type": "array"}
	}
	return f.bounds()
}

func (f *field) bounds() schema {
	s, least, most := schema{"type": "number"}, "minimum", "maximum"
	if f.within.Open {
		least = "exclusiveMinimum"
	}
	if f.within.OpenMost {
		most = "exclusiveMaximum"
	}
	s[least] = f.within.Least
	if !math.IsInf(f.within.Most, 1) {
		s[most] = f.within.Most
	}
	return s
}

// TestPersonsKeys checks that a policy asks a person for few keys, and that every key is documented.
func TestPersonsKeys(t *testing.T) {
	docs := comments(t)
	if rows := strings.Count(fieldTable(docs), "\n") - 3; rows > 53 { // one of them is for machines
		t.Errorf("%d keys for people, expected at most 53", rows)
	}
	if at := strings.Index(fileSchema(docs), `"description": ""`); at >= 0 {
		t.Errorf("a key without a comment: %.300s", fileSchema(docs)[max(0, at-200):])
	}
}

func TestExample(t *testing.T) {
	set, err := Parse(readTestFile(t, exampleFile))
	if err != nil {
		t.Fatal(err)
	}
	p, ok := set.Get("fetal-health")
	if !ok {
		t.Fatal("no model fetal-health")
	}
	checkInvariants(t, p)
	if warnings := p.Warnings(); len(warnings) > 0 || p.Observes() {
		t.Errorf("observes %t, warnings %q: want thresholds and none", p.Observes(), warnings)
	}
}

// TestDocumentedExamples checks that every example in the documentation is a policy without faults.
func TestDocumentedExamples(t *testing.T) {
	data, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(data), -1)
	if len(examples) < 2 {
		t.Fatalf("%d examples, want at least two", len(examples))
	}
	for _, e := range examples {
		set, err := Parse(File{"example.yaml", []byte(e[1])})
		if err != nil {
			t.Errorf("%v in\n%s", err, e[1])
			continue
		}
		for _, p := range set.All() {
			if p.Calibration != nil && (p.Calibration.PolicyHash == "" || p.ChangedSinceCalibration()) {
				t.Errorf("policy_hash %q, want %s, in\n%s", p.Calibration.PolicyHash, p.HashWithoutLines(), e[1])
			}
		}
	}
}
