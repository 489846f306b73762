package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/reference"
)

//go:generate go test -run ^(TestCommandsPage|TestJSONPage)$ -update .

// TestCommandsPage checks that docs/commands.md has what the command line says of itself.
func TestCommandsPage(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&cmdContext{})
	if err != nil {
		t.Fatal(err)
	}
	reference.Section(t, "../../docs/commands.md", "the commands", commandsText(t, parser.Model.Children))
}

// flagSet holds flags that several commands share, which the page describes once.
type flagSet struct {
	title string
	flags any
	texts []string
}

// commandsText describes commands with their flags. A flag that several commands have is described
// once, at the end.
func commandsText(t *testing.T, groups []*kong.Node) string {
	t.Helper()
	uses := make(map[string]int)
	everyCommand(groups, func(c *kong.Node) {
		for _, f := range c.Flags {
			uses[flagText(f)]++
		}
	})
	sets := []flagSet{{title: "Reach a daemon", flags: &daemonFlags{}}, {title: "Read rows", flags: &rowFlags{}}, {title: "Name classes", flags: &classFlags{}}}
	for i := range sets {
		parser, err := kong.New(sets[i].flags, kong.NoDefaultHelp())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range parser.Model.Flags {
			sets[i].texts = append(sets[i].texts, flagText(f))
		}
	}
	var b strings.Builder
	var others []string // shared flags of no set
	everyCommand(groups, func(c *kong.Node) {
		fmt.Fprintf(&b, "\n## ckd %s\n\n%s", strings.TrimSpace(c.Path()), reference.Wrap("", c.Help, ""))
		var own strings.Builder
		var texts, shared, inSets []string
		for _, f := range c.Flags {
			texts = append(texts, flagText(f))
		}
		for _, set := range sets {
			if !slices.ContainsFunc(set.texts, func(text string) bool { return !slices.Contains(texts, text) }) {
				shared = append(shared, fmt.Sprintf("[%s](#%s)", strings.ToLower(set.title), strings.ReplaceAll(strings.ToLower(set.title), " ", "-")))
				inSets = append(inSets, set.texts...)
			}
		}
		for i, f := range c.Flags {
			switch {
			case slices.Contains(inSets, texts[i]):
			case uses[texts[i]] == 1:
				own.WriteString(item(texts[i]))
				checkEnvironment(t, c, f)
			default:
				shared = append(shared, "`--"+f.Name+"`")
				others = append(others, texts[i])
			}
		}
		if len(shared) > 0 {
			b.WriteString("\n" + reference.Wrap("Shared: ", strings.Join(shared, ", "), ""))
		}
		b.WriteString(block(own.String()))
	})
	slices.Sort(others)
	for _, set := range append([]flagSet{{title: "Shared flags", texts: slices.Compact(others)}}, sets...) {
		var texts strings.Builder
		for _, text := range set.texts {
			texts.WriteString(item(text))
		}
		fmt.Fprintf(&b, "\n## %s\n%s", set.title, block(texts.String()))
	}
	return b.String()
}

// block returns text that Markdown shows as it is; nothing for none.
func block(text string) string {
	if text == "" {
		return ""
	}
	return "\n```text\n" + text + "```\n"
}

func item(text string) string {
	name, meaning, _ := strings.Cut(text, ": ")
	return reference.Wrap(name+"  ", meaning, "    ")
}

// everyCommand calls do for the commands that can be run.
func everyCommand(groups []*kong.Node, do func(*kong.Node)) {
	for _, group := range groups {
		if len(group.Children) == 0 {
			do(group)
		}
		everyCommand(group.Children, do)
	}
}

// stated matches the default at the end of a help text.
var stated = regexp.MustCompile(`(?:^|[ (])Default:? (.*)$`)

// flagText describes a flag by the first clause of its help.
func flagText(f *kong.Flag) string {
	name := "--" + f.Name
	if f.PlaceHolder != "" && !f.IsBool() {
		name += "=" + f.PlaceHolder
	}
	text, standard := reference.Clause(f.Help, 10), ""
	if f.Default != "" {
		text, standard = strings.TrimSuffix(text, " ("+f.Default+")"), " ("+f.Default+")"
	} else if m := stated.FindStringSubmatch(f.Help); m != nil {
		standard = " (" + regexp.MustCompile(`([^.])\.$`).ReplaceAllString(m[1], "$1") + ")"
	}
	if f.Required && len(f.Xor) == 0 {
		standard = " (needed)"
	}
	return name + ": " + text + standard
}

// checkEnvironment expects the name of a setting's environment variable to follow from the
// setting's name, as the page says.
func checkEnvironment(t *testing.T, c *kong.Node, f *kong.Flag) {
	t.Helper()
	want := "CKD_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
	if c.Name == "serve" && f.Name != "until-stdin-closes" && !slices.Contains(f.Envs, want) {
		t.Errorf("%s: environment variables %v, expected %s among them", f.Name, f.Envs, want)
	}
}

