package auth

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/security.md")

const documentFile = "../../docs/security.md"

// TestGenerated checks that the tables of docs/security.md are those of the code. `go generate` writes them.
func TestGenerated(t *testing.T) {
	text := document(t)
	for name, rows := range map[string]string{
		"identities": "| field | value | default | |\n|---|---|---|---|\n" + fieldRows("", identityFields),
		"issuers":    "| field | value | default | |\n|---|---|---|---|\n" + fieldRows("", issuerFields),
		"reasons":    "| reason | meaning |\n|---|---|\n" + reasonRows(),
	} {
		begin, end := "<!-- begin of the table of "+name+", generated -->\n", "<!-- end of the table of "+name+" -->\n"
		head, rest, ok1 := strings.Cut(text, begin)
		old, tail, ok2 := strings.Cut(rest, end)
		if !ok1 || !ok2 {
			t.Fatalf("%s has no lines %s%s", documentFile, begin, end)
		}
		if old != rows && !*update {
			t.Errorf("the table of %s is not current: run go generate ./internal/auth", name)
		}
		text = head + begin + rows + end + tail
	}
	if *update {
		if err := os.WriteFile(documentFile, []byte(text), 0o644); err != nil { //nolint:gosec // a page
			t.Fatal(err)
		}
	}
}

func fieldRows(prefix string, fields []field) string {
	var rows strings.Builder
	for _, f := range fields {
		otherwise := f.otherwise
		if f.needed != "" {
			otherwise = "**required**"
		}
		fmt.Fprintf(&rows, "| `%s%s` | %s | %s | %s |\n", prefix, f.name, cmp.Or(f.needed, f.form), otherwise, f.about)
		rows.WriteString(fieldRows(prefix+f.name+"[].", f.fields))
	}
	return rows.String()
}

func reasonRows() string {
	var rows strings.Builder
	for _, r := range reasons {
		fmt.Fprintf(&rows, "| `%s` | %s |\n", r[0], r[1])
	}
	return rows.String()
}

// TestFieldsSayWhatTheyAre checks that no field lacks a text of its table.
func TestFieldsSayWhatTheyAre(t *testing.T) {
	var check func(fields []field)
	check = func(fields []field) {
		for _, f := range fields {
			if f.about == "" || f.needed == "" && (f.form == "" || f.otherwise == "") {
				t.Errorf("%s has %q, %q, %q", f.name, f.form, f.otherwise, f.about)
			}
			check(f.fields)
		}
	}
	check(identityFields)
	check(issuerFields)
}

// TestDocumentedExamples checks that every example is an access file without faults or warnings.
func TestDocumentedExamples(t *testing.T) {
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(document(t), -1)
	if len(examples) < 2 {
		t.Fatalf("%d examples, want two", len(examples))
	}
	for _, e := range examples {
		r, files, err := parse("access.yaml", []byte(e[1]), func(path string) ([]byte, error) {
			if strings.HasSuffix(path, ".crt") {
				return nil, nil // as if it were read in a moment
			}
			return []byte("a-token-in-" + regexp.MustCompile(`[^a-z]`).ReplaceAllString(path, "-") + "\n"), nil
		})
		if err != nil || len(r.warnings) > 0 || len(r.identities) == 0 {
			t.Errorf("%v of %v in\n%s", err, files, e[1])
		}
	}
}

// TestDocumentedOpen checks that the methods documented as open are open.
func TestDocumentedOpen(t *testing.T) {
	documented := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z.]+[A-Za-z0-9.]*)` \\| (`[A-Z].*`) \\|$").FindAllStringSubmatch(document(t), -1) {
		for _, method := range strings.Split(row[2], ", ") {
			documented++
			if name := "/" + row[1] + "/" + strings.Trim(method, "`"); !openMethods[name] {
				t.Errorf("%s is documented as open, and is not", name)
			}
		}
	}
	if documented != len(openMethods) {
		t.Errorf("%d methods are documented as open, want %v", documented, openMethods)
	}
}

func document(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
