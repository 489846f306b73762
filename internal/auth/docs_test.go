package auth

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of fields into the documentation")

// documentFiles are the pages of the access file: the table of identities, and that of issuers.
var documentFiles = map[string]string{"fields": "../../docs/access.md", "issuers": "../../docs/access-issuers.md"}

// TestDocumentedFields checks that the documented fields are those that are read. `go generate
// ./internal/auth` updates the tables.
func TestDocumentedFields(t *testing.T) {
	for table, fields := range map[string][]field{"fields": identityFields(), "issuers": issuerFields()} {
		old := document(t, table)
		begin, end := "<!-- begin of the table of "+table+", generated -->\n", "<!-- end of the table of "+table+" -->\n"
		head, rest, ok1 := strings.Cut(old, begin)
		_, tail, ok2 := strings.Cut(rest, end)
		if !ok1 || !ok2 {
			t.Fatalf("no lines %s%s", begin, end)
		}
		now := head + begin + fieldTable(fields) + end + tail
		if now == old {
			continue
		}
		if !*update {
			t.Fatalf("%s is not what the table of fields gives: run go generate ./internal/auth", documentFiles[table])
		}
		if err := os.WriteFile(documentFiles[table], []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func fieldTable(fields []field) string {
	var b strings.Builder
	b.WriteString("| field | value | default | |\n|---|---|---|---|\n")
	var write func(prefix string, fields []field)
	write = func(prefix string, fields []field) {
		for _, f := range fields {
			standard := f.standard
			if f.required {
				standard = "**required**"
			}
			fmt.Fprintf(&b, "| `%s%s` | %s | %s | %s |\n", prefix, f.name, f.words, standard, f.doc)
			write(prefix+f.name+"[].", f.fields)
		}
	}
	write("", fields)
	return b.String()
}

// TestDocumentedExamples checks that every example is an access file without faults or warnings.
func TestDocumentedExamples(t *testing.T) {
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(document(t, "fields")+document(t, "issuers"), -1)
	if len(examples) < 4 {
		t.Fatalf("%d examples, want four", len(examples))
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

// TestDocumentedReasons checks that exactly the reasons of refusals are documented.
func TestDocumentedReasons(t *testing.T) {
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ").FindAllStringSubmatch(document(t, "fields"), -1) {
		if !isField(row[1]) {
			got = append(got, row[1])
		}
	}
	if want := Reasons(); !slices.Equal(got, want) {
		t.Errorf("documented %q, want %q", got, want)
	}
}

func isField(name string) bool {
	return slices.ContainsFunc(append(identityFields(), issuerFields()...), func(f field) bool { return f.name == name })
}

// TestDocumentedOpen checks that the methods documented as open are open.
func TestDocumentedOpen(t *testing.T) {
	documented := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z.]+[A-Za-z0-9.]*)` \\| (`[A-Z].*`) \\|$").FindAllStringSubmatch(document(t, "fields"), -1) {
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

func document(t *testing.T, table string) string {
	t.Helper()
	data, err := os.ReadFile(documentFiles[table])
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
