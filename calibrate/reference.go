package calibrate

import (
	"slices"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/policy"
)

// referenceClasses is the largest number of classes in a reference, critical ones first. It equals
// the daemon's default for classes with metrics of their own.
const referenceClasses = 32

// reference returns what live inputs are compared with, or nil if the table has no vectors.
func reference(t *eval.Table, p *policy.Policy) *policy.Reference {
	if len(t.C) == 0 {
		return nil
	}
	seen := drift.Sample{Classes: referred(p.Critical, t.K)}
	for i := range t.Inputs {
		at := i * t.K
		seen.Add(t.C[at:at+t.K], t.Skewness[at:at+t.K], t.Predicted[i])
	}
	ref := seen.Reference()
	for i := range ref.Classes {
		c := &ref.Classes[i]
		c.Predicted = sixDigits(c.Predicted)
		for level := range policy.Levels {
			c.Epistemic[level], c.Skewness[level] = sixDigits(min(c.Epistemic[level], largest)), sixDigits(min(c.Skewness[level], largest))
		}
	}
	return ref
}

// referred returns the classes of a reference, in the policy's order.
func referred(critical []int, classes int) []int {
	chosen := slices.Clone(critical[:min(referenceClasses, len(critical))])
	for k := 0; k < classes && len(chosen) < referenceClasses; k++ {
		if !slices.Contains(critical, k) {
			chosen = append(chosen, k)
		}
	}
	slices.Sort(chosen)
	return chosen
}

// largest is the largest value that a reference tells, since the skewness of concentrations near 0
// has no bound.
const largest = 1e6
