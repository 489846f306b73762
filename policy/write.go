package policy

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Marshal returns the policy as a file, which Parse reads back as an equal policy. It spells out
// what thresholds depend on, and leaves out other keys that have their defaults.
func (p *Policy) Marshal() []byte {
	d := p.Draft()
	if slices.Equal(p.Safe, p.notCritical()) {
		d.Safe = nil
	}
	if d.TopClasses == min(defaultTopClasses, len(d.Classes)) {
		d.TopClasses = 0
	}
	return d.marshal()
}

// marshal returns what was given as a file.
func (p *Policy) marshal() []byte {
	models := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{p.mapping(reflect.ValueOf(*p), modelFields)}}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{plain(modelsField), models}}); err != nil {
		panic(err) // the nodes are well formed, and a buffer takes everything
	}
	return b.Bytes()
}

// mapping returns the keys of a struct: on one line if they are flat.
func (p *Policy) mapping(in reflect.Value, fields []field) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	if isFlat(fields) {
		n.Style = yaml.FlowStyle
	}
	for i := range fields {
		f := &fields[i]
		value := f.value(in, false)
		if !f.written(value, in) {
			continue
		}
		node := p.node(f, value)
		if f.index != nil || len(node.Content) > 0 { // a mapping that exists in files alone may be empty
			n.Content = append(n.Content, plain(f.name), node)
		}
	}
	return n
}

// node returns the value of a key.
func (p *Policy) node(f *field, value reflect.Value) *yaml.Node {
	switch f.kind {
	case mappingValue:
		return p.mapping(value, f.sub)
	case listValue:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range value.Len() {
			n.Content = append(n.Content, p.mapping(value.Index(i), f.sub))
		}
		return n
	case namesValue, quantileValue:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range value.Len() {
			n.Content = append(n.Content, p.scalar(f, value.Index(i)))
		}
		return n
	}
	return p.scalar(f, value)
}

// scalar returns a number, the name of a class or another text.
func (p *Policy) scalar(f *field, value reflect.Value) *yaml.Node {
	switch {
	case f.kind == alarmValue:
		return text(value.Interface().(AlarmName).String())
	case value.Kind() == reflect.Float64:
		return plain(decimal(value.Float()))
	case value.Kind() == reflect.String:
		return text(value.String())
	case f.kind != classValue && f.kind != namesValue:
		return plain(fmt.Sprint(value.Interface()))
	}
	if k := value.Int(); k >= 0 && k < int64(len(p.Classes)) {
		return text(p.Classes[k])
	}
	return plain("null") // of a program that made a mistake
}

// plain returns a scalar without quotes.
func plain(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// isFlat reports whether a mapping is written on one line: it has neither mappings nor long lists.
func isFlat(fields []field) bool {
	return !slices.ContainsFunc(fields, func(sub field) bool { return sub.sub != nil || sub.kind == quantileValue })
}

// written reports whether a file has to say what a struct holds.
func (f *field) written(value, in reflect.Value) bool {
	switch {
	case !value.IsValid():
		return false
	case f.flag != "":
		return in.FieldByName(f.flag).Bool()
	case f.kind == classValue && !f.required:
		return value.Int() != noClass
	case f.required && (value.Kind() == reflect.String || value.Kind() == reflect.Slice):
		return value.Len() > 0 // else it was not given
	case f.kind == mappingValue || f.required:
		return true
	case f.spelled:
		return !value.IsZero() || f.isPointer(in)
	case f.standard.IsValid():
		return !value.IsZero() && !value.Equal(f.standard)
	}
	return f.isPointer(in) || !value.IsZero()
}

// isPointer reports whether the struct has a pointer to the value, so that zero was given too.
func (f *field) isPointer(in reflect.Value) bool {
	last := len(f.index) - 1
	if outer := (&field{index: f.index[:last]}).value(in, false); outer.IsValid() {
		return outer.Field(f.index[last]).Kind() == reflect.Pointer
	}
	return false
}

func (p *Policy) notCritical() []int {
	var classes []int
	for k := range p.Classes {
		if !has(p.Critical, k) {
			classes = append(classes, k)
		}
	}
	return classes
}

// decimal returns the shortest text of a number. It has a point before its exponent, without which
// other YAML readers take it for a text.
func decimal(x float64) string {
	s := strconv.FormatFloat(x+0, 'g', -1, 64) // -0 + 0 is 0
	if mantissa, exponent, ok := strings.Cut(s, "e"); ok && !strings.Contains(mantissa, ".") {
		return mantissa + ".0e" + exponent
	}
	return s
}

var (
	// plainText needs no quotes, wherever it stands.
	plainText = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.+/-]*( [A-Za-z0-9_.+/-]+)*$`)
	// constant matches what some YAML reader does not take for a text.
	constant = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
)

// text returns a text, in quotes if any YAML reader could take it for something else.
func text(s string) *yaml.Node {
	n := plain(s)
	if !plainText.MatchString(s) || constant.MatchString(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
