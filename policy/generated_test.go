package policy

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files that are generated from the table of fields")

const (
	schemaFile   = "../deploy/policy/ckd-policy.schema.json"
	documentFile = "../docs/policy-fields.md"
	exampleFile  = "../deploy/policy/fetal-health.yaml"
)

// TestGenerated checks that the committed files equal what is generated from the table of fields.
// `go generate ./policy` updates them. TestPolicySchema in deploy/test tries the schema.
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

// fieldTable returns the table of fields in Markdown.
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
	data, err := os.ReadFile("../docs/policy.md")
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
