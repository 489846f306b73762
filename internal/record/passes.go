package record

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/advice"
)

// Layout is the order of the axes of recorded passes. Classes are always the last axis.
type Layout int

// The layouts.
const (
	SNK Layout = iota // [S,N,K]: pass by pass, each over all inputs
	NSK               // [N,S,K]: input by input, each with all its passes
)

func (l Layout) String() string { return [...]string{"snk", "nsk"}[l] }

// UnmarshalText reads "snk" or "nsk", so that a Layout can be a flag.
func (l *Layout) UnmarshalText(text []byte) error {
	switch string(text) {
	case "snk":
		*l = SNK
	case "nsk":
		*l = NSK
	default:
		return fmt.Errorf("layout %q: expected snk (passes, inputs, classes) or nsk (inputs, passes, classes)", text)
	}
	return nil
}

// Options say how to read an array as passes.
type Options struct {
	Layout Layout
	// Concentrations reads Dirichlet concentrations: one row for each input, as [N,K] or with an
	// axis of one pass.
	Concentrations bool
}

// Passes holds S passes of N inputs over K classes, each at least one. Exactly one of the data
// slices is not nil.
type Passes struct {
	Name           string // source of the passes, for error messages
	S, N, K        int
	Layout         Layout
	Concentrations bool
	Float32        []float32
	Float64        []float64
}

// ReadPasses reads passes from a file that ReadFile can read. It does not check values: see
// CheckRows.
func ReadPasses(path string, opts Options) (*Passes, error) {
	a, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	return NewPasses(path, a, opts)
}

// NewPasses views an array as passes. It keeps the array's data, without a copy.
func NewPasses(name string, a *Array, opts Options) (*Passes, error) {
	shape := a.Shape
	if opts.Concentrations && len(shape) == 2 {
		shape = []int{1, shape[0], shape[1]}
		if opts.Layout == NSK {
			shape[0], shape[1] = shape[1], shape[0]
		}
	}
	axes := "3 axes, " + axisNames(opts.Layout, 0, 1, 2)
	if opts.Concentrations {
		axes = "2 axes, [N,K], or " + axes
	}
	if len(shape) != 3 {
		return nil, contentError(name, "shape %s has %d axes: expected %s%s", tuple(shape), len(shape), axes, a.axesAdvice())
	}
	if a.Float32 == nil && a.Float64 == nil {
		return nil, contentError(name, "the array holds integers or text: passes are floats (f2, f4 or f8)")
	}
	p := &Passes{
		Name: name, S: shape[0], N: shape[1], K: shape[2], Layout: opts.Layout,
		Concentrations: opts.Concentrations, Float32: a.Float32, Float64: a.Float64,
	}
	if p.Layout == NSK {
		p.S, p.N = p.N, p.S
	}
	if p.S == 0 || p.N == 0 || p.K == 0 {
		return nil, contentError(name, "shape %s is empty: expected at least one pass, input and class", tuple(shape))
	}
	if p.Concentrations && p.S != 1 {
		return nil, contentError(name, "shape %s in layout %v has %d rows an input: concentrations are exactly one row each",
			tuple(shape), p.Layout, p.S)
	}
	return p, nil
}

// Offset returns where the row of pass s and input n starts in the data. The K classes of a row lie
// side by side.
func (p *Passes) Offset(s, n int) int {
	if p.Layout == NSK {
		return (n*p.S + s) * p.K
	}
	return (s*p.N + n) * p.K
}

// Row appends the row of pass s and input n to dst, widened to float64 (exact).
func (p *Passes) Row(dst []float64, s, n int) []float64 {
	start := p.Offset(s, n)
	for k := range p.K {
		dst = append(dst, p.value(start+k))
	}
	return dst
}

// value returns a value by its place in the data.
func (p *Passes) value(place int) float64 {
	if p.Float64 != nil {
		return p.Float64[place]
	}
	return float64(p.Float32[place])
}

// Note says in one line how the array was read. Values cannot tell which of the first two axes is
// the passes, so that for S > N the note also says how to read it the other way round.
func (p *Passes) Note() string {
	note := p.Form()
	switch {
	case p.Concentrations:
	case p.looksSwapped():
		note += fmt.Sprintf("; what was read as passes of an input differs more than what was read as inputs: "+
			"if it is the other way round, say --layout %v", p.Layout.Other())
	case p.S > p.N:
		note += fmt.Sprintf("; if it is the other way round, say --layout %v", p.Layout.Other())
	}
	return note
}

