package riskfit_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/calibrate/internal/riskfit"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy/risk"
)

// world draws a table of K classes, of which the last two, or with two classes the last, are critical.
// The log-odds of being truly critical are -1 + 0.8 z + more v, where z is the log-odds of p_critical
// and v varies with the C of the predicted class alone.
func world(n, k int, more float64, seed uint64) (*eval.Table, []int) {
	rng := rand.New(rand.NewPCG(seed, 4))
	t := &eval.Table{Inputs: n, K: k, Spec: decomp.Spec{Classes: k}}
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

func fit(t *testing.T, table *eval.Table, labels []int, o riskfit.Options) *riskfit.Fit {
	t.Helper()
	f := riskfit.New(table, labels, o)
	if f != nil {
		if !slices.IsSorted(f.Risk.Quantiles) || len(f.Risk.Quantiles) != 65 {
			t.Errorf("quantiles %v", f.Risk.Quantiles)
		}
	}
	return f
}

func TestTwoNumbersAreFound(t *testing.T) {
	table, labels := world(20000, 2, 0, 1)
	f := fit(t, table, labels, riskfit.Options{})
	m := f.Risk.CalledSafe
	// The standard errors are about 0.05 and 0.02.
	if math.Abs(m.Intercept+1) > 0.2 || math.Abs(m.Slope-0.8) > 0.08 {
		t.Errorf("%+v, expected -1 and 0.8", m)
	}
	if c := f.Risk.CalledCritical; math.Abs(c.Intercept+1) > 0.2 || math.Abs(c.Slope-0.8) > 0.15 {
		t.Errorf("called critical: %+v, expected -1 and 0.8", c)
	}
	for i, v := range riskfit.Risks(table, f.Risk) {
		if (v == 0) != (table.Predicted[i] == 1) {
			t.Fatalf("input %d, predicted %d: risk %v", i, table.Predicted[i], v)
		}
	}
}

// TestSeparated fits where p_critical tells truly critical inputs from others without an error, and
// where nothing varies.
func TestSeparated(t *testing.T) {
	table, labels := world(400, 3, 0, 1)
	p := func(i int) float64 { return table.Mean[i*3+1] + table.Mean[i*3+2] }
	for i := range labels {
		labels[i] = 0
		if p(i) > 0.3 {
			labels[i] = 1
		}
	}
	f := fit(t, table, labels, riskfit.Options{})
	if w := f.Risk.CalledSafe.Slope; !(w > 1) || math.IsInf(w, 0) {
		t.Errorf("separated: weight %v", w)
	}
	for i := range labels {
		copy(table.Mean[i*3:], []float64{0.8, 0.1, 0.1})
		table.C[i*3] = 0.1
		table.Predicted[i], labels[i] = 0, i%4/3
	}
	f = fit(t, table, labels, riskfit.Options{})
	if math.Abs(riskfit.Risks(table, f.Risk)[0]-0.25) > 1e-6 {
		t.Errorf("constant: %+v", f.Risk)
	}
}

func TestPrevalence(t *testing.T) {
	table, labels := world(4000, 4, 0.5, 1)
	was := fit(t, table, labels, riskfit.Options{})
	shifted := fit(t, table, labels, riskfit.Options{Prevalence: 0.02})
	logit := func(p float64) float64 { return math.Log(p / (1 - p)) }
	shift := logit(0.02) - logit(was.Risk.Prevalence)
	if math.Abs(shifted.Risk.CalledSafe.Intercept-was.Risk.CalledSafe.Intercept-shift) > 1e-12 ||
		math.Abs(shifted.Risk.CalledCritical.Intercept-was.Risk.CalledCritical.Intercept-shift) > 1e-12 || shifted.Risk.Prevalence != 0.02 {
		t.Errorf("%+v, of %+v", shifted.Risk, was.Risk)
	}
	if diff := cmp.Diff(was.Reliability, shifted.Reliability); diff != "" {
		t.Errorf("reliability is of the recording (-want +got):\n%s", diff)
	}
	// With the weights of the shift the mean of the probabilities is the prevalence, about.
	mean := 0.0
	for i, q := range shifted.Risk.Quantiles[1:] {
		mean += (q + shifted.Risk.Quantiles[i]) / 2 / 64
	}
	if math.Abs(mean-0.02) > 0.006 {
		t.Errorf("the quantiles have mean %v, expected about 0.02", mean)
	}
}

func TestDeterministic(t *testing.T) {
	table, labels := world(1200, 5, 0.5, 1)
	groups := make([]int, table.Inputs)
	for i := range groups {
		groups[i] = 7 + i/5
	}
	a, b := fit(t, table, labels, riskfit.Options{Seed: 3, Groups: groups}), fit(t, table, labels, riskfit.Options{Seed: 3, Groups: groups})
	if diff := cmp.Diff(a, b, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("two fits differ:\n%s", diff)
	}
	for _, b := range a.Reliability.Bins {
		if low, high := binomial.Interval(b.Critical, b.Inputs, 0.95); b.Observed.Kind != riskfit.Clustered || b.Observed.High-b.Observed.Low < high-low-1e-9 {
			t.Errorf("a bin with groups has %+v, expected an interval by group, no narrower than [%v, %v]", b.Observed, low, high)
		}
	}
}
