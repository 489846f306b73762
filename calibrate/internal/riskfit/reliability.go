package riskfit

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/clustered"
	"github.com/ckd-project/ckd/policy/risk"
)

// Kinds of intervals, in words for reports. All are at 95%.
const (
	ByGroup   = "normal, 95%, standard error by group"
	Exact     = "exact binomial, 95%, if inputs are independent"
	Clustered = "95%, by group"
	Simulated = "central 95% of labels drawn from the risk itself"
)

const draws = 500 // of simulated labels

// Figure is an estimate with an interval of a kind.
type Figure struct {
	Value, Low, High float64
	Kind             string
}

// Bin has the inputs of one tenth, by risk.
type Bin struct {
	Inputs, Critical int
	Risk             float64 // mean
	Observed         Figure  // share of critical ones
}

// Reliability says what risks of inputs called safe are worth, against what these inputs truly are.
// All of it is about inputs held out.
type Reliability struct {
	// Observed counts the critical inputs, Expected is the sum of the risks. Their ratio is above 1
	// where the risk is too low.
	Observed             int
	Expected             float64
	ObservedOverExpected Figure
	// Slope is that of a logistic regression of the outcome on the log-odds of the risk. Below 1 the
	// risks are too far apart.
	Slope Figure
	// Brier is the mean squared difference of risk and outcome, LogLoss the mean of -log of the
	// probability of the outcome, nats.
	Brier, LogLoss Figure
	// Bins has up to ten bins of about equally many inputs, by ascending risk. Inputs of one risk are in
	// one bin.
	Bins []Bin
	// ECE is the mean over the bins, by inputs, of |share of critical - mean risk|. Chance alone gives
	// SimulatedECE: its mean over labels drawn from the risks themselves, with the interval of one
	// draw.
	ECE          float64
	SimulatedECE Figure
}

// reliability returns the figures of log-odds, by row.
func (p *problem) reliability(z []float64, seed uint64) *Reliability {
	n := len(z)
	q, brier, loss, miss := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	out := &Reliability{Observed: p.missed}
	for r, v := range z {
		q[r] = risk.Logistic(v)
		out.Expected += q[r]
	}
	ratio := float64(p.missed) / out.Expected
	for r, v := range z {
		y := outcome(p.y[r])
		brier[r], loss[r], miss[r] = (q[r]-y)*(q[r]-y), logLoss(v, p.y[r]), y-ratio*q[r]
	}
	out.Brier, out.LogLoss = p.figure(brier), p.figure(loss)
	// The error of a ratio of sums, on the scale of its logarithm.
	_, se := p.meanOf(miss)
	wide := math.Exp(1.96 * se * float64(n) / float64(max(p.missed, 1)))
	out.ObservedOverExpected = Figure{ratio, ratio / wide, ratio * wide, ByGroup}
	out.Slope = p.slope(z)
	order := byRisk(q)
	for bin := range deciles(q, order) {
		part := order[bin.from:bin.to]
		b := Bin{Inputs: len(part)}
		for _, r := range part {
			b.Risk += q[r] / float64(len(part))
			if p.y[r] {
				b.Critical++
			}
		}
		b.Observed = p.observed(part)
		out.Bins = append(out.Bins, b)
	}
	out.ECE = ece(q, order, p.y)
	out.SimulatedECE = simulatedECE(q, order, seed)
	return out
}

// observed returns the share of critical rows among some.
func (p *problem) observed(rows []int) Figure {
	byGroup := make(map[int]clustered.Group)
	critical, most := 0, 1
	for _, r := range rows {
		g := byGroup[p.group[r]]
		g.Cases++
		if p.y[r] {
			critical++
			g.Misses++
		}
		byGroup[p.group[r]] = g
		most = max(most, g.Cases)
	}
	f := Figure{Value: float64(critical) / float64(len(rows)), Kind: Exact}
	if p.groups < len(p.y) {
		f.Kind = Clustered
		f.Low, f.High = clustered.Interval(slices.Collect(maps.Values(byGroup)), most, 0.95)
		return f
	}
	f.Low, f.High = binomial.Interval(critical, len(rows), 0.95)
	return f
}

func outcome(y bool) float64 {
	if y {
		return 1
	}
	return 0
}

func (p *problem) figure(values []float64) Figure {
	mean, se := p.meanOf(values)
	return Figure{mean, mean - 1.96*se, mean + 1.96*se, ByGroup}
}

// slope regresses the outcome on log-odds.
func (p *problem) slope(z []float64) Figure {
	mean, deviation := moments(z, nil)
	x := make([]float64, len(z))
	for r, v := range z {
		x[r] = (v - mean) / deviation
	}
	const little = 1e-6 // of a penalty: for log-odds that separate, or do not vary
	l := logistic{
		columns: [][]float64{x}, y: p.y,
		centre: []float64{0, deviation}, penalty: []float64{0, little}, atLeast0: []bool{false, false},
	}
	b := l.fit([]float64{mean, deviation})
	// The sandwich: the variance of the sums of the gradient by group, between inverses of the
	// Hessian.
	var h00, h01, h11 float64
	sums := make([][2]float64, p.groups)
	for r, v := range x {
		q := risk.Logistic(b[0] + b[1]*v)
		w, e := q*(1-q), q-outcome(p.y[r])
		h00, h01, h11 = h00+w, h01+w*v, h11+w*v*v
		s := &sums[p.group[r]]
		s[0], s[1] = s[0]+e, s[1]+e*v
	}
	det, variance := h00*(h11+little)-h01*h01, 0.0
	for _, s := range sums {
		d := (h00*s[1] - h01*s[0]) / det
		variance += d * d
	}
	g := float64(p.groups)
	wide := 1.96 * math.Sqrt(variance*g/max(g-1, 1)) / deviation
	value := b[1] / deviation
	return Figure{value, value - wide, value + wide, ByGroup}
}

// byRisk returns the rows by ascending risk.
func byRisk(q []float64) []int {
	order := make([]int, len(q))
	for r := range order {
		order[r] = r
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(q[a], q[b]) })
	return order
}

type span struct{ from, to int }

// deciles yields up to ten parts of the rows by ascending risk, each as large as the others but for
// one row and for the rows of one risk, which stay together.
func deciles(q []float64, order []int) func(yield func(span) bool) {
	const bins = 10
	return func(yield func(span) bool) {
		from, n := 0, len(order)
		for b := range bins {
			to := max(from, (b+1)*n/bins)
			for to > from && to < n && q[order[to]] == q[order[to-1]] {
				to++
			}
			if to > from && !yield(span{from, to}) {
				return
			}
			from = to
		}
	}
}

// ece returns the expected calibration error over deciles.
func ece(q []float64, order []int, y []bool) float64 {
	sum := 0.0
	for bin := range deciles(q, order) {
		d := 0.0
		for _, r := range order[bin.from:bin.to] {
			d += outcome(y[r]) - q[r]
		}
		sum += math.Abs(d)
	}
	return sum / float64(len(q))
}

// simulatedECE returns the ECE of labels drawn from the risks.
func simulatedECE(q []float64, order []int, seed uint64) Figure {
	const stream = 18
	rng := rand.New(rand.NewPCG(seed, stream))
	y, values := make([]bool, len(q)), make([]float64, draws)
	mean := 0.0
	for d := range values {
		for r, v := range q {
			y[r] = rng.Float64() < v
		}
		values[d] = ece(q, order, y)
		mean += values[d] / draws
	}
	slices.Sort(values)
	return Figure{mean, values[draws*25/1000], values[draws*975/1000], Simulated}
}
