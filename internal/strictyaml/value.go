package strictyaml

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Value is a value of a document, at its place. Its getters report a fault when they return false.
type Value struct {
	node *yaml.Node
	path string
	*scope
}

// scope says how the faults of values name their place, and collects them.
type scope struct {
	file, entry string
	above       string // path of the entry, if it has no name
	secret      bool   // faults do not quote the value
	faults      *Faults
}

// Line returns the line where the value begins, from 1.
func (v Value) Line() int { return v.node.Line }

// Col returns the column where the value begins, from 1.
func (v Value) Col() int { return v.node.Column }

// Where returns the place as line:col, for faults elsewhere.
func (v Value) Where() string { return fmt.Sprintf("%d:%d", v.Line(), v.Col()) }

// Path returns the path of the value from the root, or from its entry.
func (v Value) Path() string { return v.path }

// Entry returns a mapping as an entry of its own, and its name if its field name is valid. Paths in
// it start there, and its faults name it by kind and name, as in model "x", or else by its path.
func (v Value) Entry(kind string, valid func(name string) bool) (entry Value, name string) {
	in := scope{file: v.file, above: v.path, secret: v.secret, faults: v.faults}
	if m, ok := v.Silent().Mapping("name"); ok {
		if field, given := m.Get("name"); given {
			name, _ = field.Text()
		}
	}
	if !valid(name) {
		return Value{v.node, "", &in}, ""
	}
	in.entry, in.above = fmt.Sprintf("%s %q", kind, name), ""
	return Value{v.node, "", &in}, name
}

// Silent returns the same value, whose faults are not reported.
func (v Value) Silent() Value { return Value{v.node, v.path, &scope{faults: new(Faults)}} }

// Secret returns the same value, whose faults do not say what was found.
func (v Value) Secret() Value {
	in := *v.scope
	in.secret = true
	return Value{v.node, v.path, &in}
}

// Fault reports a fault at the value.
func (v Value) Fault(format string, args ...any) {
	v.FaultIn(v.path, format, args...)
}

// FaultIn reports a fault at the place of the value but with another path, for instance that of a
// missing field, which has no place of its own.
func (v Value) FaultIn(path, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if v.secret {
		reason, _, _ = strings.Cut(reason, ", found ")
	}
	*v.faults = append(*v.faults, v.fault(path, reason))
}

// Warning returns what a fault would say, without reporting one.
func (v Value) Warning(format string, args ...any) string {
	return v.fault(v.path, fmt.Sprintf(format, args...)).Error()
}

func (v Value) fault(path, reason string) Fault {
	if v.above != "" {
		path = strings.TrimSuffix(v.above+"."+path, ".") // a fault of the entry itself has no field
	}
	return Fault{File: v.file, Line: v.Line(), Col: v.Col(), Entry: v.entry, Field: path, Reason: reason}
}

// Text returns any scalar but null, letter by letter as written, with quotes and escapes resolved.
func (v Value) Text() (string, bool) {
	if !v.isPlainly(yaml.ScalarNode) || isNull(v.node) {
		return "", v.expected("text")
	}
	return v.node.Value, true
}

// Match returns a text that must be accepted. The words say what is.
func (v Value) Match(words string, accepted func(string) bool) (string, bool) {
	text, ok := v.Text()
	if ok && !accepted(text) {
		v.Fault("expected %s, found %s", words, Quote(text))
		return "", false
	}
	return text, ok
}

// Enum returns a text that must be one of the allowed values.
func (v Value) Enum(allowed ...string) (string, bool) {
	text, ok := v.Text()
	if !ok || slices.Contains(allowed, text) {
		return text, ok
	}
	v.Fault("expected one of %s, found %s%s", strings.Join(allowed, ", "), Quote(text), Suggest(text, allowed))
	return "", false
}

// Bool returns true or false. It refuses yes, no, on and off.
func (v Value) Bool() (value, ok bool) {
	if v.isPlainly(yaml.ScalarNode) && v.node.ShortTag() == "!!bool" && v.isBare() {
		return strings.EqualFold(v.node.Value, "true"), true
	}
	return false, v.expected("true or false")
}

var wholeNumber = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

// Int returns a whole number from least to most, which must be written in decimal digits.
func (v Value) Int(least, most int) (int, bool) {
	words := fmt.Sprintf("a whole number from %d to %d", least, most)
	if !v.isPlainly(yaml.ScalarNode) || !v.isBare() || !wholeNumber.MatchString(v.node.Value) {
		return 0, v.expected(words)
	}
	n, err := strconv.Atoi(v.node.Value)
	if err != nil || n < least || n > most {
		return 0, v.expected(words)
	}
	return n, true
}

