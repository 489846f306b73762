package calibrate

import (
	"fmt"
	"slices"

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
func forCost(r *run, to *reporter) (*choice, error) {
	on := func(p part) (*search, error) {
		s, err := r.search(p, r.Scope, 0)
		if err == nil && s.model == nil {
			return nil, errNoRisk(s)
		}
		return s, err
	}
	s, err := on(r.all())
	if err != nil {
		return nil, err
	}
	ratio := r.Objective.CostRatio
	ratios := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(costRatios), ratio))))
	held := make([]eval.Selective, len(ratios)) // out of folds
	retained := make([]bool, r.n)               // at the ratio asked for
	one := candidate{gate: policy.Never, reliability: r.reliability(), primary: riskScore, fallback: riskScore, guarded: r.Guard > 0}
	at := func(s *search, ratio float64) *choice { return &choice{s, one, thresholds{1 / ratio, 1 / ratio}} }
	for _, out := range r.foldsOf(r.all(), folds, newRand(r.Seed, streamOuter)) {
		s, err := on(r.all().without(out))
		if err != nil {
			return nil, err
		}
		for i, ratio := range ratios {
			addTo(&held[i], at(s, ratio).selective(out))
		}
		for i, kept := range at(s, ratio).retained(out) {
			retained[i] = retained[i] || kept
		}
	}
	for i, ratio := range ratios {
		to.Costs = append(to.Costs, newCostPoint(ratio, held[i], to.Missed))
	}
	to.ComparisonBasis = "held-out folds of the recording: the risk was fitted without the inputs it is measured on"
	to.compareNone()
	own := to.row("calibrated", r.Scope, r.all(), retained)
	own.Calibrated = true
	to.compare(own)
	to.expect(r.all(), retained)
	to.byClass = r.classLines(retained)
	c := at(s, ratio)
	to.choose(c)
	to.why("An input called safe is deferred when its risk is above 1/%v: reviewing it then costs less than leaving it, if a miss "+
		"costs as much as %v reviews and a review finds the miss.", ratio, ratio)
	return c, nil
}

// newCostPoint returns the cost of what a threshold of 1/ratio retains of inputs of which so many are
// missed without deferral.
func newCostPoint(ratio float64, got eval.Selective, missed int) CostPoint {
	c := CostPoint{Ratio: ratio, Threshold: 1 / ratio, Inputs: got.Inputs, Deferred: got.Inputs - got.Retained, Missed: got.Missed}
	c.CostPer1000 = 1000 * (float64(c.Deferred) + ratio*float64(c.Missed)) / float64(c.Inputs)
	c.WithoutDeferral = 1000 * ratio * float64(missed) / float64(c.Inputs)
	return c
}

// errNoRisk says why nothing can be weighed by its risk.
func errNoRisk(s *search) error {
	among := ""
	if s.part.n < s.n {
		among = " with a fifth of the inputs held out"
	}
	return fmt.Errorf("a cost ratio needs the risk of each input%s: %s", among, s.tooFewForRisk())
}
