package decomp

import (
	"slices"

	"github.com/ckd-project/ckd/internal/kernel"
)

// comoments holds sums over the passes of products of deviations, d_a d_b, for the pairs of the
// plan. With few classes the sums are of all pairs; with more, of some fixed classes with all
// others.
type comoments struct {
	sums       []float64 // rows of stride
	stride     int
	first, end int       // inputs of the current panel whose sums are computed
	fixed      []float64 // deviations of the fixed classes, input by input and pass by pass
	roots      []float64 // by column, 1/sqrt(mu+Epsilon)
	confusions
}

// confusions holds what follows from the sums of a matrix: the terms of pairs, laid out like the
// sums, and for each critical class their weighted sum, its share in cbec.
type confusions struct{ terms, shares, scales []float64 }

const (
	// crossedSums is how many sums are kept at a time, unless one input has more.
	crossedSums = 1 << 14
	// fixedValues is about how many deviations of fixed classes stay in the cache.
	fixedValues = 1 << 11
)

// pairing says how the plan's pairs are summed.
type pairing struct {
	fixed      []int   // classes, ascending; empty with few classes
	runs       []run   // runs of neighbours among the fixed classes
	first, end int     // range of the classes that they are paired with
	places     []place // place of each pair in the sums
	// matrix says that the critical classes are fixed: row i of the sums is of the i-th critical
	// class, and cbec is computed from the rows. A class that is not safe has weight 0.
	matrix       bool
	weights      []float64 // rows, or one row if all are equal
	weightsApart int       // from one row to the next; 0 if all are equal
}

// run is a range of neighbouring classes; at is the index of the first in fixed.
type run struct{ first, end, index int }

// runsOf returns the runs of ascending classes.
func runsOf(classes []int) (runs []run) {
	for i, k := range classes {
		if n := len(runs); n > 0 && runs[n-1].end == k {
			runs[n-1].end++
			continue
		}
		runs = append(runs, run{k, k + 1, i})
	}
	return runs
}

// place is a row and a lane of the sums.
type place struct{ row, lane int }

// newPairing lays out the sums for the pairs of the plan.
func newPairing(p *Plan) pairing {
	var x pairing
	if len(p.pairs) == 0 {
		return x
	}
	if k := p.classes; k <= kernel.MaxRotated {
		for _, pair := range p.pairs {
			sum := place{pair.B - pair.A - 1, pair.A}
			if sum.row >= k/2 { // as (B,A)
				sum = place{pair.A - pair.B + k - 1, pair.B}
			}
			x.places = append(x.places, sum)
		}
		return x
	}
	// Without all pairs, each pair has a critical and a safe class; the smaller set is fixed.
	fixed := p.critical
	switch {
	case p.allPairs:
		fixed = nil
		for k := range p.classes - 1 {
			fixed = append(fixed, k)
		}
	case len(p.safe) < len(p.critical):
		fixed = p.safe
	default:
		x.matrix = true
	}
	row := make(map[int]int)
	for i, k := range fixed {
		row[k] = i
	}
	x.fixed, x.runs, x.first, x.end = fixed, runsOf(fixed), p.classes, 0
	for _, pair := range p.pairs {
		class, other := pair.A, pair.B
		rowOf, known := row[class]
		if !known {
			class, other = other, class
			rowOf = row[class]
		}
		x.places = append(x.places, place{rowOf, other})
		x.first, x.end = min(x.first, other), max(x.end, other+1)
	}
	if x.matrix {
		x.weigh(p)
	}
	return x
}

// weigh sets the rows of weights.
func (x *pairing) weigh(p *Plan) {
	x.weights, x.weightsApart = make([]float64, len(x.fixed)*p.classes), p.classes
	for _, cross := range p.cross {
		at := x.places[cross.pair]
		x.weights[at.row*p.classes+at.lane] = cross.weight
	}
	first := x.weights[:p.classes]
	for row := range slices.Chunk(x.weights, p.classes) {
		if !slices.Equal(row, first) {
			return
		}
	}
	x.weights, x.weightsApart = slices.Clone(first), 0
}

// newConfusions allocates the confusions of some inputs.
func (x *pairing) newConfusions(inputs, classes int) confusions {
	n := inputs * len(x.fixed)
	return confusions{terms: make([]float64, n*classes), shares: make([]float64, n), scales: make([]float64, n)}
}

// confuse computes the confusions of some inputs of a matrix from their sums and roots.
func (x *pairing) confuse(c *confusions, sums, roots []float64, inputs, classes int, divisor float64) {
	n := len(x.fixed)
	for i := range inputs {
		for f, k := range x.fixed {
			c.scales[i*n+f] = 0.5 / divisor * roots[i*classes+k]
		}
	}
	kernel.Confusions(c.shares, c.terms[x.first:], kernel.Matrix{
		Sums: sums[x.first:], Roots: roots[x.first:], Scales: c.scales, Weights: x.weights[x.first:],
		Inputs: inputs, Rows: n, Width: x.end - x.first, Apart: classes, WeightsApart: x.weightsApart,
	})
}

func newComoments(p *Plan) comoments {
	if len(p.pairs) == 0 {
		return comoments{}
	}
	c := comoments{stride: p.classes, roots: make([]float64, max(maxColumns, p.classes))}
	fixed := len(p.pairing.fixed)
	if fixed == 0 {
		c.stride = maxColumns
		c.sums = make([]float64, p.classes/2*c.stride)
		return c
	}
	inputs := min(max(1, maxColumns/p.classes), max(1, crossedSums/(fixed*p.classes)))
	c.sums = make([]float64, inputs*fixed*p.classes)
	c.fixed = make([]float64, max(fixedValues, kernel.Padded(fixed)))
	if p.pairing.matrix {
		c.confusions = p.pairing.newConfusions(inputs, p.classes)
	}
	return c
}