var decimalNumber = regexp.MustCompile(`^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

var commaNumber = regexp.MustCompile(`^([-+]?[0-9]*),([0-9]+)$`)

// DecimalComma returns a question about a text that looks like a number with a decimal comma. It
// returns an empty text for any other.
func DecimalComma(text string) string {
	parts := commaNumber.FindStringSubmatch(text)
	if parts == nil {
		return ""
	}
	return fmt.Sprintf(" (a decimal comma? write %s.%s)", parts[1], shorten(parts[2]))
}

// Float returns a finite number within the range. It returns 0 for negative zero.
func (v Value) Float(within Range) (float64, bool) {
	if !v.isPlainly(yaml.ScalarNode) || !v.isBare() || !decimalNumber.MatchString(v.node.Value) {
		v.Fault("expected %s, found %s%s", within, v.describe(), DecimalComma(v.node.Value))
		return 0, false
	}
	f, err := strconv.ParseFloat(v.node.Value, 64)
	if err != nil || !within.Contains(f) {
		return 0, v.expected(within.String())
	}
	return f + 0, true // turns -0 into 0
}

// List returns the values of a list.
func (v Value) List() ([]Value, bool) {
	if !v.isPlainly(yaml.SequenceNode) {
		return nil, v.expected("a list")
	}
	items := make([]Value, len(v.node.Content))
	for i, item := range v.node.Content {
		items[i] = Value{item, fmt.Sprintf("%s[%d]", v.path, i), v.scope}
	}
	return items, true
}

// Mapping returns the fields of a mapping that may have only the given ones. It reports unknown and
// repeated keys and leaves them out.
func (v Value) Mapping(fields ...string) (Mapping, bool) {
	if !v.isPlainly(yaml.MappingNode) {
		return Mapping{}, v.expected("a mapping")
	}
	known := make(map[string]bool, len(fields))
	for _, f := range fields {
		known[f] = true
	}
	m := Mapping{Value: v, fields: make(map[string]Value, len(fields))}
	places := make(map[string]*yaml.Node)
	for i := 0; i < len(v.node.Content); i += 2 {
		node := v.node.Content[i]
		key := Value{node, v.path, v.scope}
		switch {
		case node.ShortTag() == "!!merge":
			key.Fault("merge key <<, expected every field to be written out")
			continue
		case !key.isPlainly(yaml.ScalarNode):
			key.expected("a field name")
			continue
		}
		name := node.Value
		key.path = join(v.path, name)
		if first := places[name]; first != nil {
			key.Fault("given twice, first at %d:%d", first.Line, first.Column)
			continue
		}
		places[name] = node
		if !known[name] {
			key.Fault("unknown field%s", cmp.Or(v.splitNumber(i), Suggest(name, fields)))
			continue
		}
		m.fields[name] = Value{v.node.Content[i+1], key.path, v.scope}
	}
	return m, true
}

// Names returns the field names of a mapping that may have any, for Mapping. Other values have none.
func (v Value) Names() (names []string) {
	if v.isPlainly(yaml.MappingNode) {
		for i := 0; i < len(v.node.Content); i += 2 {
			names = append(names, v.node.Content[i].Value)
		}
	}
	return names
}

// splitNumber asks whether the key at i is the end of a number with a decimal comma: {threshold: 0,05}
// is a threshold of 0 and a field 05. It returns an empty text if the two make no number.
func (v Value) splitNumber(i int) string {
	if i == 0 || !isNull(v.node.Content[i+1]) {
		return ""
	}
	return DecimalComma(v.node.Content[i-1].Value + "," + v.node.Content[i].Value)
}

// Mapping holds the fields of a mapping.
type Mapping struct {
	Value
	fields map[string]Value
}

// Get returns the value of a field, and false if the field is not given.
func (m Mapping) Get(name string) (Value, bool) {
	v, ok := m.fields[name]
	return v, ok
}

// Need returns the value of a required field. Its fault has the words for the expected value.
func (m Mapping) Need(name, expected string) (Value, bool) {
	v, ok := m.fields[name]
	if !ok {
		m.FaultIn(m.PathTo(name), "missing, expected %s", expected)
	}
	return v, ok
}

// PathTo returns the path of a field, given or not.
func (m Mapping) PathTo(name string) string { return join(m.path, name) }

// isPlainly reports whether the value is of the kind and has neither an anchor nor a tag.
func (v Value) isPlainly(kind yaml.Kind) bool {
	return v.node.Kind == kind && v.node.Anchor == "" && v.node.Style&yaml.TaggedStyle == 0
}

// isBare reports whether a scalar is written without quotes and not as a block.
func (v Value) isBare() bool { return v.node.Style == 0 }

// expected reports a fault that names the value found and the words for what was expected, and
// returns false.
func (v Value) expected(words string) bool {
	v.Fault("expected %s, found %s", words, v.describe())
	return false
}

func (v Value) describe() string {
	switch {
	case v.node.Kind == yaml.AliasNode:
		return "an alias: aliases are not resolved, write the value out"
	case v.node.Anchor != "":
		return "an anchor: anchors are not used here, write the value alone"
	case v.node.Style&yaml.TaggedStyle != 0:
		return "a tag: tags are not used here, write the value alone"
	case v.node.Kind == yaml.MappingNode:
		return "a mapping"
	case v.node.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(v.node):
		return "nothing"
	case v.isBare() && (v.node.ShortTag() != "!!str" || decimalNumber.MatchString(v.node.Value)):
		return shorten(v.node.Value)
	}
	return "text " + Quote(v.node.Value)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func join(path, name string) string {
	name = shorten(name)
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r == ':' || !unicode.IsPrint(r) }) {
		name = strconv.Quote(name) // otherwise it would break the line of the message
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// Quote returns the text in quotes, cut if it is long.
func Quote(text string) string { return strconv.Quote(shorten(text)) }

// shorten cuts a long text, so that a message stays readable.
func shorten(text string) string {
	const most = 80
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "..."
}
