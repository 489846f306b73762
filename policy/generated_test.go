package policy

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the files that are generated from the table of fields")

const (
	schemaFile   = "../deploy/policy/ckd-policy.schema.json"
	documentFile = "../docs/policy.md"
	exampleFile  = "../deploy/policy/fetal-health.yaml"
)

// What is generated from the table of fields, and committed, is what the table
// now gives. `go generate ./policy` brings it up to date.
func TestGenerated(t *testing.T) {
	compare(t, schemaFile, func(string) string { return string(JSONSchema()) })
	compare(t, documentFile, func(old string) string {
		const begin, end = "<!-- begin of the table of fields, generated -->\n", "<!-- end of the table of fields -->\n"
		head, rest, ok1 := strings.Cut(old, begin)
		_, tail, ok2 := strings.Cut(rest, end)
		if !ok1 || !ok2 {
			t.Fatalf("%s: no lines %s%s", documentFile, begin, end)
		}
		return head + begin + fieldTable() + end + tail
	})
}

func compare(t *testing.T, path string, generate func(old string) string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	now := generate(string(old))
	if now == string(old) {
		return
	}
	if !*update {
		t.Errorf("%s is not what the table of fields gives: run go generate ./policy", path)
		return
	}
	if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fieldTable is the table of fields in Markdown.
func fieldTable() string {
	var b strings.Builder
	b.WriteString("| field | value | default | |\n|---|---|---|---|\n")
	var write func(prefix string, fields []field)
	write = func(prefix string, fields []field) {
		for _, f := range fields {
			standard := f.standardWords
			switch {
			case f.required:
				standard = "**required**"
			case f.standard == "":
				standard = "empty"
			case f.standard != nil:
				standard = fmt.Sprintf("`%v`", f.standard)
			}
			fmt.Fprintf(&b, "| `%s%s` | %s | %s | %s |\n", prefix, f.name, f.is.words(), standard, f.doc)
			suffix := "."
			if _, list := f.is.(mappings); list {
				suffix = "[]."
			}
			write(prefix+f.name+suffix, fieldsOf(f.is))
		}
	}
	write("", modelFields)
	return b.String()
}

// The defaults that the table states are those that Parse fills in.
func TestTableOfDefaults(t *testing.T) {
	const plain = "models:\n- name: m\n  classes: [a, b]\n  critical: [b]\n"
	text := plain
	stated := 0
	for _, f := range modelFields {
		if f.standard != nil {
			text += fmt.Sprintf("  %s: %q\n", f.name, fmt.Sprint(f.standard))
			if _, isNumber := f.standard.(float64); isNumber {
				text = strings.Replace(text, fmt.Sprintf("%q", fmt.Sprint(f.standard)), fmt.Sprint(f.standard), 1)
			}
			stated++
		}
		for _, sub := range fieldsOf(f.is) {
			if sub.standard != nil && !needsMore(f) {
				text += fmt.Sprintf("  %s: {%s: %v}\n", f.name, sub.name, sub.standard)
				stated++
			}
		}
	}
	if stated < 10 {
		t.Fatalf("only %d defaults in the table", stated)
	}
	if !reflect.DeepEqual(parseOne(t, text), parseOne(t, plain)) {
		t.Errorf("the table's defaults are not those of Parse:\n%s", text)
	}

	settled := settledText(plainRule)
	for _, f := range settleFields {
		if f.standard != nil {
			stated++
			with := strings.Replace(settled, "    settle:\n", fmt.Sprintf("    settle:\n      %s: %v\n", f.name, f.standard), 1)
			if !reflect.DeepEqual(parseOne(t, with), parseOne(t, settled)) {
				t.Errorf("the table's default of settle.%s is not that of Parse", f.name)
			}
		}
	}
}

// needsMore reports whether some field of a mapping must be given, so that none can be
// given alone.
func needsMore(f field) bool {
	return slices.ContainsFunc(fieldsOf(f.is), func(sub field) bool { return sub.required })
}

// The schema accepts every file that Parse accepts, and refuses what breaks a
// rule about one field.
func TestSchema(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(JSONSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	good, err := filepath.Glob("testdata/*.good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(good, exampleFile) {
		if faults := validate(schema, readYAML(t, path), "file"); len(faults) > 0 {
			t.Errorf("%s: %s", path, strings.Join(faults, "; "))
		}
	}
	for _, rule := range []string{
		"unknown-field", "unknown-field-nested", "unknown-field-top", "wrong-type", "null", "missing", "models-missing",
		"models-empty", "models-not-a-list", "file-not-a-mapping", "name", "classes-few", "classes-twice", "classes-text",
		"enum", "range", "sum-tolerance", "many-at-once", "calibration-policy-hash",
		"settle-fields", "settle-certificate", "settle-steps",
	} {
		if faults := validate(schema, readYAML(t, "testdata/"+rule+".bad.yaml"), "file"); len(faults) == 0 {
			t.Errorf("%s.bad.yaml: the schema accepts it", rule)
		}
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

// Every example in the documentation is a policy without faults.
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
			if p.Calibration != nil && (p.Calibration.PolicyHash == "" || p.changedSinceCalibration()) {
				t.Errorf("policy_hash %q, want %s, in\n%s", p.Calibration.PolicyHash, p.Hash, e[1])
			}
		}
	}
}

func readYAML(t *testing.T, path string) any {
	t.Helper()
	var value any
	if err := yaml.Unmarshal(readTestFile(t, path).Data, &value); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return value
}

// validate holds a value against the part of JSON Schema that JSONSchema uses,
// as an editor does, and says at which paths it does not fit.
func validate(schema map[string]any, value any, path string) (faults []string) {
	fault := func(format string, args ...any) {
		faults = append(faults, path+": "+fmt.Sprintf(format, args...))
	}
	types, several := schema["type"].([]any)
	if !several {
		types = []any{schema["type"]}
	}
	if !slices.ContainsFunc(types, func(name any) bool { return isOfType(value, name.(string)) }) {
		fault("%T, want %v", value, types)
		return faults
	}
	bound := func(name string, breaks func(limit float64) bool) {
		if limit, ok := schema[name].(float64); ok && breaks(limit) {
			fault("%v breaks %s %v", value, name, limit)
		}
	}
	switch v := value.(type) {
	case map[string]any:
		properties := schema["properties"].(map[string]any)
		for name, item := range v {
			if property, known := properties[name]; known {
				faults = append(faults, validate(property.(map[string]any), item, path+"."+name)...)
			} else if schema["additionalProperties"] == false {
				fault("unknown %s", name)
			}
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				fault("no %s", name)
			}
		}
	case []any:
		bound("minItems", func(n float64) bool { return float64(len(v)) < n })
		bound("maxItems", func(n float64) bool { return float64(len(v)) > n })
		for i, item := range v {
			faults = append(faults, validate(schema["items"].(map[string]any), item, fmt.Sprintf("%s[%d]", path, i))...)
			if schema["uniqueItems"] == true && slices.Contains(v[:i], item) {
				fault("%v twice", item)
			}
		}
	case string:
		bound("minLength", func(n float64) bool { return float64(len(v)) < n })
		bound("maxLength", func(n float64) bool { return float64(len(v)) > n })
		if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, any(v)) {
			fault("%q, want one of %v", v, enum)
		}
		if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
			fault("%q, want %s", v, pattern)
		}
	case int, float64:
		x := reflect.ValueOf(v).Convert(reflect.TypeFor[float64]()).Float()
		bound("minimum", func(limit float64) bool { return x < limit })
		bound("exclusiveMinimum", func(limit float64) bool { return x <= limit })
		bound("maximum", func(limit float64) bool { return x > limit })
	}
	return faults
}

// isOfType in the sense of JSON Schema, of what the YAML library makes of a
// document. It takes dates out of texts, which no JSON has.
func isOfType(value any, name string) bool {
	switch v := value.(type) {
	case map[string]any:
		return name == "object"
	case []any:
		return name == "array"
	case bool:
		return name == "boolean"
	case int:
		return name == "number" || name == "integer"
	case float64:
		return name == "number" || name == "integer" && v == math.Trunc(v)
	case nil:
		return name == "null"
	}
	return name == "string"
}
