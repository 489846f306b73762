package calibrate

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/calibrate/internal/riskfit"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// CostPoint says what a threshold on the risk costs, in reviews, where a miss costs Ratio reviews.
type CostPoint struct {
	Ratio     float64 `json:"ratio"`
	Threshold float64 `json:"threshold"` // 1/Ratio
	Inputs    int     `json:"inputs"`
	Deferred  int     `json:"deferred"`
	Missed    int     `json:"missed"`
	// CostPer1000 is (Deferred + Ratio*Missed) per 1,000 inputs. WithoutDeferral is the same where
	// nothing is deferred.
	CostPer1000     float64 `json:"cost_per_1000"`
	WithoutDeferral float64 `json:"without_deferral_per_1000"`
}

// costRatios are those that the curve has beside the one asked for.
var costRatios = []float64{5, 10, 20, 50, 100, 200, 500, 1000}

// forCost defers an input called safe when its risk is above one over the cost ratio. The model is
// fitted to all inputs; the curve and the expected figures are of held-out folds.
func (r *run) forCost() error {
	ratio := r.Objective.CostRatio
	s, err := r.search(r.all(), r.Scope, 0)
	if err != nil {
		return err
	}
	if s.model == nil {
		return errNoRisk(s)
	}
	outer := r.foldsOf(r.all(), folds, newRand(r.Seed, streamOuter))
	ratios := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(costRatios), ratio))))
	at := make([]eval.Selective, len(ratios))
	one := candidate{gate: policy.Never, reliability: r.reliability(), primary: riskScore, fallback: riskScore, guarded: r.Guard > 0}
	thresholdOf := func(ratio float64) thresholds { return thresholds{1 / ratio, 1 / ratio} }
	for _, out := range outer {
		s, err := r.search(r.all().without(out), r.Scope, 0)
		if err != nil {
			return err
		}
		if s.model == nil {
			return errNoRisk(s)
		}
		for i, ratio := range ratios {
			addTo(&at[i], s.final.count(out, r.Scope, one, thresholdOf(ratio)))
		}
	}
	for i, ratio := range ratios {
		deferred := at[i].Inputs - at[i].Retained
		r.result.Costs = append(r.result.Costs, CostPoint{
			Ratio: ratio, Threshold: 1 / ratio, Inputs: at[i].Inputs, Deferred: deferred, Missed: at[i].Missed,
			CostPer1000:     1000 * (float64(deferred) + ratio*float64(at[i].Missed)) / float64(at[i].Inputs),
			WithoutDeferral: 1000 * ratio * float64(r.result.Missed) / float64(r.n),
		})
	}
	r.result.ComparisonBasis = "held-out folds of the recording: the risk was fitted without the inputs it is measured on"
	own := r.row("calibrated", r.Scope, at[slices.Index(ratios, ratio)], r.result.Critical)
	own.Calibrated = true
	r.result.Comparison = append(r.result.Comparison, r.row("no deferral", policy.AllInputs, r.everything(r.all()), r.result.Critical), own)
	r.result.expect(at[slices.Index(ratios, ratio)], r.result.Critical)
	r.choose(s, one, thresholdOf(ratio))
	r.result.why("An input called safe is deferred when its risk is above 1/%v: reviewing it then costs less than leaving it, if a miss "+
		"costs as much as %v reviews and a review finds the miss.", ratio, ratio)
	return nil
}

// errNoRisk says why nothing can be weighed by its risk.
func errNoRisk(s *search) error {
	among := ""
	if s.part.n < s.n {
		among = " with a fifth of the inputs held out"
	}
	return fmt.Errorf("a cost ratio needs the risk of each input, and %d critical inputs called safe are too few to fit it%s: expected %d or more",
		s.missedInputs(), among, riskfit.FewestMissed)
}

// missedInputs counts the critical inputs of the part that are called safe.
func (s *search) missedInputs() (n int) {
	for i, in := range s.part.of {
		n += index(in && s.missed[i])
	}
	return n
}
