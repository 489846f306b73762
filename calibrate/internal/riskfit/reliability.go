package riskfit

import (
	"cmp"
	"math"
	"slices"

	"github.com/ckd-project/ckd/internal/clustered"
	"github.com/ckd-project/ckd/policy/risk"
)

// Kinds of intervals, in words for reports. All are at 95%.
const (
	ByGroup   = "normal, 95%, standard error by group"
	Exact     = "exact binomial, 95%, if inputs are independent"
	Clustered = "95%, by group"
)

// Figure is an estimate with an interval of a kind.
type Figure struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Kind  string  `json:"interval"` // in words
}

// Bin has inputs of similar risk.
type Bin struct {
	Inputs   int     `json:"inputs"`
	Critical int     `json:"critical"`
	Risk     float64 `json:"risk"` // mean
	Observed Figure  `json:"observed"`
}

// Reliability says what risks of inputs called safe are worth, against what these inputs truly are.
// All of it is about inputs held out.
type Reliability struct {
	// CalledSafe counts these inputs, Critical those of them that are truly critical.
	CalledSafe int `json:"called_safe"`
	Critical   int `json:"critical"`
	// Expected is the sum of the risks. Critical/Expected is above 1 where the risk is too low.
	Expected             float64 `json:"expected"`
	ObservedOverExpected Figure  `json:"observed_over_expected"`
	// Slope is that of a logistic regression of the outcome on the log-odds of the risk: below 1
	// where the risks are too far apart.
	Slope Figure `json:"calibration_slope"`
	// Brier is the mean squared difference of risk and outcome, in [0,1].
	Brier Figure `json:"brier"`
	// Bins has up to ten bins of about equally many inputs, by ascending risk. Inputs of one risk are
	// in one bin.
	Bins []Bin `json:"bins"`
}

// reliability returns the figures of log-odds, by row.
func (p *problem) reliability(z []float64) *Reliability {
	n := len(z)
	q, brier, miss := make([]float64, n), make([]float64, n), make([]float64, n)
	out := &Reliability{CalledSafe: n, Critical: p.missed}
	for r, v := range z {
		q[r] = risk.Logistic(v)
		out.Expected += q[r]
	}
	ratio := float64(p.missed) / out.Expected
	for r := range z {
		y := outcome(p.y[r])
		brier[r], miss[r] = (q[r]-y)*(q[r]-y), y-ratio*q[r]
	}
	mean, se := p.meanOf(brier)
	out.Brier = Figure{mean, mean - 1.96*se, mean + 1.96*se, ByGroup}
	// The error of a ratio of sums, on the scale of its logarithm.
	_, se = p.meanOf(miss)
	wide := math.Exp(1.96 * se * float64(n) / float64(max(p.missed, 1)))
	out.ObservedOverExpected = Figure{ratio, ratio / wide, ratio * wide, ByGroup}
	out.Slope = p.slope(z)
	for _, part := range deciles(q) {
		b := Bin{Inputs: len(part), Observed: p.observed(part)}
		for _, r := range part {
			b.Risk += q[r] / float64(len(part))
			b.Critical += int(outcome(p.y[r]))
		}
		out.Bins = append(out.Bins, b)
	}
	return out
}

// observed returns the share of critical rows among some.
func (p *problem) observed(rows []int) Figure {
	t := clustered.NewTally(p.groups < len(p.y))
	for _, r := range rows {
		t.Add(p.group[r], p.y[r])
	}
	kind, interval := Exact, t.Interval()
	if t.Grouped() {
		kind = Clustered
	}
	return Figure{float64(t.Misses) / float64(t.Cases), interval[0], interval[1], kind}
}

func outcome(y bool) float64 {
	if y {
		return 1
	}
	return 0
}

// slope regresses the outcome on log-odds.
func (p *problem) slope(z []float64) Figure {
	const little = 1e-6 // of a penalty: for log-odds that separate, or do not vary
	l := standardised(z, p.y)
	l.centre, l.penalty = [2]float64{0, l.deviation}, [2]float64{0, little}
	b := l.fit([2]float64{l.mean, l.deviation})
	// The sandwich: the variance of the sums of the gradient by group, between inverses of the
	// Hessian.
	var h00, h01, h11 float64
	sums := make([][2]float64, p.groups)
	for r, v := range l.x {
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
	wide := 1.96 * math.Sqrt(variance*g/max(g-1, 1)) / l.deviation
	value := b[1] / l.deviation
	return Figure{value, value - wide, value + wide, ByGroup}
}

// deciles returns up to ten parts of the rows by ascending risk, each as large as the others but for
// one row and for the rows of one risk, which stay together.
func deciles(q []float64) (parts [][]int) {
	order := make([]int, len(q))
	for r := range order {
		order[r] = r
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(q[a], q[b]) })
	const bins = 10
	from, n := 0, len(order)
	for b := range bins {
		to := max(from, (b+1)*n/bins)
		for to > from && to < n && q[order[to]] == q[order[to-1]] {
			to++
		}
		if to > from {
			parts = append(parts, order[from:to])
		}
		from = to
	}
	return parts
}
