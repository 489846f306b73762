package policy

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/monitor/drift"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// shape describes the value of a field: how it is written, checked and read, and where a draft
// holds it.
type shape interface {
	// words say what is expected, as in "expected ...".
	words() string
	schema() *schema
	// read copies a value of a file into the draft, or reports its faults.
	read(b *builder, v strictyaml.Value)
	// check reports the faults of the value that the draft of a program holds.
	check(b *builder, path string, required bool)
}

// defaulted is a shape whose default the table of fields states.
type defaulted interface {
	// fill sets the value to its default if it is zero.
	fill(b *builder, standard any)
}

// valued is a shape other than a mapping or a list of mappings.
type valued interface {
	// value returns what the draft holds, as Marshal writes it; nil for nothing.
	value(b *builder) any
}

// text holds any text, or one that matches a pattern.
type text struct {
	pattern *pattern
	most    int // bytes; 0 for maxText
	at      func(*builder) *string
}

// pattern is a regular expression with what it means.
type pattern struct {
	*regexp.Regexp
	words string
}

// NameForm says in words what IsName wants.
const NameForm = "at most 128 letters, digits, dots, dashes and underscores, the first a letter or digit"

// IsName reports whether the text may name a model or a posterior: it is safe in a URL, a metric
// label and a file name.
func IsName(s string) bool { return namePattern.MatchString(s) }

