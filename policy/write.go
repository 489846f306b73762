package policy

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	w := writer{classes: p.Classes}
	w.entry("  ", reflect.ValueOf(*p), modelFields)
	return append([]byte(modelsField+":\n"), w.b.Bytes()...)
}

// writer writes structs as their tags say.
type writer struct {
	b       bytes.Buffer
	classes []string
}

// fields writes the keys of a mapping, one on each line.
func (w *writer) fields(indent string, in reflect.Value, fields []field) {
	for i := range fields {
		f := &fields[i]
		value := f.value(in, false)
		switch {
		case !f.written(value, in):
		case f.kind == mappingValue && !f.isFlat():
			inner := writer{classes: w.classes}
			inner.fields(indent+"  ", value, f.sub)
			if inner.b.Len() > 0 {
				w.b.WriteString(indent + f.name + ":\n" + inner.b.String())
			} else if f.index != nil {
				w.b.WriteString(indent + f.name + ": {}\n")
			}
		case f.kind == listValue:
			w.b.WriteString(indent + f.name + ":\n")
			for i := range value.Len() {
				w.entry(indent+"  ", value.Index(i), f.sub)
			}
		default:
			if text := w.literal(f, value); text != "{}" || f.index != nil {
				w.b.WriteString(indent + f.name + ": " + text + "\n")
			}
		}
	}
}

// entry writes an entry of a list: on one line if it is flat.
func (w *writer) entry(indent string, in reflect.Value, fields []field) {
	entry := &field{kind: mappingValue, sub: fields}
	if entry.isFlat() {
		w.b.WriteString(indent + "- " + w.literal(entry, in) + "\n")
		return
	}
	inner := writer{classes: w.classes}
	inner.fields(indent+"  ", in, fields)
	w.b.WriteString(indent + "- " + strings.TrimPrefix(inner.b.String(), indent+"  "))
}

// isFlat reports whether a mapping is written on one line: it has neither mappings nor long lists.
func (f *field) isFlat() bool {
	return !slices.ContainsFunc(f.sub, func(sub field) bool { return sub.sub != nil || sub.kind == quantileValue })
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

// literal returns a value as it is written in YAML, on one line.
func (w *writer) literal(f *field, value reflect.Value) string {
	switch f.kind {
	case wholeValue, periodValue:
		return fmt.Sprint(value.Interface())
	case numberValue:
		return decimal(value.Float())
	case classValue:
		return w.class(value.Int())
	case namesValue, quantileValue:
		return "[" + strings.Join(w.items(value), ", ") + "]"
	case mappingValue:
		var list []string
		for i := range f.sub {
			sub := &f.sub[i]
			if inner := sub.value(value, false); sub.written(inner, value) {
				list = append(list, sub.name+": "+w.literal(sub, inner))
			}
		}
		return "{" + strings.Join(list, ", ") + "}"
	}
	return quoted(value.String())
}

// class returns the name of a class.
func (w *writer) class(k int64) string {
	if k < 0 || k >= int64(len(w.classes)) {
		return "null" // of a program that made a mistake
	}
	return quoted(w.classes[k])
}

// items returns the entries of a list of texts, classes or numbers as they are written.
func (w *writer) items(list reflect.Value) []string {
	texts := make([]string, list.Len())
	for i := range texts {
		switch item := list.Index(i); item.Kind() {
		case reflect.String:
			texts[i] = quoted(item.String())
		case reflect.Int:
			texts[i] = w.class(item.Int())
		default:
			texts[i] = decimal(item.Float())
		}
	}
	return texts
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

// quoted returns the text, in quotes if any YAML reader could take it for something else.
func quoted(s string) string {
	if plainText.MatchString(s) && !constant.MatchString(s) {
		return s
	}
	return strconv.Quote(s) // what it escapes means the same in YAML
}
