package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/risk"
)

// world draws a table of K classes, of which the last two, or with two classes the last, are critical.
// The log-odds of being truly critical are -1 + 0.8 z + more v, where z is the log-odds of p_critical
// and v varies with the C of the predicted class alone.
func world(n, k int, more float64, seed uint64) (*eval.Table, []int) {
	rng := rand.New(rand.NewPCG(seed, 4))
	t := &eval.Table{Inputs: n, K: k, Spec: decomp.Spec{Classes: k}, Saturated: make([]bool, n), Degenerate: make([]bool, n)}
	for c := range k {
		if c >= max(1, k-2) {
			t.Spec.Critical = append(t.Spec.Critical, c)
		} else {
			t.Spec.Safe = append(t.Spec.Safe, c)
		}
	}
	labels := make([]int, n)
	for i := range n {
		z, v := -1.5+1.5*rng.NormFloat64(), rng.NormFloat64()
		p := risk.Logistic(z)
		mean, c := make([]float64, k), make([]float64, k)
		for _, s := range [][]int{t.Spec.Critical, t.Spec.Safe} {
			left := p
			if s[0] == 0 {
				left = 1 - p
			}
			mean[s[0]] = left
			for _, class := range s[1:] {
				mean[class] = left * 0.3 * rng.Float64() / float64(len(s))
				mean[s[0]] -= mean[class]
			}
		}
		c[0] = mean[0] * math.Exp(v-3)
		t.Mean, t.C = append(t.Mean, mean...), append(t.C, c...)
		best := 0
		for class := range mean {
			if mean[class] > mean[best] {
				best = class
			}
		}
		t.Predicted = append(t.Predicted, best)
		if rng.Float64() < risk.Logistic(-1+0.8*z+more*v) {
			labels[i] = t.Spec.Critical[0]
		}
	}
	return t, labels
}

// fitTo fits to all inputs of a table, of which each of the given number in a row are one group; 0 for no
// groups.
func fitTo(t *testing.T, table *eval.Table, labels []int, group int, prevalence float64) (*riskModel, []float64) {
	t.Helper()
	s := newSample(table, labels, policy.HandleByScore, policy.HandleByScore)
	if group > 0 {
		groups := make([]int, table.Inputs)
		for i := range groups {
			groups[i] = 7 + i/group
		}
		s.grouping = newGrouping(groups, table.Inputs)
	}
	m, risks := fitRisk(s, s.all(), 3, prevalence)
	if !slices.IsSorted(m.Quantiles) || len(m.Quantiles) != 65 {
		t.Errorf("quantiles %v", m.Quantiles)
	}
	return m, risks
}

func TestTwoNumbersAreFound(t *testing.T) {
	table, labels := world(20000, 2, 0, 1)
	f, risks := fitTo(t, table, labels, 0, 0)
	m := f.CalledSafe
	// The standard errors are about 0.05 and 0.02.
	if math.Abs(m.Intercept+1) > 0.2 || math.Abs(m.Slope-0.8) > 0.08 {
		t.Errorf("%+v, expected -1 and 0.8", m)
	}
	if c := f.CalledCritical; math.Abs(c.Intercept+1) > 0.2 || math.Abs(c.Slope-0.8) > 0.15 {
		t.Errorf("called critical: %+v, expected -1 and 0.8", c)
	}
	for i, v := range risks {
		if (v == 0) != (table.Predicted[i] == 1) {
			t.Fatalf("input %d, predicted %d: risk %v", i, table.Predicted[i], v)
		}
	}
}

