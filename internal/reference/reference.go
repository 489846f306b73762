package reference

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Width is the number of columns of a line of prose in docs.
const Width = 100

var update = flag.Bool("update", false, "write the files that are generated from the code")

// File checks that a file has what generate makes of its present text, or writes it.
func File(t testing.TB, path string, generate func(old string) string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	old := string(data)
	now := generate(old)
	if now == old {
		return
	}
	if !*update {
		folder, _ := os.Getwd() // only names the folder in the message
		t.Errorf("%s is not what the code says: run go generate in %s", path, folder)
		return
	}
	if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Section checks, or writes, the lines of a page between the comments that begin and end a named
// section.
func Section(t testing.TB, path, name, text string) {
	t.Helper()
	File(t, path, func(old string) string {
		begin, end := "<!-- begin of "+name+", generated -->\n", "<!-- end of "+name+" -->\n"
		head, rest, ok1 := strings.Cut(old, begin)
		_, tail, ok2 := strings.Cut(rest, end)
		if !ok1 || !ok2 {
			t.Fatalf("%s: expected the lines %s%s", path, begin, end)
		}
		return head + begin + text + end + tail
	})
}

// Comments returns the comments of struct types ("eval.Report") and of their fields
// ("eval.Report.Signs") in the Go files of the folders, each on one line.
func Comments(t testing.TB, folders ...string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no Go files (%v)", folder, err)
		}
		for _, path := range files {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, declaration := range file.Decls {
				if types, ok := declaration.(*ast.GenDecl); ok && types.Tok == token.TYPE {
					addComments(found, file.Name.Name, types)
				}
			}
		}
	}
	return found
}

func addComments(found map[string]string, pkg string, types *ast.GenDecl) {
	for _, spec := range types.Specs {
		declared := spec.(*ast.TypeSpec)
		s, ok := declared.Type.(*ast.StructType)
		if !ok {
			continue
		}
		name := pkg + "." + declared.Name.Name
		found[name] = oneLine(types.Doc, declared.Doc)
		for _, member := range s.Fields.List {
			for _, field := range member.Names {
				found[name+"."+field.Name] = oneLine(member.Doc, member.Comment)
			}
		}
	}
}

// oneLine returns the text of the first comment that has any.
func oneLine(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if text := strings.Join(strings.Fields(c.Text()), " "); text != "" {
			return text
		}
	}
	return ""
}

// Wrap returns lines of Width columns: the first is lead and as much of the text as fits, the others
// begin with indent.
func Wrap(lead, text, indent string) string {
	var b strings.Builder
	b.WriteString(lead)
	column := len(lead)
	for i, word := range strings.Fields(text) {
		width := len([]rune(word))
		if i > 0 && column+1+width > Width {
			b.WriteString("\n" + indent)
			column = len(indent)
		} else if i > 0 {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += width
	}
	b.WriteByte('\n')
	return b.String()
}

// Clause returns the first clause of a comment or help text: up to the end of a sentence or to a
// semicolon, and of a clause of more words than most up to a colon or to the last comma near that word.
func Clause(text string, most int) string {
	for _, end := range []string{". ", "; "} {
		text, _, _ = strings.Cut(text, end)
	}
	text = strings.TrimSuffix(text, ".")
	words := strings.Fields(text)
	if len(words) <= most {
		return text
	}
	if before, _, ok := strings.Cut(text, ": "); ok && len(strings.Fields(before)) > most/3 {
		return Clause(before, most)
	}
	for end := min(most+4, len(words)-1); end > most/2; end-- {
		last := words[end-1]
		if !strings.HasSuffix(last, ",") {
			continue
		}
		if cut := strings.TrimSuffix(strings.Join(words[:end], " "), ","); strings.Count(cut, "(") == strings.Count(cut, ")") {
			return cut
		}
	}
	return text
}

// Fields returns the exported fields of a struct that have a JSON name, those of embedded structs
// included.
func Fields(of reflect.Type) []reflect.StructField {
	var fields []reflect.StructField
	for i := range of.NumField() {
		f := of.Field(i)
		if name := JSONName(f); name != "-" && (name != "" || f.Anonymous) {
			fields = append(fields, f)
		}
	}
	return fields
}

// JSONName returns the name of a field in JSON, empty for an embedded struct.
func JSONName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