// sumPanel computes the roots of the current panel, whose columns are computed, and, with few
// classes, the sums of all its inputs.
func sumPanel[T float](b *Batch, c *comoments, p *panel[T]) {
	if len(b.plan.pairs) == 0 {
		return
	}
	c.first, c.end = 0, 0
	mean := b.columns.Mean[:p.width]
	kernel.InverseRoots(c.roots, mean)
	if len(b.plan.pairing.fixed) == 0 {
		kernel.Rotated(c.sums, c.stride, p.data, p.passes, b.end-b.first, b.plan.classes, p.stride, mean)
	}
}

// sumPairs points co at the sums of the input at an index of the current panel. If they are not
// computed yet, it computes them together with the sums of the next inputs.
func sumPairs[T float](b *Batch, c *comoments, p *panel[T], index int, co *coSums) {
	k, fixed := b.plan.classes, len(b.plan.pairing.fixed)
	co.sums, co.stride, co.column, co.listed = c.sums, c.stride, index*k, nil
	if fixed == 0 {
		return
	}
	if index < c.first || index >= c.end {
		c.first, c.end = index, min(index+len(c.sums)/(fixed*k), p.width/k)
		for i := index; i < c.end; {
			i += cross(c, b.plan, c.sums[(i-index)*fixed*k:], p.input(i, k), b.columns.Mean[i*k:], c.end-i)
		}
		if b.plan.pairing.matrix && !b.job.part {
			b.plan.pairing.confuse(&c.confusions, c.sums, c.roots[index*k:], c.end-index, k, b.divisor)
		}
	}
	place := (index - c.first) * fixed
	co.sums, co.column = c.sums[place*k:], 0
	if b.plan.pairing.matrix {
		co.terms, co.shares = c.terms[place*k:][:fixed*k], c.shares[place:][:fixed]
	}
}

// cross computes the sums of neighbouring inputs, given the first, and returns of how many: as many
// as there is room for their deviations.
func cross[T float](c *comoments, plan *Plan, sums []float64, first panel[T], mean []float64, inputs int) int {
	k, x := plan.classes, &plan.pairing
	n := len(x.fixed)
	stride := kernel.Padded(n)
	if room := len(c.fixed) / (first.passes * stride); inputs > room {
		inputs = max(1, room&^1) // Crossed takes two at a time
	}
	for s, passes := 0, 0; s < first.passes; s += passes {
		passes = min(first.passes-s, len(c.fixed)/stride)
		columns := func(from, end int) kernel.Part[T] {
			return kernel.Part[T]{
				Data: first.data[s*first.stride+from:], Mean: mean[from:], Passes: passes, Stride: first.stride,
				Inputs: inputs, Classes: k, Width: end - from,
			}
		}
		for _, r := range x.runs {
			kernel.Deviations(c.fixed[r.index:], stride, columns(r.first, r.end))
		}
		kernel.Crossed(sums[x.first:], k, columns(x.first, x.end), c.fixed, stride, n, s == 0)
	}
	return inputs
}

// coSums points at the sums of one input's pairs, by place or listed by pair, and at the confusions
// of a matrix.
type coSums struct {
	sums           []float64
	stride, column int
	listed         []float64
	terms, shares  []float64
}

func (c *coSums) pair(p *Plan, pair int) float64 {
	if c.listed != nil {
		return c.listed[pair]
	}
	at := p.pairing.places[pair]
	return c.sums[at.row*c.stride+c.column+at.lane]
}

// complement holds the columns of 1-p of critical classes, for the one-vs-all mutual information.
type complement struct {
	values  []float64
	columns *kernel.Columns
	rest    rest
}

// rest holds, by critical class, the mean of 1-p and its M.
type rest struct{ mean, m []float64 }

// complementClasses is how many critical classes are computed at a time.
const complementClasses = 64

func newComplement(p *Plan) complement {
	if !p.ovaMI {
		return complement{}
	}
	c := len(p.critical)
	return complement{
		columns: kernel.NewColumns(min(c, complementClasses)),
		rest:    rest{make([]float64, c), make([]float64, c)},
	}
}

// ofComplement computes the complements of an input, given its columns p, whose results r has.
func ofComplement[T float](b *Batch, c *complement, p panel[T], r *Result) rest {
	for from := 0; from < len(b.plan.critical); from += complementClasses {
		classes := b.plan.critical[from:min(from+complementClasses, len(b.plan.critical))]
		if n := p.passes * len(classes); len(c.values) < n {
			c.values = make([]float64, n)
		}
		for s := range p.passes {
			row, to := p.row(s), c.values[s*len(classes):]
			for i, k := range classes {
				to[i] = 1 - float64(row[k])
			}
		}
		kernel.Moments(c.columns, c.values, p.passes, len(classes), len(classes), 1)
		for i, k := range classes {
			mean := c.columns.Mean[i]
			c.rest.mean[from+i], c.rest.m[from+i] = mean, c.columns.M[i]
			// 1-p is rounded, which shows if the passes hardly differ; their own moments are better
			// then: with u = -(p-mu)/(1-mu), D(1-p) of (1-mu) is (1-mu)(u^2/2 - u^3/6 + ...).
			n := float64(p.passes)
			u2 := r.Variance[k] * b.divisor / n / mean / mean
			if n*u2 < kernel.Narrow {
				u3 := -r.ThirdMoment[k] / mean / mean / mean
				c.rest.m[from+i] = mean * (u2/2 - u3/6)
			}
		}
	}
	return c.rest
}
