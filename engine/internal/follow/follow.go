package follow

import (
	"errors"
	"math"

	"github.com/ckd-project/ckd/internal/kernel"
)

// Inputs holds the running sums of inputs whose passes are coming in. It is for one goroutine at a
// time.
type Inputs struct {
	plan   *Plan
	inputs []input
	scratch
}

// input holds the running sums of one input.
type input struct {
	progress
	// These are parts of slices that all inputs share. They are cut once, since cutting them for
	// every pass takes as long as the arithmetic of a few classes.
	critical []moments // moments of the critical classes
	means    []float64 // means of the columns
	products []float64 // by pair: sum of products of deviations
	spreads  []float64 // for classes that are not critical, like moments.second
}

// progress holds what a new input resets.
type progress struct {
	passes    int32
	again     int32   // passes after which the rule looks again
	different bool    // some pass differs from the first
	peak      float64 // largest critical mass of a pass
	entropy   float64 // sum of the rows' entropies
}

// moments holds the mean of a class, and the sums of squares and of cubes of deviations from it.
type moments struct{ mean, second, third float64 }

// scratch is memory that no input keeps.
type scratch struct {
	row     []float64 // probabilities, if the passes are logits
	inverse [1]float64
	cross   []float64 // deviations of the critical classes, times (n-1)/n
	apart   []float64 // by column: deviations, or 1/sqrt(mu+Epsilon)
	terms   []float64 // terms of pairs
	shares  []float64 // shares of critical classes in cbec
	scales  []float64
	mean    []float64 // by class
	skew    []float64 // by class
}

// NewInputs creates n inputs.
func (p *Plan) NewInputs(n int) *Inputs {
	k, c := p.classes, len(p.critical)
	inputs := &Inputs{plan: p, scratch: scratch{row: make([]float64, k), cross: make([]float64, kernel.Padded(c)),
		apart: make([]float64, k), shares: make([]float64, c), scales: make([]float64, c),
		mean: make([]float64, k), skew: make([]float64, k)}}
	if p.wide {
		inputs.terms = make([]float64, p.pairs.number)
	}
	inputs.Resize(n)
	return inputs
}

// Resize replaces the inputs by n new ones, and uses their memory again.
func (inputs *Inputs) Resize(n int) {
	p := inputs.plan
	if n <= cap(inputs.inputs) {
		inputs.inputs = inputs.inputs[:n]
		for i := range inputs.inputs {
			inputs.Reset(i)
		}
		return
	}
	inputs.inputs = make([]input, n)
	critical, sums := make([]moments, n*len(p.critical)), make([]float64, n*p.floats)
	cut := func(n int) []float64 {
		part := sums[:n:n]
		sums = sums[n:]
		return part
	}
	for i := range inputs.inputs {
		c := len(p.critical)
		inputs.inputs[i].critical, critical = critical[:c:c], critical[c:]
		inputs.inputs[i].means, inputs.inputs[i].products = cut(len(p.listed)), cut(p.pairs.number)
		if p.spreads {
			inputs.inputs[i].spreads = cut(len(p.others))
		}
	}
}

// Room returns the number of inputs that there is memory for.
func (inputs *Inputs) Room() int { return cap(inputs.inputs) }

// Reset makes input i new.
func (inputs *Inputs) Reset(i int) { inputs.inputs[i].progress = progress{} } // the first pass clears the rest

// Passes returns the number of passes that input i has had.
func (inputs *Inputs) Passes(i int) int { return int(inputs.inputs[i].passes) }

// errClasses reports a row of another length than the policy has classes.
var errClasses = errors.New("a row of another number of classes than the policy's")

// Add takes one pass of input i, K values that decomp has checked and clamped. It neither keeps row
// nor writes to it. The error reports a row of another length.
func (inputs *Inputs) Add(i int, row []float32) error {
	if len(row) != inputs.plan.classes {
		return errClasses
	}
	if inputs.plan.logits {
		inputs.addLogits(i, row)
	} else {
		add(inputs, i, row)
	}
	return nil
}

func (inputs *Inputs) addLogits(i int, logits []float32) {
	for k, v := range logits {
		inputs.row[k] = float64(v)
	}
	softmax(inputs.row)
	add(inputs, i, inputs.row)
}

// step holds 1/n, (n-1)/n and 1/(n-1) of pass n; unbiased is 1 for the first pass.
type step struct{ inverse, share, unbiased float64 }

// firstSteps saves divisions, one of which takes as long as the rest of a pass of few classes.
var firstSteps = func() (s [256]step) {
	for n := range s {
		s[n] = newStep(n)
	}
	return s
}()

func newStep(n int) step {
	return step{1 / float64(n), float64(n-1) / float64(n), 1 / float64(max(n-1, 1))}
}

