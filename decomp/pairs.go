package decomp

import "github.com/ckd-project/ckd/decomp/internal/kernel"

// comoments is the sums over the passes of products of deviations, d_a d_b, for
// the pairs of the plan. Lanes of the kernel are columns here too:
//
//   - With few classes all inputs of a panel are done at once. Pairs (a, a+lag)
//     are column times column a lag further on, for every lag that occurs.
//   - With many, one input at a time: deviations of one class times those of all
//     the classes that it is paired with.
type comoments struct {
	deviations []float64
	sums       []float64 // rows of stride
	stride     int
}

const (
	// fewClasses is up to how many the panel is worked on as a whole.
	fewClasses = 7
	// deviationValues is about how many deviations stay in the cache.
	deviationValues = 1 << 13
)

// pairing is how the plan's pairs are summed.
type pairing struct {
	lags  []int     // with few classes, ascending
	fixed []partner // else
	at    []place   // of each pair in the sums
}

// partner is a class and the range of those it is paired with.
type partner struct{ class, from, to int }

// place is a row and a lane of the sums.
type place struct{ row, lane int }

// newPairing lays out the sums for the pairs of the plan.
func newPairing(p *Plan) pairing {
	var x pairing
	if len(p.pairs) == 0 {
		return x
	}
	if p.classes <= fewClasses {
		row := make([]int, p.classes)
		used := make([]bool, p.classes)
		for _, pair := range p.pairs {
			used[pair.B-pair.A] = true
		}
		for lag, u := range used {
			if u {
				row[lag] = len(x.lags)
				x.lags = append(x.lags, lag)
			}
		}
		for _, pair := range p.pairs {
			x.at = append(x.at, place{row[pair.B-pair.A], pair.A})
		}
		return x
	}
	// Without all pairs, each has one critical class, of which there are few.
	fixes := make([]bool, p.classes)
	for _, k := range p.critical {
		fixes[k] = true
	}
	row := make(map[int]int)
	for _, pair := range p.pairs {
		class, other := pair.A, pair.B
		if !p.allPairs && !fixes[class] {
			class, other = other, class
		}
		at, known := row[class]
		if !known {
			at = len(x.fixed)
			row[class] = at
			x.fixed = append(x.fixed, partner{class, other, other + 1})
		}
		f := &x.fixed[at]
		f.from, f.to = min(f.from, other), max(f.to, other+1)
		x.at = append(x.at, place{at, other})
	}
	return x
}

func newComoments(p *Plan) comoments {
	c := comoments{stride: p.classes}
	if len(p.pairing.lags) > 0 {
		c.stride = kernel.Padded(mostColumns)
	}
	c.sums = make([]float64, max(len(p.pairing.lags), len(p.pairing.fixed))*c.stride)
	if len(p.pairs) > 0 {
		c.deviations = make([]float64, max(deviationValues, kernel.Padded(p.classes)))
	}
	return c
}

// ofPanel computes the sums of all inputs of the panel at hand, where that is
// the way. The columns have been computed.
func ofPanel[T float](b *Batch, c *comoments, p panel[T]) {
	lags := b.plan.pairing.lags
	if len(lags) == 0 {
		return
	}
	for i := range lags {
		clear(c.sums[i*c.stride:][:p.width])
	}
	inChunks(c, p, b.columns.Mean[:p.width], func(passes, stride int) {
		for i, lag := range lags {
			kernel.Products(c.sums[i*c.stride:], c.deviations, c.deviations[lag:], passes, p.width-lag, stride)
		}
	})
}

// ofInput is the sums of the input at a place in the panel at hand, whose own
// columns are p: of each pair, at its place of the plan's pairing.
func ofInput[T float](b *Batch, c *comoments, p panel[T], at int) coSums {
	k := b.plan.classes
	if fixed := b.plan.pairing.fixed; len(fixed) > 0 {
		clear(c.sums)
		inChunks(c, p, b.columns.Mean[at*k:(at+1)*k], func(passes, stride int) {
			for i, f := range fixed {
				kernel.Scaled(c.sums[i*k+f.from:], c.deviations[f.class:], c.deviations[f.from:], passes, f.to-f.from, stride)
			}
		})
		at = 0
	}
	return coSums{sums: c.sums, stride: c.stride, column: at * k}
}

// coSums is where the sums of one input's pairs are: by place, or listed by pair.
type coSums struct {
	sums           []float64
	stride, column int
	listed         []float64
}

func (c *coSums) of(p *Plan, pair int) float64 {
	if c.listed != nil {
		return c.listed[pair]
	}
	at := p.pairing.at[pair]
	return c.sums[at.row*c.stride+c.column+at.lane]
}

// inChunks computes the deviations of so many passes at a time as there is room
// for, and lets each use them.
func inChunks[T float](c *comoments, p panel[T], mean []float64, use func(passes, stride int)) {
	stride := kernel.Padded(p.width)
	chunk := max(1, len(c.deviations)/stride)
	for s := 0; s < p.passes; s += chunk {
		n := min(chunk, p.passes-s)
		kernel.Deviations(c.deviations, p.data[s*p.stride:], n, p.width, p.stride, mean)
		use(n, stride)
	}
}

// complement is the columns of 1-p of critical classes, for the one-vs-all
// mutual information.
type complement struct {
	values  []float64
	columns *kernel.Columns
	rest    rest
}

// rest is, per critical class, the mean of 1-p and the M of it.
type rest struct{ mean, m []float64 }

// complementClasses is how many critical classes are done at once.
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

// ofComplement computes the complements of the input whose columns are p, and
// have been computed: r has them.
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
			// 1-p is rounded, which shows where the passes hardly differ; their own
			// moments are better then: with u = -(p-mu)/(1-mu), D(1-p) of (1-mu)
			// is (1-mu)(u^2/2 - u^3/6 + ...).
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
