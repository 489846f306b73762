package policy

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// Marshal returns the policy as a file, which Parse reads back as an equal policy. It spells out
// what thresholds depend on, and leaves out other fields that have their defaults.
func (p *Policy) Marshal() []byte {
	w := p.newWriter()
	w.list(modelsField, mappings{count: func(*builder) int { return 1 }, fields: modelFields})
	return w.b.Bytes()
}

// writer writes the fields of a draft, as the table of fields has them.
type writer struct {
	b      bytes.Buffer
	indent string
	draft  *builder
}

// newWriter returns a writer of the policy's fields.
func (p *Policy) newWriter() writer {
	d := newBuilder(p.Draft())
	d.addSteps()
	if slices.Equal(p.Safe, p.notCritical()) {
		d.Safe = nil
	}
	if d.TopClasses == min(defaultTopClasses, len(d.Classes)) {
		d.TopClasses = 0
	}
	return writer{draft: d}
}

// fields writes the fields of a mapping, one on each line.
func (w *writer) fields(fields []field) {
	for _, f := range fields {
		switch is := f.is.(type) {
		case mapping:
			if is.isGiven(w.draft) && (f.beside == nil || f.beside(w.draft)) {
				w.mapping(f.name, is)
			}
		case mappings:
			w.list(f.name, is)
		default:
			if value, written := f.written(w.draft); written {
				w.field(f.name, value)
			}
		}
	}
}

// written returns what a draft holds for a field, and whether a file has to say so.
func (f field) written(d *builder) (value any, written bool) {
	value = f.is.(valued).value(d)
	switch {
	case value == nil:
		return nil, false
	case f.required || f.spelled:
		return value, true
	case f.beside != nil:
		return value, f.beside(d)
	}
	return value, value != f.standard && !reflect.ValueOf(value).IsZero()
}

// mapping writes a field that is a mapping. One without fields says something only if it need not
// be given.
func (w *writer) mapping(name string, m mapping) {
	if m.flow {
		w.field(name, w.flow(m.fields))
		return
	}
	inner := writer{indent: w.indent + "  ", draft: w.draft}
	inner.fields(m.fields)
	if inner.b.Len() > 0 {
		w.b.WriteString(w.indent + name + ":\n" + inner.b.String())
	} else if m.given != nil {
		w.field(name, flow{})
	}
}

// list writes a field that is a list of mappings, unless the list is empty.
func (w *writer) list(name string, m mappings) {
	for i := range m.count(w.draft) {
		if i == 0 {
			w.b.WriteString(w.indent + name + ":\n")
		}
		w.draft.item = i
		w.b.WriteString(w.indent + "  - ")
		if m.flow {
			w.b.WriteString(literal(w.flow(m.fields)) + "\n")
			continue
		}
		inner := writer{indent: w.indent + "    ", draft: w.draft}
		inner.fields(m.fields)
		w.b.WriteString(inner.b.String()[len(inner.indent):]) // the first field stands beside the dash
	}
}

// flow returns the fields of a mapping that is written on one line.
func (w *writer) flow(fields []field) (f flow) {
	for _, one := range fields {
		if value, written := one.written(w.draft); written {
			f = append(f, entry{one.name, value})
		}
	}
	return f
}

// field writes a field. A long list takes several lines.
func (w *writer) field(name string, value any) {
	start := w.indent + name + ": "
	var list []string
	switch value := value.(type) {
	case []string:
		for _, text := range value {
			list = append(list, quoted(text))
		}
	case []float64:
		for _, x := range value {
			list = append(list, decimal(x))
		}
	default:
		w.b.WriteString(start + literal(value) + "\n")
		return
	}
	const wide = 110
	line := start + "["
	for i, item := range list {
		if i < len(list)-1 {
			item += ", "
		}
		if len(line)+len(item) > wide && i > 0 {
			w.b.WriteString(strings.TrimSuffix(line, " ") + "\n")
			line = w.indent + "  "
		}
		line += item
	}
	w.b.WriteString(line + "]\n")
}

// writesStep reports whether step i of a rule is written: the first and the last, which say how far
// the rule reaches, and those that decide anything.
func writesStep(r *earlystop.Rule, i int) bool {
	return i == 0 || i == len(r.Steps)-1 || r.Steps[i].Asks()
}

func (p *Policy) namesOf(classes []int) []string {
	var names []string
	for _, k := range classes {
		names = append(names, p.Classes[k])
	}
	return names
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

// flow holds a mapping that is written on one line.
type flow []entry

type entry struct {
	name  string
	value any
}

// literal returns a value as it is written in YAML.
func literal(value any) string {
	if f, ok := value.(flow); ok {
		fields := make([]string, len(f))
		for i, e := range f {
			fields[i] = e.name + ": " + literal(e.value)
		}
		return "{" + strings.Join(fields, ", ") + "}"
	}
	if list, ok := value.([]string); ok {
		texts := make([]string, len(list))
		for i, text := range list {
			texts[i] = quoted(text)
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.String:
		return quoted(v.String())
	case reflect.Float64:
		return decimal(v.Float())
	}
	return fmt.Sprint(value)
}

// decimal returns the shortest text of a number. It has a point before its exponent, without which
// other YAML readers take it for a text.
func decimal(x float64) string {
	s := strconv.FormatFloat(x, 'g', -1, 64)
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

// quoted returns the text, in quotes if any YAML reader could take it for something else.
func quoted(s string) string {
	if plainText.MatchString(s) && !constant.MatchString(s) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			fmt.Fprintf(&b, `\u%04X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
