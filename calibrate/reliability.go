package calibrate

import (
	"cmp"
	"math"
	"slices"

	"github.com/ckd-project/ckd/policy/risk"
)

// Kinds of intervals, in words for reports. All are at 95%.
const (
	intervalByGroup   = "normal, 95%, standard error by group"
	intervalExact     = "exact binomial, 95%, if inputs are independent"
	intervalClustered = "95%, by group"
)

// Figure is an estimate with an interval of a kind.
type Figure struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Kind  string  `json:"interval"` // in words
}

// RiskBin has inputs of similar risk.
type RiskBin struct {
	Inputs   int     `json:"inputs"`
	Critical int     `json:"critical"`
	Risk     float64 `json:"risk"` // mean
	Observed Figure  `json:"observed"`
}

// RiskReport says what risks of inputs called safe are worth, against what these inputs truly are.
// All of it is about inputs held out.
type RiskReport struct {
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
	Bins []RiskBin `json:"bins"`
}

// reliability returns the figures of log-odds, by input.
func (r *riskProblem) reliability(z []float64) *RiskReport {
	n := len(r.rows)
	q, brier, miss := make([]float64, r.n), make([]float64, n), make([]float64, n)
	out := &RiskReport{CalledSafe: n, Critical: r.missed}
	for _, i := range r.rows {
		q[i] = risk.Logistic(z[i])
		out.Expected += q[i]
	}
	ratio := float64(r.missed) / out.Expected
	for at, i := range r.rows {
		y := float64(index(r.critical[i]))
		brier[at], miss[at] = (q[i]-y)*(q[i]-y), y-ratio*q[i]
	}
	mean, se := r.meanOf(brier)
	out.Brier = Figure{mean, mean - 1.96*se, mean + 1.96*se, intervalByGroup}
	// The error of a ratio of sums, on the scale of its logarithm.
	_, se = r.meanOf(miss)
	wide := math.Exp(1.96 * se * float64(n) / float64(max(r.missed, 1)))
	out.ObservedOverExpected = Figure{ratio, ratio / wide, ratio * wide, intervalByGroup}
	out.Slope = r.slope(z)
	for _, bin := range deciles(q, r.rows) {
		t, b := r.newTally(), RiskBin{Inputs: len(bin)}
		for _, i := range bin {
			t.Add(r.group[i], r.critical[i])
			b.Risk += q[i] / float64(len(bin))
		}
		kind, interval := intervalExact, t.Interval()
		if t.Grouped() {
			kind = intervalClustered
		}
		b.Critical, b.Observed = t.Misses, Figure{float64(t.Misses) / float64(t.Cases), interval[0], interval[1], kind}
		out.Bins = append(out.Bins, b)
	}
	return out
}

// meanOf returns the mean of a number of each row, and its standard error by group.
func (r *riskProblem) meanOf(values []float64) (mean, standardError float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	sums := make([]float64, r.grouping.groups)
	for at, v := range values {
		sums[r.group[r.rows[at]]] += v - mean
	}
	for _, s := range sums {
		standardError += s * s
	}
	g := float64(r.groups)
	return mean, math.Sqrt(standardError*g/max(g-1, 1)) / n
}

// slope regresses the outcome on log-odds.
func (r *riskProblem) slope(z []float64) Figure {
	const little = 1e-6 // of a penalty: for log-odds that separate, or do not vary
	l := r.regress(r.rows, z, 0, little)
	// The sandwich: the variance of the sums of the gradient by group, between inverses of the
	// Hessian.
	var h00, h01, h11 float64
	sums := make([][2]float64, r.grouping.groups)
	for at, i := range r.rows {
		q, v := risk.Logistic(l.Z(l.b, at)), l.X[2*at+1]
		w, e := q*(1-q), q-float64(index(r.critical[i]))
		h00, h01, h11 = h00+w, h01+w*v, h11+w*v*v
		s := &sums[r.group[i]]
		s[0], s[1] = s[0]+e, s[1]+e*v
	}
	det, variance := h00*(h11+little)-h01*h01, 0.0
	for _, s := range sums {
		d := (h00*s[1] - h01*s[0]) / det
		variance += d * d
	}
	g := float64(r.groups)
	wide := 1.96 * math.Sqrt(variance*g/max(g-1, 1)) / l.deviation
	value := l.b[1] / l.deviation
	return Figure{value, value - wide, value + wide, intervalByGroup}
}

// deciles returns up to ten parts of some inputs by ascending risk, each as large as the others but for
// one input and for the inputs of one risk, which stay together.
func deciles(risk []float64, inputs []int) (parts [][]int) {
	order := slices.Clone(inputs)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(risk[a], risk[b]) })
	const bins = 10
	from, n := 0, len(order)
	for b := range bins {
		to := max(from, (b+1)*n/bins)
		for to > from && to < n && risk[order[to]] == risk[order[to-1]] {
			to++
		}
		if to > from {
			parts = append(parts, order[from:to])
		}
		from = to
	}
	return parts
}