// TestRiskSeparated fits where p_critical tells truly critical inputs from others without an error,
// where it is lower for critical ones, and where nothing varies.
func TestRiskSeparated(t *testing.T) {
	table, labels := world(400, 3, 0, 1)
	p := func(i int) float64 { return table.Mean[i*3+1] + table.Mean[i*3+2] }
	for i := range labels {
		labels[i] = 0
		if p(i) > 0.3 {
			labels[i] = 1
		}
	}
	f, _ := fitTo(t, table, labels, 0, 0)
	if w := f.CalledSafe.Slope; !(w > 1) || math.IsInf(w, 0) {
		t.Errorf("separated: weight %v", w)
	}
	for i := range labels {
		labels[i] = 1 - labels[i]
	}
	if f, _ := fitTo(t, table, labels, 0, 0); f.CalledSafe.Slope != 0 || f.CalledSafe.Intercept > 3 {
		t.Errorf("falls: %+v, expected no slope", f.CalledSafe)
	}
	for i := range labels {
		copy(table.Mean[i*3:], []float64{0.8, 0.1, 0.1})
		table.C[i*3] = 0.1
		table.Predicted[i], labels[i] = 0, i%4/3
	}
	f, risks := fitTo(t, table, labels, 0, 0)
	if math.Abs(risks[0]-0.25) > 1e-6 {
		t.Errorf("constant: %+v", f.Risk)
	}
}

func TestRiskPrevalence(t *testing.T) {
	table, labels := world(4000, 4, 0.5, 1)
	was, _ := fitTo(t, table, labels, 0, 0)
	shifted, _ := fitTo(t, table, labels, 0, 0.02)
	shift := logit(0.02) - logit(was.Prevalence)
	if math.Abs(shifted.CalledSafe.Intercept-was.CalledSafe.Intercept-shift) > 1e-12 ||
		math.Abs(shifted.CalledCritical.Intercept-was.CalledCritical.Intercept-shift) > 1e-12 || shifted.Prevalence != 0.02 {
		t.Errorf("%+v, of %+v", shifted.Risk, was.Risk)
	}
	if diff := cmp.Diff(was.reliability, shifted.reliability); diff != "" {
		t.Errorf("reliability is of the recording (-want +got):\n%s", diff)
	}
	// With the weights of the shift the mean of the probabilities is the prevalence, about.
	mean := 0.0
	for i, q := range shifted.Quantiles[1:] {
		mean += (q + shifted.Quantiles[i]) / 2 / 64
	}
	if math.Abs(mean-0.02) > 0.006 {
		t.Errorf("the quantiles have mean %v, expected about 0.02", mean)
	}
}

func TestRiskByGroup(t *testing.T) {
	table, labels := world(1200, 5, 0.5, 1)
	a, risks := fitTo(t, table, labels, 5, 0)
	b, again := fitTo(t, table, labels, 5, 0)
	if !slices.Equal(risks, again) {
		t.Error("risks differ")
	}
	if diff := cmp.Diff(a, b, cmp.AllowUnexported(riskModel{}), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("two fits differ:\n%s", diff)
	}
	for _, b := range a.reliability.Bins {
		if low, high := binomial.Interval(b.Critical, b.Inputs, 0.95); b.Observed.Kind != intervalClustered || b.Observed.High-b.Observed.Low < high-low-1e-9 {
			t.Errorf("a bin with groups has %+v, expected an interval by group, no narrower than [%v, %v]", b.Observed, low, high)
		}
	}
}

// drawnRisk returns a problem whose log-odds are higher for critical inputs, all of them called safe, in
// groups.
func drawnRisk(n, groups int, seed uint64) *riskProblem {
	rng := rand.New(rand.NewPCG(seed, 2))
	s := &sample{n: n, critical: make([]bool, n)}
	r := &riskProblem{sample: s, logOdds: make([]float64, n), groups: groups}
	group := make([]int, n)
	for i := range n {
		group[i], s.critical[i] = i%groups, rng.Float64() < 0.2
		r.rows, r.logOdds[i] = append(r.rows, i), rng.NormFloat64()+float64(index(s.critical[i]))
		r.missed += index(s.critical[i])
	}
	s.missed, s.grouping, r.safe = s.critical, newGrouping(group, n), s.all()
	return r
}

// TestHeldOut checks that the log-odds of a fold do not depend on the outcomes in it.
func TestHeldOut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawnRisk(rapid.IntRange(150, 300).Draw(t, "rows"), rapid.IntRange(60, 300).Draw(t, "groups"), rapid.Uint64().Draw(t, "seed"))
		before := r.holdOut(1)
		out := r.foldsOf(r.safe, 10, newRand(1, streamRisk))[rapid.IntRange(0, 9).Draw(t, "out")]
		truth := slices.Clone(r.critical)
		for i, inside := range out.holds {
			r.critical[i] = truth[i] != inside
		}
		rest := r.line(r.safe.without(out), 0)
		for _, i := range out.inputs() {
			if got := rest.Intercept + rest.Slope*r.logOdds[i]; got != before[i] {
				t.Fatalf("input %d: %v, and %v with other outcomes in its fold", i, before[i], got)
			}
		}
	})
}

