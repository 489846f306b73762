package deploy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestChartReadme holds the chart's README against what values.schema.json and values.yaml give: the
// values with their types from the one, defaults and comments from the other. `go generate ./deploy`
// writes it.
func TestChartReadme(t *testing.T) {
	const file = "helm/ckd/README.md"
	want := chartReadme(t)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not what schema and values give (error %v): run go generate ./deploy", file, err)
	}
}

// schema is a part of values.schema.json.
type schema struct {
	Ref         string             `json:"$ref"`
	Type        any                `json:"type"`
	Enum        []string           `json:"enum"`
	AnyOf       []*schema          `json:"anyOf"`
	Default     any                `json:"default"`
	Description string             `json:"description"`
	Minimum     *float64           `json:"minimum"`
	Maximum     *float64           `json:"maximum"`
	Pattern     string             `json:"pattern"`
	Properties  orderedSchemas     `json:"properties"`
	Defs        map[string]*schema `json:"$defs"`
}

// orderedSchemas keeps the order of the file.
type orderedSchemas []namedSchema

type namedSchema struct {
	name string
	*schema
}

func (o *orderedSchemas) UnmarshalJSON(data []byte) error {
	var byName map[string]*schema
	if err := json.Unmarshal(data, &byName); err != nil {
		return err
	}
	in := json.NewDecoder(strings.NewReader(string(data)))
	if _, err := in.Token(); err != nil { // {
		return err
	}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return err
		}
		var skipped json.RawMessage
		if err := in.Decode(&skipped); err != nil {
			return err
		}
		*o = append(*o, namedSchema{name.(string), byName[name.(string)]})
	}
	return nil
}

func chartReadme(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("helm/ckd/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile("helm/ckd/values.yaml"); err != nil {
		t.Fatal(err)
	}
	var values yaml.Node
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	r := readme{t: t, defs: root.Defs}
	r.WriteString(`# The chart ckd

All values, for whoever installs it. [docs/kubernetes.md](../../../docs/kubernetes.md) explains how they go together, and
the comments of [values.yaml](values.yaml) say more. This page is made from values.schema.json and values.yaml by
` + "`go generate ./deploy`" + `; the schema refuses all other values.

` + "```sh" + `
helm upgrade --install ckd deploy/helm/ckd --namespace grading --create-namespace --set image.repository=registry.example/ckd
` + "```" + `

| value | type | default | |
|---|---|---|---|
`)
	r.rows("", root.Properties, values.Content[0])
	return r.String()
}

// readme is the page that is being written.
type readme struct {
	strings.Builder
	t    *testing.T
	defs map[string]*schema
}

// rows writes one row for each value under a path. Mappings of known fields have rows for these.
func (r *readme) rows(path string, properties orderedSchemas, values *yaml.Node) {
	for _, p := range properties {
		key, value := find(values, p.name)
		s := p.schema
		for s.Ref != "" {
			of := *r.defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
			of.Description, of.Default = cmp.Or(s.Description, of.Description), s.Default
			s = &of
		}
		comment := s.Description
		if key != nil {
			comment = cmp.Or(plain(key.HeadComment), comment)
		}
		if len(s.Properties) > 0 && value != nil && value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 && len(value.Content) > 0 {
			if comment != "" {
				fmt.Fprintf(r, "| **%s%s** | | | %s |\n", path, p.name, cell(comment))
			}
			r.rows(path+p.name+".", s.Properties, value)
			continue
		}
		fmt.Fprintf(r, "| `%s%s` | %s | %s | %s |\n", path, p.name, s.words(), standard(s, value), cell(comment))
	}
}

// find returns the key and the value of a field of values.yaml, if it is there.
func find(values *yaml.Node, name string) (key, value *yaml.Node) {
	if values == nil || values.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i < len(values.Content); i += 2 {
		if values.Content[i].Value == name {
			return values.Content[i], values.Content[i+1]
		}
	}
	return nil, nil
}

// words describes what a value may be.
func (s *schema) words() string {
	switch is := s.Type.(type) {
	case string:
		switch {
		case len(s.Enum) > 0:
			return "`" + strings.Join(s.Enum, "`, `") + "`"
		case s.Minimum != nil && s.Maximum != nil:
			return fmt.Sprintf("%s from %.12g to %.12g", is, *s.Minimum, *s.Maximum)
		case s.Minimum != nil:
			return fmt.Sprintf("%s, at least %.12g", is, *s.Minimum)
		}
		return is
	case []any:
		words := make([]string, len(is))
		for i, one := range is {
			words[i] = fmt.Sprint(one)
		}
		return strings.Join(words, " or ")
	}
	words := make([]string, len(s.AnyOf))
	for i, one := range s.AnyOf {
		words[i] = one.words()
	}
	return strings.Join(words, " or ")
}

// standard returns a value's default: that of the chart, or else what the schema names.
func standard(s *schema, value *yaml.Node) string {
	switch {
	case value == nil && s.Default != nil:
		text, _ := json.Marshal(s.Default) // it was decoded from JSON
		return "`" + string(text) + "`"
	case value == nil:
		return ""
	}
	copied := *value
	strip(&copied)
	text, _ := yaml.Marshal(&copied) // it was decoded from YAML
	return "`" + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", " ") + "`"
}

// strip removes comments, and puts everything on one line.
func strip(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	children := make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		copied := *c
		strip(&copied)
		children[i] = &copied
	}
	n.Content = children
}

var example = regexp.MustCompile(`(?m)^#( {2,}|[a-z-]+: ).*$`)

// plain returns the text of a comment, without examples, which are indented, and without settings that
// are commented out.
func plain(comment string) string {
	if i := strings.LastIndex(comment, "\n\n"); i >= 0 {
		comment = comment[i+2:] // what stands apart is about the file
	}
	comment = example.ReplaceAllString(comment, "")
	return strings.Join(strings.Fields(strings.ReplaceAll(comment, "#", "")), " ")
}

// cell escapes a text for a table.
func cell(text string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text) }
