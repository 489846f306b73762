package calibrate

import (
	"slices"
	"strconv"

	"github.com/ckd-project/ckd/drift"
	"github.com/ckd-project/ckd/policy"
)

// referenceClasses is how many classes a reference has at most: as many as have
// metrics of their own unless the daemon is told otherwise, the critical ones first.
const referenceClasses = 32

// reference is what live inputs are compared with; nil where the table has no
// vectors.
func (r *run) reference(p *policy.Policy) *drift.Reference {
	t := r.table
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
		c.Predicted = rounded(c.Predicted)
		for level := range drift.Levels {
			c.Epistemic[level], c.Skewness[level] = rounded(c.Epistemic[level]), rounded(c.Skewness[level])
		}
	}
	return ref
}

// referred is the classes of a reference, in the policy's order.
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

// largest value that is told: skewness of concentrations near 0 has no bound.
const largest = 1e6

// rounded to six digits: the file is for people too.
func rounded(x float64) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(min(x, largest), 'g', 6, 64), 64)
	if err != nil {
		return x // which cannot be: the text is a number's
	}
	return y
}