// TestMeanOf compares the standard error by group with that of the means of equal groups, and that of
// single rows with the textbook's.
func TestMeanOf(t *testing.T) {
	t.Parallel()
	r := drawnRisk(6, 3, 1)
	mean, se := r.meanOf([]float64{1, 2, 6, 3, 2, 4}) // of groups: 2, 2, 5; standard deviation sqrt(3)
	if math.Abs(mean-3) > 1e-12 || math.Abs(se-1) > 1e-12 {
		t.Errorf("%v ± %v, expected 3 ± 1", mean, se)
	}
	mean, se = drawnRisk(4, 4, 1).meanOf([]float64{0, 0, 4, 4})
	if want := math.Sqrt(16.0 / 3 / 4); mean != 2 || math.Abs(se-want) > 1e-12 {
		t.Errorf("%v ± %v, expected 2 ± %v", mean, se, want)
	}
}

// TestDeciles checks that bins cover all rows once, in order, and differ by one row at most, but for
// rows of one risk, which stay together.
func TestDeciles(t *testing.T) {
	for _, c := range []struct {
		n, tied int
		want    []int
	}{
		{0, 1, nil}, {3, 1, []int{1, 1, 1}}, {10, 1, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}, {25, 1, []int{2, 3, 2, 3, 2, 3, 2, 3, 2, 3}},
		{10, 3, []int{3, 3, 3, 1}}, {25, 4, []int{4, 4, 4, 4, 4, 4, 1}}, {7, 7, []int{7}},
	} {
		q := make([]float64, c.n)
		for i := range q {
			q[i] = float64(i / c.tied)
		}
		var sizes []int
		at := 0
		for _, part := range deciles(q, span(0, c.n)) {
			if part[0] != at {
				t.Errorf("%d rows: a bin begins at %d, expected %d", c.n, part[0], at)
			}
			at += len(part)
			sizes = append(sizes, len(part))
		}
		if diff := cmp.Diff(c.want, sizes); diff != "" || at != c.n {
			t.Errorf("%d rows: ends at %d, sizes (-want +got)\n%s", c.n, at, diff)
		}
	}
}

// TestReliabilityOfTheTruth measures risks that outcomes were drawn from, and such that are twice as
// far apart in log-odds.
func TestReliabilityOfTheTruth(t *testing.T) {
	const n = 4000
	rng := rand.New(rand.NewPCG(3, 3))
	r := drawnRisk(n, n, 3)
	r.missed = 0
	z, wide := make([]float64, n), make([]float64, n)
	for i := range n {
		z[i] = -2 + 1.5*rng.NormFloat64()
		wide[i] = -2 + 2*(z[i]+2)
		r.critical[i] = rng.Float64() < 1/(1+math.Exp(-z[i]))
		r.missed += index(r.critical[i])
	}
	good, bad := r.reliability(z), r.reliability(wide)
	holds := func(f Figure, v float64) bool {
		return f.Low <= v && v <= f.High && f.Low < f.Value && f.Value < f.High
	}
	if !holds(good.ObservedOverExpected, 1) || !holds(good.Slope, 1) {
		t.Errorf("the truth: %+v", good)
	}
	if holds(bad.Slope, 1) || !holds(bad.Slope, 0.5) || bad.Brier.Value < good.Brier.Value {
		t.Errorf("twice as far apart: %+v", bad)
	}
	inputs, critical, expected := 0, 0, 0.0
	for _, b := range good.Bins {
		inputs, critical, expected = inputs+b.Inputs, critical+b.Critical, expected+b.Risk*float64(b.Inputs)
	}
	if inputs != n || critical != good.Critical || math.Abs(expected-good.Expected) > 1e-6 {
		t.Errorf("bins have %d inputs, %d critical and %v expected, of %d, %d and %v", inputs, critical, expected, n, good.Critical, good.Expected)
	}
}