// Form says how many passes, inputs and classes there are, and how they were read.
func (p *Passes) Form() string {
	kind := "float32"
	if p.Float64 != nil {
		kind = "float64"
	}
	inputs, classes := count(p.N, "input", "inputs"), count(p.K, "class", "classes")
	if p.Concentrations {
		return fmt.Sprintf("read as concentrations of %s over %s (%s)", inputs, classes, kind)
	}
	return fmt.Sprintf("read as %s of %s over %s (%s, layout %v)", count(p.S, "pass", "passes"), inputs, classes, kind, p.Layout)
}

// Transpose takes what was read as passes for inputs, and the other way round.
func (p *Passes) Transpose() { p.S, p.N, p.Layout = p.N, p.S, p.Layout.Other() }

// looksSwapped reports whether the passes of an input vary at least twice as much as the inputs of a
// pass: the sum over the classes of the variance along one axis, averaged over the other. In the 16
// recordings of a model that the project has it is 0.008 to 0.19 times as much, so that with the
// axes swapped it is 5 times as much or more.
func (p *Passes) looksSwapped() bool {
	const most = 64 // indices of each axis, spread over it
	s, n := min(p.S, most), min(p.N, most)
	if s < 2 || n < 2 || p.K < 2 {
		return false
	}
	value := func(pass, input, k int) float64 { return p.value(p.Offset(pass*p.S/s, input*p.N/n) + k) }
	alongPasses, alongInputs := 0.0, 0.0
	for k := range p.K {
		alongPasses += meanVariance(n, s, func(input, pass int) float64 { return value(pass, input, k) })
		alongInputs += meanVariance(s, n, func(pass, input int) float64 { return value(pass, input, k) })
	}
	return alongPasses > 2*alongInputs
}

// meanVariance returns the mean over rows of the variance over columns.
func meanVariance(rows, columns int, value func(row, column int) float64) float64 {
	total := 0.0
	for row := range rows {
		mean, squares := 0.0, 0.0
		for column := range columns {
			d := value(row, column) - mean
			mean += d / float64(column+1)
			squares += d * (value(row, column) - mean)
		}
		total += squares / float64(columns-1)
	}
	return total / float64(rows)
}

// CheckRows finds arrays whose last axis is not the classes. It sums rows that are spread over the
// whole array. If most sums are further from 1 than sumTolerance, it returns an error that
// says along which axis the sums are 1 and how to transpose, or what the rows look like and what to
// do. It accepts a few wrong rows, since each row is checked when it is computed. It
// checks no concentrations. Do not call it for logits.
func (p *Passes) CheckRows(sumTolerance float64) error {
	if p.Concentrations {
		return p.CheckClasses()
	}
	last := p.sumAxis(2, sumTolerance)
	if 2*last.wrong <= last.tried {
		return p.CheckClasses()
	}
	dims := p.dims()
	msg := fmt.Sprintf("rows along the last axis (size %d) do not sum to 1 (a[%d,%d,:] sums to %.6g)",
		dims[2], last.first/dims[1], last.first%dims[1], last.sum)
	var found []string
	for _, other := range []struct {
		axis             int
		looks, transpose string
	}{
		{1, axisNames(p.Layout, 0, 2, 1), "0,2,1"},
		{0, axisNames(p.Layout, 2, 0, 1), "1,2,0"},
	} {
		if sums := p.sumAxis(other.axis, sumTolerance); 2*sums.wrong < sums.tried {
			found = append(found, fmt.Sprintf("along axis %d (size %d) they do: the array looks like %s; "+
				"transpose it to %s (numpy: a.transpose(%s))",
				other.axis, dims[other.axis], other.looks, axisNames(p.Layout, 0, 1, 2), other.transpose))
		}
	}
	switch {
	case found != nil:
		return contentError(p.Name, "%s, but %s", msg, strings.Join(found, "; or "))
	case p.K == 1:
		return p.CheckClasses()
	}
	return contentError(p.Name, "%s, nor do they along another axis, where probabilities were expected: %s", msg, p.seen().Advice())
}

