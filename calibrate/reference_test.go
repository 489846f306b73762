package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// TestReference checks the reference that calibration writes for a real recording. The expected
// numbers come from numpy 1.24: quantile() of C_k and skewness by the paper's definitions (sample
// variance, in float64), to six digits, and the shares of argmax.
func TestReference(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "lowrank")
	found := calibrated(t, table, labels, options(t, Objective{Coverage: 0.8}, policy.AllInputs, 1))
	ref := found.Policy.Calibration.Reference
	if ref == nil || ref.Inputs != 2126 || len(ref.Classes) != 3 {
		t.Fatalf("reference %+v, want 3 classes of 2126 inputs", ref)
	}
	levels := [...]int{0, 1, 16, 32, 48, 63, 64}
	for k, want := range []struct {
		predicted           float64
		epistemic, skewness [len(levels)]float64
	}{
		{
			0.793509,
			[...]float64{0, 0, 2.36848e-16, 5.08185e-08, 0.00154416, 0.115319, 0.22541},
			[...]float64{0, 0, 2.81687e-08, 0.000290328, 0.0431934, 3.67214, 8.91155},
		},
		{
			0.12841,
			[...]float64{1.77576e-70, 9.28774e-45, 1.7761e-08, 5.75669e-05, 0.00547322, 0.0795715, 0.201628},
			[...]float64{5.65721e-06, 0.00377934, 0.344591, 1.27326, 3.12965, 8.75399, 9.01534},
		},
		{
			0.0780809,
			[...]float64{0, 4.80682e-59, 1.75092e-12, 1.90065e-06, 0.000546923, 0.0889471, 0.231625},
			[...]float64{0, 0.00023197, 0.541759, 1.71304, 3.8746, 8.94138, 9.02222},
		},
	} {
		got := ref.Classes[k]
		if got.Class != k || got.Predicted != want.predicted {
			t.Errorf("class %d has share %v, want class %d with %v", got.Class, got.Predicted, k, want.predicted)
		}
		for i, level := range levels {
			// numpy computes in another order: the last digits differ, and all digits of values
			// that are next to nothing.
			near := func(got, want float64) bool { return math.Abs(got-want) <= 1.1e-5*want+1e-15 }
			if !near(got.Epistemic[level], want.epistemic[i]) {
				t.Errorf("class %d: quantile %d/64 of C_k is %v, want %v", k, level, got.Epistemic[level], want.epistemic[i])
			}
			if !near(got.Skewness[level], want.skewness[i]) {
				t.Errorf("class %d: quantile %d/64 of skewness is %v, want %v", k, level, got.Skewness[level], want.skewness[i])
			}
		}
	}
}

// TestReferenceClasses checks that a reference has at most 32 classes, critical ones first, each
// group in the order of the policy.
func TestReferenceClasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		classes, criticalFrom, critical int
		want                            []int
	}{
		{5, 3, 1, span(0, 5)},
		{32, 30, 2, span(0, 32)},
		{40, 36, 4, append(span(0, 28), span(36, 40)...)},
		{100, 50, 33, span(50, 82)},
		{100, 0, 0, span(0, 32)},
	} {
		table := madeUp(c.classes, 20)
		table.C[c.criticalFrom] = math.MaxFloat64 // of concentrations near 0
		p := &policy.Policy{Critical: span(c.criticalFrom, c.criticalFrom+c.critical)}
		ref := reference(table, p)
		var got []int
		for _, class := range ref.Classes {
			got = append(got, class.Class)
			k := class.Class
			predicted, largestC := 0.0, 0.0
			for i := range table.Inputs {
				if table.Predicted[i] == k {
					predicted++
				}
				largestC = max(largestC, table.C[i*table.K+k])
			}
			if math.Abs(class.Predicted-predicted/20) > 1e-6 || math.Abs(class.Epistemic[policy.Levels-1]-min(largestC, 1e6)) > 1e-5*largestC {
				t.Errorf("class %d: share %v, C_k up to %v, want %v, %v", k, class.Predicted, class.Epistemic[policy.Levels-1], predicted/20, largestC)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("of %d classes, %d critical from %d: %v, want %v", c.classes, c.critical, c.criticalFrom, got, c.want)
		}
	}
	if ref := reference(&eval.Table{Inputs: 2, K: 2}, &policy.Policy{}); ref != nil {
		t.Errorf("without vectors: %+v", ref)
	}
}

// span returns the numbers from one up to another, without the latter.
func span(from, to int) (all []int) {
	for k := from; k < to; k++ {
		all = append(all, k)
	}
	return all
}

// madeUp returns a table of values over many orders of magnitude.
func madeUp(classes, inputs int) *eval.Table {
	rng := rand.New(rand.NewPCG(1, uint64(classes)))
	table := &eval.Table{Inputs: inputs, K: classes}
	for range inputs {
		table.Predicted = append(table.Predicted, rng.IntN(classes))
		for range classes {
			table.C = append(table.C, math.Exp(-5+4*rng.NormFloat64()))
			table.Skewness = append(table.Skewness, math.Exp(rng.NormFloat64()))
		}
	}
	return table
}