func stepOf(n int32) step {
	if n := uint32(n); n < uint32(len(firstSteps)) {
		return firstSteps[n]
	}
	return newStep(int(n))
}

// add takes one pass of probabilities (Welford; Pebay 2008 for cubes).
func add[T float32 | float64](inputs *Inputs, i int, row []T) {
	p, s := inputs.plan, &inputs.inputs[i]
	s.passes++
	if !s.different && same(inputs, i, row) {
		return
	}
	step := stepOf(s.passes)
	if mass := addMoments(s.critical, p.critical, row, inputs.cross, step.inverse, step.share, float64(s.passes)-2); s.peak < mass {
		s.peak = mass
	}
	if p.sometimes {
		addSometimes(inputs, i, row, step.share)
	}
	if p.wide {
		inputs.inverse[0] = step.inverse
		addWide(inputs, s, row)
		return
	}
	addMeans(s.means, p.listed, row, inputs.apart, step.inverse)
	if p.pairs.number > 0 {
		multiply(s.products, inputs.cross[:len(p.critical)], inputs.apart[:len(p.listed)])
	}
}

// addMoments adds a pass to the moments of the critical classes, writes their deviations times (n-1)/n
// to cross, and returns their mass. most is the number of the pass less 2.
func addMoments[T float32 | float64](x []moments, classes []int, row []T, cross []float64, inverse, share, most float64) (mass float64) {
	x, cross = x[:len(classes)], cross[:len(classes)]
	for j, c := range classes {
		v, m := float64(row[c]), &x[j]
		mass += v
		d := v - m.mean
		w, step := d*share, d*inverse
		cross[j] = w
		m.third += step * (d*w*most - 3*m.second)
		m.second += d * w
		m.mean += step
	}
	return mass
}

// addMeans adds a pass to the means of the columns, and writes the deviations to apart.
func addMeans[T float32 | float64](means []float64, classes []int, row []T, apart []float64, inverse float64) {
	means, apart = means[:len(classes)], apart[:len(classes)]
	for j, c := range classes {
		d := float64(row[c]) - means[j]
		apart[j] = d
		means[j] += d * inverse
	}
}

// multiply adds the products of the deviations of a pass.
func multiply(products, cross, apart []float64) {
	for _, w := range cross {
		row := products[:len(apart)]
		for j, d := range apart {
			row[j] += d * w
		}
		products = products[len(apart):]
	}
}

// addSometimes adds what only few scores need. The means of the critical classes have the pass
// already; the means of the other classes do not.
func addSometimes[T float32 | float64](inputs *Inputs, i int, row []T, share float64) {
	p := inputs.plan
	if p.entropies {
		inputs.inputs[i].entropy += entropy(row)
	}
	if p.spreads {
		means, spreads := inputs.meansByClass(i), inputs.inputs[i].spreads
		for at, c := range p.others {
			d := float64(row[c]) - means[c]
			spreads[at] += d * d * share
		}
	}
}

// addWide adds a pass to the columns of a wide plan. The scratch holds the deviations of this pass.
func addWide[T float32 | float64](inputs *Inputs, s *input, row []T) {
	k := len(row)
	pass := kernel.Part[T]{Data: row, Mean: s.means, Passes: 1, Stride: k, Inputs: 1, Classes: k, Width: k}
	if len(s.products) > 0 {
		kernel.Crossed(s.products, k, pass, inputs.cross, len(inputs.cross), len(s.critical), false)
	}
	// The mean of a column is read before it is written.
	kernel.Crossed(s.means, k, pass, inputs.inverse[:], 1, 1, false)
}

// same takes a pass if it and all passes before are the same, and reports whether it did.
func same[T float32 | float64](inputs *Inputs, i int, row []T) bool {
	p, s := inputs.plan, &inputs.inputs[i]
	if s.passes == 1 {
		clear(s.critical)
		clear(s.products)
		clear(s.spreads)
		for at, c := range p.critical {
			s.critical[at].mean = float64(row[c])
			s.peak += float64(row[c])
		}
		for at, c := range p.listed {
			s.means[at] = float64(row[c])
		}
	}
	mean := inputs.meansByClass(i)
	for c, v := range row {
		if v := float64(v); v != mean[c] && !math.IsNaN(v) { // NaN counts as equal to itself
			s.different = true
			return false
		}
	}
	if p.entropies {
		s.entropy += entropy(row)
	}
	return true
}

// meansByClass returns the means of input i. They are valid until the next call.
func (inputs *Inputs) meansByClass(i int) []float64 {
	s := &inputs.inputs[i]
	for at, c := range inputs.plan.critical {
		inputs.mean[c] = s.critical[at].mean
	}
	for at, c := range inputs.plan.listed {
		inputs.mean[c] = s.means[at]
	}
	return inputs.mean
}