// CheckClasses refuses rows of one class, and says how sigmoids and logits of one become two.
func (p *Passes) CheckClasses() error {
	if p.K > 1 {
		return nil
	}
	dims := p.dims()
	return contentError(p.Name, "shape %s has one class: expected at least two (%s)", tuple(dims[:]), p.seen().Single("concatenate"))
}

// CheckLogits refuses rows of one class, and arrays whose rows are surely no logits. It leaves
// probabilities to the check of each input.
func (p *Passes) CheckLogits() error {
	if err := p.CheckClasses(); err != nil {
		return err
	}
	if seen := p.seen(); seen.NotLogits() {
		return contentError(p.Name, "the values of most rows are no logits, which were expected: %s", seen.Advice())
	}
	return nil
}

// seen returns what rows spread over the whole array look like.
func (p *Passes) seen() *advice.Rows {
	var seen advice.Rows
	var row []float64
	lines := p.S * p.N
	for i := range min(lines, maxLines) {
		line := int(uint64(i) * uint64(lines) / uint64(min(lines, maxLines)))
		row = p.Row(row[:0], line/p.N, line%p.N)
		seen.Add(row)
	}
	return &seen
}

// axesAdvice says how an array of numbers with another number of axes than 3 may be given.
func (a *Array) axesAdvice() string {
	long := slices.DeleteFunc(slices.Clone(a.Shape), func(size int) bool { return size == 1 })
	var values Passes
	switch {
	case a.Float32 == nil && a.Float64 == nil || len(a.Float32)+len(a.Float64) == 0:
		return ""
	case len(long) == 3:
		return " (numpy: a.squeeze())"
	case len(a.Shape) != 2:
		return ""
	case a.Shape[1] > 1:
		values = Passes{S: 1, N: a.Shape[0], K: a.Shape[1], Float32: a.Float32, Float64: a.Float64}
		if sums := values.sumAxis(2, sumRounding); 2*sums.wrong < sums.tried {
			return ": rows along the last axis sum to 1: a single pass, or the mean of the passes? " +
				"Uncertainty is in how passes differ: keep them all"
		}
	}
	values = Passes{S: 1, N: len(a.Float32) + len(a.Float64), K: 1, Float32: a.Float32, Float64: a.Float64}
	return " (" + values.seen().Single("stack") + ")"
}

// sumRounding is how far rounding may take the sum of a row from 1.
const sumRounding = 0.02

// maxLines bounds the rows that CheckRows sums along each axis.
const maxLines = 1024

// axisSums is the result of summing lines along an axis.
type axisSums struct {
	tried, wrong int
	first        int     // the first wrong line
	sum          float64 // and its sum
}

// sumAxis sums lines along an axis, spread evenly over the array, and counts the sums that are
// further from 1 than tolerance.
func (p *Passes) sumAxis(axis int, tolerance float64) axisSums {
	dims := p.dims()
	strides := [3]int{dims[1] * dims[2], dims[2], 1}
	outer, inner := 0, 1
	switch axis {
	case 0:
		outer, inner = 1, 2
	case 1:
		outer, inner = 0, 2
	}
	lines := dims[outer] * dims[inner]
	sums := axisSums{tried: min(lines, maxLines)}
	for i := range sums.tried {
		line := int(uint64(i) * uint64(lines) / uint64(sums.tried))
		start := line/dims[inner]*strides[outer] + line%dims[inner]*strides[inner]
		sum := 0.0
		for range dims[axis] {
			sum += p.value(start)
			start += strides[axis]
		}
		if math.Abs(sum-1) <= tolerance { // not for NaN
			continue
		}
		if sums.wrong++; sums.wrong == 1 {
			sums.first, sums.sum = line, sum
		}
	}
	return sums
}

// dims returns the shape of the data in memory.
func (p *Passes) dims() [3]int {
	if p.Layout == NSK {
		return [3]int{p.N, p.S, p.K}
	}
	return [3]int{p.S, p.N, p.K}
}

// Other returns the other layout.
func (l Layout) Other() Layout { return NSK - l }

// axisNames names the axes of a layout in some order: [S,N,K], or [S,K,N] for 0, 2, 1.
func axisNames(l Layout, order ...int) string {
	names := strings.Split(strings.ToUpper(l.String()), "")
	var out []string
	for _, i := range order {
		out = append(out, names[i])
	}
	return "[" + strings.Join(out, ",") + "]"
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
