package decomp

import "math"

// panel is S rows of columns: row s is data[s*stride:][:width].
type panel[T float] struct {
	data                  []T
	passes, width, stride int
}

// row is the values of pass s.
func (p panel[T]) row(s int) []T {
	at := s * p.stride
	return p.data[at : at+p.width : at+p.width]
}

// columns is the part of the panel from one column to another.
func (p panel[T]) columns(from, to int) panel[T] {
	return panel[T]{p.data[from:], p.passes, to - from, p.stride}
}

// columns holds what twoPass computes, per column.
type columns struct {
	first       []float64 // the first pass
	mean, shift []float64 // means of p, and of p - first
	m2, m3, div []float64 // as in sums
	entropy     []float64 // sum over the passes of -p log p
}

func newColumns(n int) columns {
	block := make([]float64, 7*n)
	take := func() []float64 {
		var s []float64
		s, block = block[:n:n], block[n:]
		return s
	}
	return columns{take(), take(), take(), take(), take(), take(), take()}
}

// twoPass computes the columns of a panel: means and entropies on the first way
// over the passes, moments about the means on the second. Columns do not mix,
// and within one the passes are added in order.
func twoPass[T float](c *columns, p panel[T]) {
	n, w := float64(p.passes), p.width
	first, mean, shift, entropy := c.first[:w], c.mean[:w], c.shift[:w], c.entropy[:w]
	m2, m3, div := c.m2[:w], c.m3[:w], c.div[:w]
	for j, v := range p.row(0) {
		first[j] = float64(v)
	}
	for _, v := range [...][]float64{mean, shift, entropy, m2, m3, div} {
		clear(v)
	}
	for s := range p.passes {
		for j, v := range p.row(s) {
			x := float64(v)
			mean[j] += x
			shift[j] += x - first[j]
			if x > 0 {
				entropy[j] -= x * math.Log(x)
			}
		}
	}
	for j := range w {
		mean[j] /= n
		shift[j] /= n
	}
	for s := range p.passes {
		for j, v := range p.row(s) {
			x := float64(v)
			d := (x - first[j]) - shift[j]
			d2 := d * d
			m2[j] += d2
			m3[j] += d2 * d
			div[j] += divergence(x, mean[j], d)
		}
	}
	for j := range w {
		if m2[j] == 0 && shift[j] == 0 {
			mean[j] = first[j] // no rounding where the passes are constant
		}
	}
}

// input is the sums of the input in columns [from, to), without those that
// crossMoments adds. It writes r's means.
func (c *columns) input(from, to, passes int, r *Result) sums {
	s := sums{passes: passes, m2: c.m2[from:to], m3: c.m3[from:to], div: c.div[from:to]}
	copy(r.Mean, c.mean[from:to])
	for _, h := range c.entropy[from:to] {
		s.entropy += h
	}
	return s
}

// cross is what crossMoments needs for one input.
type cross struct {
	restMean, restDiv []float64 // per critical class, of 1-p
	co                []float64 // per pair
	delta             []float64 // per class: p - mean
}

func newCross(p *Plan) cross {
	c, k := len(p.critical), p.classes
	return cross{make([]float64, c), make([]float64, c), make([]float64, len(p.pairs)), make([]float64, k)}
}

// crossMoments adds to s what goes beyond single columns: the co-moments of
// pairs, the divergences of the complements of critical classes, and whether
// all passes are identical. The panel is of one input, shift its columns' own.
func crossMoments[T float](b *Batch, p panel[T], shift []float64, s *sums) {
	x := &b.cross
	n := float64(p.passes)
	first := p.row(0)
	clear(x.restMean)
	clear(x.restDiv)
	clear(x.co)
	s.restDiv, s.co, s.identical = x.restDiv, x.co, true
	for pass := range p.passes {
		row := p.row(pass)
		for k, v := range row {
			if v != first[k] {
				s.identical = false
			}
		}
		for i, k := range b.plan.critical {
			x.restMean[i] += 1 - float64(row[k])
		}
	}
	if s.identical {
		return // every sum is zero
	}
	for i := range x.restMean {
		x.restMean[i] /= n
	}
	for pass := range p.passes {
		for k, v := range p.row(pass) {
			x.delta[k] = (float64(v) - float64(first[k])) - shift[k]
		}
		for i, k := range b.plan.critical {
			x.restDiv[i] += divergence(1-float64(p.row(pass)[k]), x.restMean[i], -x.delta[k])
		}
		for i, pair := range b.plan.pairs {
			x.co[i] += x.delta[pair.A] * x.delta[pair.B]
		}
	}
}
