package triage

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
)

// TestCalibratedFallback checks the bounds of the calibration's fallback share against quantiles counted by hand.
func TestCalibratedFallback(t *testing.T) {
	t.Parallel()
	// skewness returns quantiles of which the given number is over the threshold of 0.3.
	skewness := func(over int) []float64 {
		q := make([]float64, policy.Levels)
		for i := range q {
			if i >= len(q)-over {
				q[i] = 1
			}
		}
		return q
	}
	classes := []policy.ClassReference{{Class: 0, Skewness: skewness(65)}, {Class: 1, Skewness: skewness(17)}, {Class: 2, Skewness: skewness(9)}}
	for name, c := range map[string]struct {
		gate      policy.Gate
		critical  []int
		reference []policy.ClassReference
		want      *pagestate.Bounds
	}{
		"one class":                 {policy.AnyCritical, []int{1}, classes, &pagestate.Bounds{Low: 16. / 64, High: 17. / 64}},
		"two classes":               {policy.AnyCritical, []int{1, 2}, classes, &pagestate.Bounds{Low: 16. / 64, High: 26. / 64}},
		"all inputs":                {policy.AnyCritical, []int{0, 1}, classes, &pagestate.Bounds{Low: 1, High: 1}},
		"a class without reference": {policy.AnyCritical, []int{1, 2}, classes[:2], nil},
		"no skewness is read":       {policy.Always, []int{1}, classes, nil},
	} {
		p := &policy.Policy{
			Gate: c.gate, Critical: c.critical, ReliabilityThreshold: 0.3,
			Calibration: &policy.Calibration{Reference: &policy.Reference{Classes: c.reference}},
		}
		if diff := cmp.Diff(c.want, calibratedFallback(p)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
