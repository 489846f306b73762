package main

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/config"
)

// TestOperateDocs expects docs/operate.md to have every setting with its default, and no other.
func TestOperateDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (?:`([^`]*)`)? *\\| ").FindAllStringSubmatch(string(text), -1) {
		told[m[1]] = m[2]
	}
	parser, err := kong.New(&config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range parser.Model.Flags {
		if f.Name == "help" {
			continue
		}
		want := f.Default
		if f.IsBool() {
			want = "false"
		}
		got, ok := told[f.Name]
		if !ok || got != want {
			t.Errorf("%s: docs/operate.md has default %q (%v), the code %q", f.Name, got, ok, want)
		}
		delete(told, f.Name)
	}
	if len(told) > 0 {
		t.Errorf("docs/operate.md tells of settings that do not exist: %v", told)
	}
}

// TestDocsNameFlags expects the section on a command in docs/cli.md to name every flag of it and of
// its subcommands. The flags of serve are in docs/operate.md.
func TestDocsNameFlags(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&cmdContext{})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Children {
		t.Run(command.Name, func(t *testing.T) {
			section := docsSection(t, "cli.md", "## ckd "+command.Name)
			if command.Name == "serve" {
				return
			}
			for _, c := range append(command.Children, command) {
				for _, flag := range c.Flags {
					wantFragment(t, section, "--"+flag.Name)
				}
			}
		})
	}
}

// TestDocsNameKeys expects docs/cli.md to name every key of an answer.
func TestDocsNameKeys(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(answer.Answer{Pairs: []answer.Pair{{}}, Decision: &answer.Decision{}})
	if err != nil {
		t.Fatal(err)
	}
	section := docsSection(t, "cli.md", "## ckd decompose")
	for _, path := range keysOf(t, string(text)) {
		wantFragment(t, section, "`"+path[strings.LastIndex(path, ".")+1:]+"`")
	}
}

// TestDocsNameFields expects a row for every field of a report in its section of the docs, and no
// other rows.
func TestDocsNameFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, title string
		report      any
	}{
		{"evaluate-json.md", "## The JSON of `ckd evaluate`", eval.Report{}},
		{"evaluate-json.md", "## The JSON of `ckd evaluate ood`", eval.OODReport{}},
		{"evaluate-json.md", "## The JSON of `ckd evaluate disentangle`", eval.DisentangleReport{}},
		{"calibrate-json.md", "## The JSON", calibrate.Report{}},
	} {
		t.Run(reflect.TypeOf(c.report).String(), func(t *testing.T) {
			told := map[string]bool{}
			for _, m := range regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_.\\[\\]]+)` \\| ").FindAllStringSubmatch(docsSection(t, c.file, c.title), -1) {
				told[m[1]] = true
			}
			for _, path := range fieldsOf(reflect.TypeOf(c.report), "") {
				if !told[path] {
					t.Errorf("nothing on %s", path)
				}
				delete(told, path)
			}
			if len(told) > 0 {
				t.Errorf("tells of %v, which is no field", told)
			}
		})
	}
}

// fieldsOf lists the paths of a type's JSON fields that hold values; [] stands for the entries of a
// list. A list or map of values counts as one value; so do an interval and the standard deviations
// beside figures.
func fieldsOf(of reflect.Type, path string) (paths []string) {
	if of == reflect.TypeFor[eval.Interval]() && !strings.HasSuffix(path, ".bootstrap") { // there it is embedded
		return []string{path}
	}
	if strings.HasSuffix(path, ".sd") {
		return []string{path}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return fieldsOf(of.Elem(), path)
	case reflect.Slice:
		if elem := of.Elem(); elem.Kind() == reflect.Struct {
			return fieldsOf(elem, path+"[]")
		}
	case reflect.Map:
		if elem := of.Elem(); elem.Kind() == reflect.Struct {
			return fieldsOf(elem, path+".NAME")
		}
	case reflect.Struct:
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-":
			case name == "": // embedded
				paths = append(paths, fieldsOf(f.Type, path)...)
			default:
				paths = append(paths, fieldsOf(f.Type, strings.TrimPrefix(path+"."+name, "."))...)
			}
		}
		return paths
	}
	return []string{path}
}

// docsSection returns the text of a page of docs under a title, up to the next title of its level.
func docsSection(t *testing.T, page, title string) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut("\n"+string(data), "\n"+title+"\n")
	if !ok {
		t.Fatalf("%s: no section %q", page, title)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}