var namePattern = &pattern{regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`), NameForm}

// tensorPattern matches the names of tensors: servers give them names such as dense/Softmax:0.
var tensorPattern = &pattern{regexp.MustCompile(`^.{1,256}$`), "a name, " + printable(maxText)}

// sumPattern matches a SHA-256.
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

func (t text) accepts(s string) bool {
	return (t.pattern == nil || t.pattern.MatchString(s)) && isPrintable(s, t.limit())
}

func (t text) read(b *builder, v strictyaml.Value) {
	s, ok := v.Text()
	switch {
	case !ok:
	case !t.accepts(s):
		v.Fault("expected %s, found %s", t.words(), strictyaml.Quote(s))
	default:
		*t.at(b) = s
	}
}

func (t text) check(b *builder, path string, required bool) {
	switch s := *t.at(b); {
	case s == "":
		b.missing(path, t, required)
	case !t.accepts(s):
		b.expected(path, t, strictyaml.Quote(s))
	}
}

func (t text) value(b *builder) any { return *t.at(b) }

func (t text) fill(b *builder, standard any) {
	if at := t.at(b); *at == "" {
		*at = standard.(string)
	}
}

// name holds the name of a class.
type name struct{ at func(*builder) *string }

func (name) words() string { return "the name of a class" }

func (t name) read(b *builder, v strictyaml.Value) {
	if s, ok := readClass(v); ok {
		*t.at(b) = s
	}
}

func (t name) check(b *builder, path string, required bool) {
	if s := *t.at(b); s == "" {
		b.missing(path, t, required)
	} else {
		b.isClassName(path, s)
	}
}

func (t name) value(b *builder) any { return *t.at(b) }

// class holds the name of a class in files, and its position in drafts. Files name the classes
// before they refer to them in this way.
type class struct {
	at       func(*builder) *int
	optional bool // the draft may have noClass
}

func (class) words() string { return name{}.words() }

func (t class) read(b *builder, v strictyaml.Value) {
	*t.at(b) = noClass
	if s, ok := readClass(v); ok {
		if k, known := b.classOf(v.Path(), s); known {
			*t.at(b) = k
		}
	}
}

func (t class) check(b *builder, path string, _ bool) {
	if k := *t.at(b); (k != noClass || !t.optional) && (k < 0 || k >= len(b.Classes)) {
		b.fault(path, "expected the position of a class from 0 to %d, found %d", len(b.Classes)-1, k)
	}
}

func (t class) value(b *builder) any {
	if k := *t.at(b); k != noClass {
		return b.Classes[k]
	}
	return nil
}

// names holds a list of class names without repetition.
type names struct {
	least, most int
	at          func(*builder) *[]string
}

func (t names) words() string {
	if t.least > 0 {
		return fmt.Sprintf("a list of at least %d names", t.least)
	}
	return "a list of names"
}

func (t names) read(b *builder, v strictyaml.Value) {
	items, ok := b.readList(v)
	if !ok {
		return
	}
	list := make([]string, len(items)) // empty where the entry has a fault
	for i, item := range items {
		list[i], _ = readClass(item)
	}
	t.checkList(b, v.Path(), list)
	*t.at(b) = list
}

func (t names) check(b *builder, path string, required bool) {
	list := *t.at(b)
	if len(list) == 0 {
		b.missing(path, t, required)
		return
	}
	for i, s := range list {
		if !b.isClassName(fmt.Sprintf("%s[%d]", path, i), s) {
			list[i] = ""
		}
	}
	t.checkList(b, path, list)
}

// checkList checks the length of a list and looks for repetitions, which it empties.
func (t names) checkList(b *builder, path string, list []string) {
	if len(list) < t.least || len(list) > t.most {
		b.fault(path, "expected %d to %d names, found %d", t.least, t.most, len(list))
	}
	first := make(map[string]int, len(list))
	for i, s := range list {
		if s == "" {
			b.faulty[path] = true
			continue
		}
		if at, twice := first[s]; twice {
			b.fault(fmt.Sprintf("%s[%d]", path, i), "%s is given twice, first at %s", strictyaml.Quote(s),
				b.where(fmt.Sprintf("%s[%d]", path, at)))
			b.faulty[path], list[i] = true, ""
			continue
		}
		first[s] = i
	}
}

func (t names) value(b *builder) any { return *t.at(b) }

// readClass reads the name of a class.
func readClass(v strictyaml.Value) (string, bool) {
	s, ok := v.Text()
	if !ok {
		return "", false
	}
	if !validClassName(s) {
		v.Fault("expected %s, found %s", classNameWords, strictyaml.Quote(s))
		return "", false
	}
	return s, true
}

var classNameWords = "a name, " + printable(maxText)

func validClassName(s string) bool { return s != "" && isPrintable(s, maxText) }

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

// choice holds one of a few texts.
type choice[T ~string] struct {
	of []T
	at func(*builder) *T
}

func (c choice[T]) words() string { return "one of " + strings.Join(c.texts(), ", ") }

func (c choice[T]) read(b *builder, v strictyaml.Value) {
	if s, ok := v.Enum(c.texts()...); ok {
		*c.at(b) = T(s)
	}
}

func (c choice[T]) check(b *builder, path string, required bool) {
	found := *c.at(b)
	if found == "" {
		b.missing(path, c, required)
		return
	}
	if !slices.Contains(c.of, found) {
		b.expected(path, c, strictyaml.Quote(string(found))+strictyaml.Suggest(string(found), c.texts()))
	}
}

func (c choice[T]) value(b *builder) any { return *c.at(b) }

func (c choice[T]) fill(b *builder, standard any) {
	if at := c.at(b); *at == "" {
		*at = standard.(T)
	}
}

func (c choice[T]) texts() []string {
	texts := make([]string, len(c.of))
	for i, t := range c.of {
		texts[i] = string(t)
	}
	return texts
}

// whole holds a whole number.
type whole struct {
	least, most int
	at          func(*builder) *int
}

func (t whole) words() string { return fmt.Sprintf("a whole number from %d to %d", t.least, t.most) }

func (t whole) read(b *builder, v strictyaml.Value) {
	if n, ok := v.Int(t.least, t.most); ok {
		*t.at(b) = n
	}
}

func (t whole) check(b *builder, path string, required bool) {
	if n := *t.at(b); (n != 0 || required) && (n < t.least || n > t.most) {
		b.expected(path, t, n)
	}
}

func (t whole) value(b *builder) any { return *t.at(b) }

// seed holds a whole number of 64 bits, as far as an int can hold it.
type seed struct{ at func(*builder) *uint64 }

var seeds = whole{least: 0, most: maxSeed}

func (seed) words() string { return seeds.words() }

func (t seed) read(b *builder, v strictyaml.Value) {
	if n, ok := v.Int(seeds.least, seeds.most); ok {
		*t.at(b) = uint64(n)
	}
}

func (t seed) check(b *builder, path string, _ bool) {
	if n := *t.at(b); n > maxSeed {
		b.expected(path, t, n)
	}
}

func (t seed) value(b *builder) any { return *t.at(b) }

// number holds a finite number.
type number struct {
	within strictyaml.Range
	at     func(*builder) *float64 // returns nil where no number is given
	begin  func(*builder)          // is called before a number is read; may be nil
}

func (t number) words() string { return t.within.String() }

func (t number) read(b *builder, v strictyaml.Value) {
	if t.begin != nil {
		t.begin(b)
	}
	if x, ok := v.Float(t.within); ok {
		*t.at(b) = x
	}
}

func (t number) check(b *builder, path string, required bool) {
	if x := t.at(b); x != nil && (*x != 0 || required) && !t.within.Contains(*x) {
		b.expected(path, t, *x)
	}
}

func (t number) value(b *builder) any {
	if x := t.at(b); x != nil {
		return *x
	}
	return nil
}

func (t number) fill(b *builder, standard any) {
	if at := t.at(b); *at == 0 {
		*at = standard.(float64)
	}
}

// numberList holds a fixed number of numbers.
type numberList struct {
	count     int
	within    strictyaml.Range
	ascending bool // none is below the one before
	get       func(*builder) []float64
	set       func(*builder, []float64)
}

// quantiles returns the shape of a distribution.
func quantiles(at func(*builder) *drift.Quantiles) numberList {
	return numberList{
		count: drift.Levels, within: strictyaml.AtLeast(0), ascending: true,
		get: func(b *builder) []float64 { return *at(b) },
		set: func(b *builder, q []float64) { *at(b) = q },
	}
}

// logOdds are the numbers that a rule may have.
var logOdds = strictyaml.Between(-earlystop.Never, earlystop.Never)

// coefficients returns the shape of the quadratic form of one side of a step.
func coefficients(at func(*builder) *earlystop.Side) numberList {
	return numberList{
		count: earlystop.Terms, within: logOdds,
		get: func(b *builder) []float64 { return at(b).Coefficients[:] },
		set: func(b *builder, x []float64) { copy(at(b).Coefficients[:], x) },
	}
}

func (t numberList) words() string {
	if t.ascending {
		bounds := fmt.Sprintf("at least %v", t.within.Least)
		if !math.IsInf(t.within.Most, 1) {
			bounds = fmt.Sprintf("from %v to %v", t.within.Least, t.within.Most)
		}
		return fmt.Sprintf("a list of %d numbers, %s, none below the one before", t.count, bounds)
	}
	return fmt.Sprintf("a list of %d numbers from -1e6 to 1e6", t.count)
}

func (t numberList) read(b *builder, v strictyaml.Value) {
	items, ok := b.readList(v)
	if !ok {
		return
	}
	if len(items) != t.count {
		b.expected(v.Path(), t, len(items))
		return
	}
	values := make([]float64, t.count)
	for i, item := range items {
		if values[i], ok = item.Float(t.within); !ok {
			return
		}
	}
	t.set(b, values)
	t.check(b, v.Path(), true)
}

func (t numberList) check(b *builder, path string, _ bool) {
	values := t.get(b)
	if len(values) != t.count {
		b.expected(path, t, len(values))
		return
	}
	for i, x := range values {
		switch at := fmt.Sprintf("%s[%d]", path, i); {
		case !t.within.Contains(x):
			b.fault(at, "expected %s, found %v", t.within, x)
		case t.ascending && i > 0 && x < values[i-1]:
			b.fault(at, "expected at least %v, the number before, found %v", values[i-1], x)
		}
	}
}

func (t numberList) value(b *builder) any { return t.get(b) }

// mapping holds a mapping with fields of its own.
type mapping struct {
	begin  func(*builder)      // is called before the fields are read; may be nil
	given  func(*builder) bool // reports whether the draft has the mapping; nil if it always does
	fields []field
	flow   bool // is written on one line
}

// optional returns the shape of a mapping that a draft need not have.
func optional[T any](at func(*builder) **T, fields []field) mapping {
	return mapping{
		begin:  func(b *builder) { *at(b) = new(T) },
		given:  func(b *builder) bool { return *at(b) != nil },
		fields: fields,
	}
}

// inFlow returns the shape written on one line.
func inFlow(t mapping) mapping {
	t.flow = true
	return t
}

func (t mapping) words() string { return "a mapping of " + strings.Join(namesOf(t.fields), ", ") }

func (t mapping) isGiven(b *builder) bool { return t.given == nil || t.given(b) }

func (t mapping) read(b *builder, v strictyaml.Value) {
	if t.begin != nil {
		t.begin(b)
	}
	b.readFields(v, t.fields)
}

func (t mapping) check(b *builder, path string, required bool) {
	if t.isGiven(b) {
		b.checkFields(path+".", t.fields)
	} else {
		b.missing(path, t, required)
	}
}

// mappings holds a list of mappings.
type mappings struct {
	count  func(*builder) int          // returns how many the draft has
	add    func(b *builder, at string) // adds one to the draft
	fields []field
	flow   bool // each is written on one line
}

func (t mappings) words() string {
	return "a list of mappings of " + strings.Join(namesOf(t.fields), ", ")
}

func (t mappings) read(b *builder, v strictyaml.Value) {
	items, ok := b.readList(v)
	if !ok {
		return
	}
	for i, item := range items {
		t.add(b, item.Path())
		b.item = i
		b.readFields(item, t.fields)
	}
}

func (t mappings) check(b *builder, path string, _ bool) {
	for i := range t.count(b) {
		b.item = i
		b.checkFields(fmt.Sprintf("%s[%d].", path, i), t.fields)
	}
}

// fieldsOf returns the fields of a shape; none if it is neither a mapping nor a list of them.
func fieldsOf(s shape) []field {
	switch s := s.(type) {
	case mapping:
		return s.fields
	case mappings:
		return s.fields
	}
	return nil
}

// fractionsOf returns the names of the fields that hold a number with a fraction.
func fractionsOf(fields []field) (names []string) {
	for _, f := range fields {
		if _, ok := f.is.(number); ok {
			names = append(names, f.name)
		}
	}
	return names
}

// namesOf returns the names of fields, in their order.
func namesOf(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}
