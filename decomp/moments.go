package decomp

import (
	"math"

	"github.com/ckd-project/ckd/internal/kernel"
)

// moments holds the moments of some passes of one input, in a form that can be joined with the
// moments of further passes (Pebay 2008). A mean is a sum of two numbers, a value and low: joining
// needs the difference of two means, which for passes that hardly differ is all in the last digits.
type moments struct {
	passes      int
	columns     *kernel.Columns // with sums, not means, in Variance, ThirdMoment and M
	low         []float64       // low parts of the means
	rest, restM []float64       // by critical class: mean of 1-p, sum of its divergences
	co          []float64       // by pair: sum of products of deviations

	rows, roots []float64 // scratch of fill
	confusions  confusions
}

func newMoments(p *Plan) *moments {
	m := &moments{columns: kernel.NewColumns(p.classes), low: make([]float64, p.classes), co: make([]float64, len(p.pairs))}
	if p.ovaMI {
		m.rest, m.restM = make([]float64, len(p.critical)), make([]float64, len(p.critical))
	}
	return m
}

// momentsFloats returns how many numbers moments hold.
func momentsFloats(p *Plan) int { return 8*kernel.Padded(p.classes) + 2*len(p.critical) + len(p.pairs) }

// set sets m to the moments of the passes p, whose columns (with divisor 1) are in r and whose sums
// are in s.
func set[T float](m *moments, plan *Plan, s *sums, p panel[T], r *Result) {
	n := float64(p.passes)
	m.passes = p.passes
	copy(m.columns.Mean, r.Mean)
	copy(m.columns.Variance, r.Variance)
	for k := range plan.classes {
		m.columns.ThirdMoment[k], m.columns.M[k] = r.ThirdMoment[k]*n, r.M[k]*n
		m.low[k] = 0
	}
	for pass := range p.passes {
		for k, v := range p.row(pass) {
			m.low[k] += float64(v) - r.Mean[k]
		}
	}
	for k := range m.low {
		m.low[k] /= n
	}
	for i := range m.rest {
		m.rest[i], m.restM[i] = s.rest.mean[i], s.rest.m[i]*n
	}
	for i := range m.co {
		m.co[i] = s.co.pair(plan, i)
	}
}

// copy copies other to m.
func (m *moments) copy(other *moments) {
	m.passes = other.passes
	copy(m.columns.Mean, other.columns.Mean)
	copy(m.columns.Variance, other.columns.Variance)
	copy(m.columns.ThirdMoment, other.columns.ThirdMoment)
	copy(m.columns.M, other.columns.M)
	copy(m.low, other.low)
	copy(m.rest, other.rest)
	copy(m.restM, other.restM)
	copy(m.co, other.co)
}

// join adds the passes of b to those of m.
func (m *moments) join(plan *Plan, b *moments) {
	x, y := m.columns, b.columns
	n1, n2 := float64(m.passes), float64(b.passes)
	n := n1 + n2
	w := n1 * n2 / n
	for i, pair := range plan.pairs {
		m.co[i] += b.co[i] + m.apart(b, pair.A)*m.apart(b, pair.B)*w
	}
	for i, k := range plan.critical[:len(m.rest)] {
		d := m.apart(b, k)
		mean := m.rest[i] - d*(n2/n)
		m.restM[i] += b.restM[i] + n1*divergence(m.rest[i], mean, d*(n2/n)) + n2*divergence(b.rest[i], mean, -d*(n1/n))
		m.rest[i] = mean
	}
	for k := range x.Mean {
		d := m.apart(b, k)
		step := m.low[k] + d*(n2/n)
		mean := x.Mean[k] + step
		x.ThirdMoment[k] += y.ThirdMoment[k] + d*d*d*w*((n1-n2)/n) + 3*d*(n1*y.Variance[k]-n2*x.Variance[k])/n
		x.Variance[k] += y.Variance[k] + d*d*w
		// All terms are >= 0.
		x.M[k] += y.M[k] + n1*divergence(x.Mean[k], mean, -d*(n2/n)) + n2*divergence(y.Mean[k], mean, d*(n1/n))
		m.low[k] = step - (mean - x.Mean[k])
		x.Mean[k] = mean
	}
	m.passes += b.passes
}

// apart returns the mean of b minus that of m.
func (m *moments) apart(b *moments, k int) float64 {
	return (b.columns.Mean[k] - m.columns.Mean[k]) + (b.low[k] - m.low[k])
}

// fill sets s and r to what the moments say.
func (m *moments) fill(plan *Plan, s *sums, r *Result) {
	n, divisor := float64(m.passes), plan.divisor(m.passes)
	x := m.columns
	r.view(x, 0)
	for k, mu := range x.Mean {
		x.Variance[k] /= divisor
		x.ThirdMoment[k] /= n
		x.M[k] /= n
		x.C[k] = 0.5 * x.Variance[k] / (mu + Epsilon)
		x.Skewness[k] = 0
		if spread := 3 * mu * x.Variance[k]; spread > 0 {
			x.Skewness[k] = math.Abs(x.ThirdMoment[k]) / spread
		}
		x.MeanLogMean[k] = 0
		if mu > 0 {
			x.MeanLogMean[k] = mu * math.Log(mu)
		}
	}
	for i := range m.restM {
		m.restM[i] /= n
	}
	if m.roots == nil && len(plan.pairs) > 0 {
		m.roots = make([]float64, plan.classes)
		if plan.pairing.matrix {
			m.rows = make([]float64, len(plan.pairing.fixed)*plan.classes)
			m.confusions = plan.pairing.newConfusions(1, plan.classes)
		}
	}
	if len(plan.pairs) > 0 {
		kernel.InverseRoots(m.roots, x.Mean)
	}
	if m.rows != nil {
		for i, at := range plan.pairing.places {
			m.rows[at.row*plan.classes+at.lane] = m.co[i]
		}
		plan.pairing.confuse(&m.confusions, m.rows, m.roots, 1, plan.classes, divisor)
	}
	s.passes, s.divisor, s.roots = m.passes, divisor, m.roots
	s.rest = rest{m.rest, m.restM}
	s.co.listed, s.co.terms, s.co.shares = m.co, m.confusions.terms, m.confusions.shares
}
