package calibrate

import (
	"math"
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
	chosen := make([]bool, t.K)
	left := min(referenceClasses, t.K)
	for _, k := range p.Critical[:min(left, len(p.Critical))] {
		chosen[k] = true
		left--
	}
	ref := &drift.Reference{Inputs: t.Inputs}
	for k := range t.K {
		if !chosen[k] {
			if left == 0 {
				continue
			}
			left--
		}
		predicted := 0
		for _, class := range t.Predicted {
			if class == k {
				predicted++
			}
		}
		ref.Classes = append(ref.Classes, drift.ClassReference{
			Class: k, Predicted: rounded(float64(predicted) / float64(t.Inputs)),
			Epistemic: quantiles(t.C, k, t.K), Skewness: quantiles(t.Skewness, k, t.K),
		})
	}
	return ref
}

// quantiles of one class, to six digits: the file is for people too.
func quantiles(of []float64, k, classes int) drift.Quantiles {
	values := make([]float64, 0, len(of)/classes)
	for at := k; at < len(of); at += classes {
		values = append(values, min(of[at], largest))
	}
	q := drift.NewQuantiles(values)
	for i, x := range q {
		q[i] = rounded(x)
	}
	return q
}

// largest value that is told: skewness of concentrations near 0 has no bound.
const largest = 1e6

func rounded(x float64) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	if err != nil || math.IsInf(y, 0) {
		return x
	}
	return y
}
