package policy

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/ckd-project/ckd/drift"
	"github.com/ckd-project/ckd/internal/strictyaml"
)

// shape is what the value of a field looks like.
type shape interface {
	// words say what is expected, as in "expected ...".
	words() string
	schema() *schema
	// read takes a value over into the draft, or reports its faults.
	read(d *draft, v strictyaml.Value)
}

// text is any text, or one that matches a pattern.
type text struct {
	pattern *pattern
	most    int // bytes; 0 for maxText
	set     func(*draft, string)
}

// pattern is a regular expression and what it means.
type pattern struct {
	*regexp.Regexp
	words string
}

// NameForm says in words what IsName wants.
const NameForm = "at most 128 letters, digits, dots, dashes and underscores, the first a letter or digit"

// IsName reports whether the text may name a model or a posterior: it is safe in
// a URL, a metric label, a file name.
func IsName(s string) bool { return namePattern.MatchString(s) }

var namePattern = &pattern{regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`), NameForm}

// tensorPattern of the name of a tensor: servers give them names such as dense/Softmax:0.
var tensorPattern = &pattern{regexp.MustCompile(`^.{1,256}$`), "a name, " + printable(maxText)}

// sumPattern of a SHA-256.
var sumPattern = &pattern{regexp.MustCompile(`^[0-9a-f]{64}$`), "64 hexadecimal digits in lower case"}

func (t text) words() string {
	if t.pattern != nil {
		return t.pattern.words
	}
	return printable(t.limit())
}

func (t text) limit() int {
	if t.most > 0 {
		return t.most
	}
	return maxText
}

func (t text) read(d *draft, v strictyaml.Value) {
	s, ok := v.Text()
	switch {
	case !ok:
	case t.pattern != nil && !t.pattern.MatchString(s), !isPrintable(s, t.limit()):
		v.Fault("expected %s, found %s", t.words(), strictyaml.Quote(s))
	default:
		t.set(d, s)
	}
}

// name is the name of a class.
type name struct{ set func(*draft, named) }

func (name) words() string { return "the name of a class" }

func (t name) read(d *draft, v strictyaml.Value) {
	if n, ok := readClass(v); ok {
		t.set(d, n)
	}
}

// names is a list of names of classes without repetition.
type names struct {
	least, most int
	set         func(*draft, []named)
}

func (t names) words() string {
	if t.least > 0 {
		return fmt.Sprintf("a list of at least %d names", t.least)
	}
	return "a list of names"
}

func (t names) read(d *draft, v strictyaml.Value) {
	items, ok := v.List()
	if !ok {
		return
	}
	if len(items) < t.least || len(items) > t.most {
		v.Fault("expected %d to %d names, found %d", t.least, t.most, len(items))
	}
	list := make([]named, 0, len(items))
	first := make(map[string]strictyaml.Value, len(items))
	for _, item := range items {
		n, ok := readClass(item)
		if !ok {
			continue
		}
		if at, twice := first[n.text]; twice {
			item.Fault("%s is given twice, first at %d:%d", strictyaml.Quote(n.text), at.Line(), at.Col())
			continue
		}
		first[n.text] = item
		list = append(list, n)
	}
	t.set(d, list)
}

func readClass(v strictyaml.Value) (named, bool) {
	s, ok := v.Text()
	if !ok {
		return named{}, false
	}
	if s == "" || !isPrintable(s, maxText) {
		v.Fault("expected a name, %s, found %s", printable(maxText), strictyaml.Quote(s))
		return named{}, false
	}
	return named{s, v}, true
}

// Bounds of texts, in bytes.
const (
	maxText     = 256
	maxSentence = 2048
)

func printable(most int) string { return fmt.Sprintf("at most %d bytes of printable text", most) }

func isPrintable(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029
	})
}

// choice is one of a few texts.
type choice[T ~string] struct {
	of  []T
	set func(*draft, T)
}

func (c choice[T]) words() string { return "one of " + strings.Join(c.texts(), ", ") }

func (c choice[T]) read(d *draft, v strictyaml.Value) {
	if s, ok := v.Enum(c.texts()...); ok {
		c.set(d, T(s))
	}
}

func (c choice[T]) texts() []string {
	texts := make([]string, len(c.of))
	for i, t := range c.of {
		texts[i] = string(t)
	}
	return texts
}

// whole is a whole number.
type whole struct {
	least, most int
	set         func(*draft, int)
}

func (t whole) words() string { return fmt.Sprintf("a whole number from %d to %d", t.least, t.most) }

func (t whole) read(d *draft, v strictyaml.Value) {
	if n, ok := v.Int(t.least, t.most); ok {
		t.set(d, n)
	}
}

// number is a finite number.
type number struct {
	within strictyaml.Range
	set    func(*draft, float64)
}

func (t number) words() string { return t.within.String() }

func (t number) read(d *draft, v strictyaml.Value) {
	if x, ok := v.Float(t.within); ok {
		t.set(d, x)
	}
}

// quantiles is a list of numbers that do not descend, one for each level.
type quantiles struct{ set func(*draft, drift.Quantiles) }

func (quantiles) words() string {
	return fmt.Sprintf("a list of %d numbers, at least 0, none below the one before", drift.Levels)
}

func (t quantiles) read(d *draft, v strictyaml.Value) {
	items, ok := v.List()
	if !ok {
		return
	}
	if len(items) != drift.Levels {
		v.Fault("expected %s, found %d", t.words(), len(items))
		return
	}
	q := make(drift.Quantiles, 0, len(items))
	for _, item := range items {
		x, ok := item.Float(strictyaml.AtLeast(0))
		if !ok {
			return
		}
		if n := len(q); n > 0 && x < q[n-1] {
			item.Fault("expected at least %v, the number before, found %v", q[n-1], x)
			return
		}
		q = append(q, x)
	}
	t.set(d, q)
}

// mapping is a mapping with fields of its own.
type mapping struct {
	begin  func(*draft) // is called before the fields; may be nil
	fields []field
}

func (t mapping) words() string { return "a mapping of " + strings.Join(namesOf(t.fields), ", ") }

func (t mapping) read(d *draft, v strictyaml.Value) {
	if t.begin != nil {
		t.begin(d)
	}
	d.readFields(v, t.fields)
}

// mappings is a list of mappings.
type mappings struct {
	begin  func(*draft, strictyaml.Value) // is called before the fields of each
	fields []field
}

func (t mappings) words() string {
	return "a list of mappings of " + strings.Join(namesOf(t.fields), ", ")
}

func (t mappings) read(d *draft, v strictyaml.Value) {
	items, ok := v.List()
	if !ok {
		return
	}
	for _, item := range items {
		t.begin(d, item)
		d.readFields(item, t.fields)
	}
}

// fieldsOf the shape; none if it is neither a mapping nor a list of them.
func fieldsOf(s shape) []field {
	switch s := s.(type) {
	case mapping:
		return s.fields
	case mappings:
		return s.fields
	}
	return nil
}

// namesOf the fields, in their order.
func namesOf(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}