// TestJSONPage checks that docs/json.md has every field that commands print.
func TestJSONPage(t *testing.T) {
	t.Parallel()
	p := &jsonPage{comments: reference.Comments(t, "../../eval", "../../calibrate", "../../passcheck", "../../policy", "internal/answer"),
		known: make(map[reflect.Type]bool), said: make(map[reflect.Type]bool)}
	for _, c := range []struct {
		command string
		report  any
	}{
		{"ckd evaluate", eval.Report{}},
		{"ckd evaluate ood", eval.OODReport{}},
		{"ckd evaluate disentangle", eval.DisentangleReport{}},
		{"ckd calibrate", calibrate.Report{}},
		{"ckd decompose and ckd replay", answer.Answer{}},
	} {
		p.text.WriteString("\n## " + c.command + "\n\n```text")
		p.object(t, reflect.TypeOf(c.report))
		p.text.WriteString("```\n")
	}
	reference.Section(t, "../../docs/json.md", "the fields", p.text.String())
}

// jsonPage describes objects, each once.
type jsonPage struct {
	comments map[string]string     // by type and field
	known    map[reflect.Type]bool // described
	said     map[reflect.Type]bool // a field has their comment
	text     strings.Builder
}

// object describes the fields of a struct, and then those of the structs in it. Fields that need no
// words share a line.
func (p *jsonPage) object(t *testing.T, of reflect.Type) {
	t.Helper()
	if p.known[of] {
		return
	}
	p.known[of] = true
	if _, ok := p.comments[of.String()]; !ok {
		t.Errorf("%s: its package is not among those whose comments are read", of)
	}
	fmt.Fprintf(&p.text, "\n%s\n", of)
	var plain []string
	flush := func() {
		if len(plain) > 0 {
			p.text.WriteString(reference.Wrap("  ", strings.Join(plain, " "), "    "))
		}
		plain = nil
	}
	var inner []reflect.Type
	for _, f := range reference.Fields(of) {
		word, s := typeWord(f.Type)
		if s != nil {
			inner = append(inner, s)
		}
		if reference.JSONName(f) == "" {
			plain = append(plain, "..."+strings.TrimSuffix(word, "|null"))
			continue
		}
		name := reference.JSONName(f)
		if strings.Contains(f.Tag.Get("json"), "omitempty") {
			name, word = name+"?", strings.TrimSuffix(word, "|null")
		}
		if word != "number" {
			name += ":" + word
		}
		meaning := p.meaning(of, f)
		if meaning == "" && s != nil && !p.said[s] {
			meaning, p.said[s] = p.clause(s.String(), s.Name()), true
		}
		if meaning == "" {
			plain = append(plain, name)
			continue
		}
		flush()
		p.text.WriteString(reference.Wrap("  "+name+"  ", meaning, "      "))
	}
	flush()
	for _, s := range inner {
		p.object(t, s)
	}
}

// meaning returns the clause of a field's comment, with the names of other fields as JSON has them.
func (p *jsonPage) meaning(of reflect.Type, f reflect.StructField) string {
	text := p.clause(of.String()+"."+f.Name, f.Name)
	for _, other := range reference.Fields(of) {
		if name := reference.JSONName(other); name != "" {
			text = regexp.MustCompile(`\b`+other.Name+`\b`).ReplaceAllString(text, name)
		}
	}
	return strings.ReplaceAll(text, "nil", "null")
}

// clause returns the first clause of a comment without the name that it begins with, which the page
// has already.
func (p *jsonPage) clause(comment, name string) string {
	text := reference.Clause(p.comments[comment], 10)
	if first := text[:min(2, len(text))]; !strings.HasPrefix(text, name+" ") && first != strings.ToUpper(first) {
		text = strings.ToLower(text[:1]) + text[1:]
	}
	if rest, ok := strings.CutPrefix(text, name+" "); ok && !strings.HasPrefix(rest, "and ") {
		return regexp.MustCompile(`^(is|are|has|holds|says|say) `).ReplaceAllString(rest, "")
	}
	return text
}

// typeWord describes a type in JSON as the page explains it, and returns the struct in it.
func typeWord(of reflect.Type) (word string, inner reflect.Type) {
	switch of.Kind() {
	case reflect.Pointer:
		word, inner = typeWord(of.Elem())
		return strings.TrimSuffix(word, "|null") + "|null", inner
	case reflect.Slice:
		word, inner = typeWord(of.Elem())
		return strings.TrimSuffix(word, "|null") + "[]", inner
	case reflect.Map:
		word, inner = typeWord(of.Elem())
		return "{name:" + word + "}", inner
	case reflect.Struct:
		return of.String(), of
	case reflect.Array:
		if of.Len() == 2 {
			return "[low,high]", nil
		}
		return "{score:number|null}", nil
	case reflect.String:
		return "text", nil
	case reflect.Bool:
		return "bool", nil
	}
	if of.Implements(reflect.TypeFor[json.Marshaler]()) {
		return "number|null", nil
	}
	return "number", nil
}
