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

	"github.com/ckd-project/ckd/drift"
)

// Marshal is the policy as a file, which Parse reads back as an equal policy.
// What thresholds depend on is spelled out; other fields are left out where
// they say what Parse fills in.
func (p *Policy) Marshal() []byte {
	w := writer{indent: "    "}
	w.b.WriteString("models:\n  - name: " + literal(p.Name) + "\n")
	w.given("version", p.Version)
	w.field("classes", p.Classes)
	w.given("critical", p.namesOf(p.Critical))
	if !slices.Equal(p.Safe, p.notCritical()) {
		w.field("safe", p.namesOf(p.Safe))
	}
	w.field("kind", p.Kind)
	passes := flow{{"fewest", p.FewestPasses}}
	if p.ExpectedPasses > 0 {
		passes = append(passes, entry{"expected", p.ExpectedPasses})
	}
	w.field("passes", passes)
	if p.SumTolerance != DefaultSumTolerance {
		w.field("sum_tolerance", p.SumTolerance)
	}
	w.tensor(p.Tensor)
	w.field("variance", p.Variance)
	w.field("reliability_threshold", p.ReliabilityThreshold)
	w.field("gate", p.Gate)
	w.field("scope", p.Scope)
	w.field("primary", p.Primary.flow())
	w.field("fallback", p.Fallback.flow())
	if len(p.PairWeights) > 0 {
		w.b.WriteString("    pair_weights:\n")
	}
	for _, pair := range p.PairWeights {
		w.b.WriteString("      - " + literal(flow{
			{"safe", p.Classes[pair.Safe]}, {"critical", p.Classes[pair.Critical]}, {"weight", pair.Weight},
		}) + "\n")
	}
	if p.Pairs != SafeCriticalPairs {
		w.field("pairs", p.Pairs)
	}
	if p.TopClasses != min(defaultTopClasses, len(p.Classes)) {
		w.field("top_classes", p.TopClasses)
	}
	w.field("degenerate", p.Degenerate)
	w.field("saturated", p.Saturated)
	if p.Calibration != nil {
		p.Calibration.write(&w, p.Classes)
	}
	if p.Settle != nil {
		p.Settle.write(&w)
	}
	return w.b.Bytes()
}

// tensor writes the field of that name, unless it is the default.
func (w *writer) tensor(name string) {
	if name != DefaultTensor {
		w.given("tensor", name)
	}
}

// write is the calibration as a field of a model.
func (c *Calibration) write(w *writer, classes []string) {
	if *c == (Calibration{}) {
		w.field("calibration", flow{})
		return
	}
	w.begin("calibration")
	w.given("software", c.Software)
	w.given("policy_hash", c.PolicyHash)
	if r := c.Recording; r != (Recording{}) {
		w.begin("recording")
		w.given("passes_file", r.PassesFile)
		w.given("passes_sha256", r.PassesSHA256)
		w.given("labels_file", r.LabelsFile)
		w.given("labels_sha256", r.LabelsSHA256)
		w.given("inputs", r.Inputs)
		if r.Inputs > 0 || r.CriticalInputs > 0 {
			w.field("critical_inputs", r.CriticalInputs)
		}
		w.given("passes", r.Passes)
		w.end()
	}
	w.given("posterior", c.Posterior)
	w.given("objective", c.Objective)
	w.given("scope", c.Scope)
	w.given("seed", c.Seed)
	if c.ExpectedCoverage != nil {
		w.field("expected_coverage", c.ExpectedCoverage.flow())
	}
	if c.ExpectedCriticalFNR != nil {
		w.field("expected_critical_fnr", c.ExpectedCriticalFNR.flow())
	}
	if t := c.Certificate; t != nil {
		w.begin("certificate")
		w.field("kind", t.Kind)
		w.field("target", t.Target)
		w.given("confidence", t.Confidence)
		if t.Cases > 0 {
			w.field("cases", t.Cases)
			w.field("misses", t.Misses)
		}
		w.given("p_value", t.PValue)
		w.given("statement", t.Statement)
		w.end()
	}
	if r := c.Reference; r != nil {
		w.begin("reference")
		w.field("inputs", r.Inputs)
		w.b.WriteString(w.indent + "classes:\n")
		for _, class := range r.Classes {
			w.b.WriteString(w.indent + "  - class: " + literal(classes[class.Class]) + "\n")
			w.indent += "    "
			w.field("predicted", class.Predicted)
			w.field("epistemic", texts(class.Epistemic))
			w.field("skewness", texts(class.Skewness))
			w.indent = w.indent[4:]
		}
		w.end()
	}
	w.given("earlier_attempt", c.EarlierAttempt)
	w.end()
}

// numbers are written as they are, in a list.
type numbers []string

func texts(q drift.Quantiles) numbers {
	list := make(numbers, len(q))
	for i, x := range q {
		list[i] = decimal(x)
	}
	return list
}

func (r Rule) flow() flow {
	f := flow{{"score", r.Score}}
	if r.HasThreshold {
		f = append(f, entry{"threshold", r.Threshold})
	}
	return f
}

func (i *Interval) flow() flow {
	f := flow{{"value", i.Value}}
	if i.Low != 0 || i.High != 1 {
		f = append(f, entry{"low", i.Low}, entry{"high", i.High})
	}
	return f
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

// writer writes the fields of a mapping, one a line.
type writer struct {
	b      bytes.Buffer
	indent string
}

// field writes a field; a long list takes several lines.
func (w *writer) field(name string, value any) {
	start := w.indent + name + ": "
	var list []string
	switch value := value.(type) {
	case []string:
		for _, text := range value {
			list = append(list, literal(text))
		}
	case numbers:
		list = value
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

// given writes a field that is not zero.
func (w *writer) given(name string, value any) {
	if !reflect.ValueOf(value).IsZero() {
		w.field(name, value)
	}
}

// begin begins a field that is a mapping of those up to its end.
func (w *writer) begin(name string) {
	w.b.WriteString(w.indent + name + ":\n")
	w.indent += "  "
}

func (w *writer) end() { w.indent = w.indent[2:] }

// flow is a mapping on one line.
type flow []entry

type entry struct {
	name  string
	value any
}

// literal is a value as it is written in YAML.
func literal(value any) string {
	if f, ok := value.(flow); ok {
		fields := make([]string, len(f))
		for i, e := range f {
			fields[i] = e.name + ": " + literal(e.value)
		}
		return "{" + strings.Join(fields, ", ") + "}"
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

// decimal is the shortest text of the number. It has a point before its
// exponent, without which other readers of YAML take it for a text.
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
	// constant is what some reader of YAML takes for no text.
	constant = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
)

// quoted is the text, in quotes where any reader of YAML could take it for
// something else.
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
