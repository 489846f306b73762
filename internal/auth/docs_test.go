package auth

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documentFiles are the pages of the access file: of identities, and of issuers.
var documentFiles = map[string]string{"fields": "../../docs/access.md", "issuers": "../../docs/access-issuers.md"}

// rows matches the rows of a table of fields: name, and whether the field is required.
var rows = regexp.MustCompile("(?m)^\\| `([a-z0-9.\\[\\]]+)` \\| [^|]+ \\| (\\*\\*required\\*\\*)?[^|]* \\| [^|]+ \\|$")

// TestDocumentedFields checks that exactly the fields that are read are documented, in their order.
func TestDocumentedFields(t *testing.T) {
	for page, fields := range map[string][]field{"fields": identityFields, "issuers": issuerFields} {
		var want, got []string
		var list func(prefix string, fields []field)
		list = func(prefix string, fields []field) {
			for _, f := range fields {
				want = append(want, fmt.Sprint(prefix, f.name, " required: ", f.needed != ""))
				list(prefix+f.name+"[].", f.fields)
			}
		}
		list("", fields)
		for _, row := range rows.FindAllStringSubmatch(document(t, page), -1) {
			got = append(got, fmt.Sprint(row[1], " required: ", row[2] != ""))
		}
		if !slices.Equal(got, want) {
			t.Errorf("documented\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
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
	return slices.ContainsFunc(slices.Concat(identityFields, issuerFields), func(f field) bool { return f.name == name })
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
