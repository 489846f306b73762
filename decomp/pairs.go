package decomp

import (
	"slices"

	"github.com/ckd-project/ckd/internal/kernel"
)

// comoments holds sums over the passes of products of deviations, d_a d_b, for the pairs of the
// plan. With few classes the sums are of all pairs; with more, of some fixed classes with all
// others.
type comoments struct {
	sums     []float64 // rows of stride
	stride   int
	from, to int       // inputs of the current panel whose sums are computed
	fixed    []float64 // deviations of the fixed classes, input by input and pass by pass
	roots    []float64 // by column, 1/sqrt(mu+Epsilon)
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
	fixed    []int   // classes, ascending; empty with few classes
	runs     []run   // runs of neighbours among the fixed classes
	from, to int     // range of the classes that they are paired with
	at       []place // place of each pair in the sums
	// matrix says that the critical classes are fixed: row i of the sums is of the i-th critical
	// class, and cbec is computed from the rows. A class that is not safe has weight 0.
	matrix       bool
	weights      []float64 // rows, or one row if all are equal
	weightsApart int       // from one row to the next; 0 if all are equal
}

// run is a range of neighbouring classes; at is the index of the first in fixed.
type run struct{ from, to, at int }

// runsOf returns the runs of ascending classes.
func runsOf(classes []int) (runs []run) {
	for i, k := range classes {
		if n := len(runs); n > 0 && runs[n-1].to == k {
			runs[n-1].to++
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
			at := place{pair.B - pair.A - 1, pair.A}
			if at.row >= k/2 { // as (B,A)
				at = place{pair.A - pair.B + k - 1, pair.B}
			}
			x.at = append(x.at, at)
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
	x.fixed, x.runs, x.from, x.to = fixed, runsOf(fixed), p.classes, 0
	for _, pair := range p.pairs {
		class, other := pair.A, pair.B
		at, known := row[class]
		if !known {
			class, other = other, class
			at = row[class]
		}
		x.at = append(x.at, place{at, other})
		x.from, x.to = min(x.from, other), max(x.to, other+1)
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
		at := x.at[cross.pair]
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
	kernel.Confusions(c.shares, c.terms[x.from:], kernel.Matrix{
		Sums: sums[x.from:], Roots: roots[x.from:], Scales: c.scales, Weights: x.weights[x.from:],
		Inputs: inputs, Rows: n, Width: x.to - x.from, Apart: classes, WeightsApart: x.weightsApart,
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
	c.from, c.to = 0, 0
	mean := b.columns.Mean[:p.width]
	kernel.InverseRoots(c.roots, mean)
	if len(b.plan.pairing.fixed) == 0 {
		kernel.Rotated(c.sums, c.stride, p.data, p.passes, b.to-b.from, b.plan.classes, p.stride, mean)
	}
}

// sumPairs points co at the sums of the input at an index of the current panel. If they are not
// computed yet, it computes them and those of the next inputs.
func sumPairs[T float](b *Batch, c *comoments, p *panel[T], at int, co *coSums) {
	k, fixed := b.plan.classes, len(b.plan.pairing.fixed)
	co.sums, co.stride, co.column, co.listed = c.sums, c.stride, at*k, nil
	if fixed == 0 {
		return
	}
	if at < c.from || at >= c.to {
		c.from, c.to = at, min(at+len(c.sums)/(fixed*k), p.width/k)
		for i := at; i < c.to; {
			i += cross(c, b.plan, c.sums[(i-at)*fixed*k:], p.input(i, k), b.columns.Mean[i*k:], c.to-i)
		}
		if b.plan.pairing.matrix && !b.job.part {
			b.plan.pairing.confuse(&c.confusions, c.sums, c.roots[at*k:], c.to-at, k, b.divisor)
		}
	}
	place := (at - c.from) * fixed
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
		columns := func(from, to int) kernel.Part[T] {
			return kernel.Part[T]{
				Data: first.data[s*first.stride+from:], Mean: mean[from:], Passes: passes, Stride: first.stride,
				Inputs: inputs, Classes: k, Width: to - from,
			}
		}
		for _, r := range x.runs {
			kernel.Deviations(c.fixed[r.at:], stride, columns(r.from, r.to))
		}
		kernel.Crossed(sums[x.from:], k, columns(x.from, x.to), c.fixed, stride, n, s == 0)
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

func (c *coSums) of(p *Plan, pair int) float64 {
	if c.listed != nil {
		return c.listed[pair]
	}
	at := p.pairing.at[pair]
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
