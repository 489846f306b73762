package calibrate

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/eval"
)

// CostPoint says what a threshold on the risk costs, in reviews, where a miss costs Ratio reviews.
type CostPoint struct {
	Ratio     float64 `json:"ratio"`
	Threshold float64 `json:"threshold"` // 1/Ratio
	Inputs    int     `json:"inputs"`
	Deferred  int     `json:"deferred"`
	Missed    int     `json:"missed"`
	// DeferredPer1000 and MissedPer1000 are the same counts per 1,000 inputs. With Options.Prevalence
	// they are of inputs of which that share is critical.
	DeferredPer1000 float64 `json:"deferred_per_1000"`
	MissedPer1000   float64 `json:"missed_per_1000"`
	// CostPer1000 is DeferredPer1000 + Ratio*MissedPer1000. WithoutDeferral is the same where nothing
	// is deferred.
	CostPer1000     float64 `json:"cost_per_1000"`
	WithoutDeferral float64 `json:"without_deferral_per_1000"`
}

// costRatios are those that the curve has beside the one asked for.
var costRatios = []float64{5, 10, 20, 50, 100, 200, 500, 1000}

// forCost defers an input called safe when its risk is above one over the cost ratio. The model is
// fitted to all inputs; the curve and the expected figures are of held-out folds.
func (r *run) forCost() (*choice, error) {
	rule := single(riskScore)
	rule.guarded = r.Guard > 0
	fit := func(p part) (func(ratio float64) *choice, error) {
		s, err := r.search(p, r.Scope)
		if err == nil && s.model == nil {
			err = errNoRisk(s)
		}
		return func(ratio float64) *choice { return &choice{s, rule, thresholds{1 / ratio, 1 / ratio}} }, err
	}
	ratio := r.Objective.CostRatio
	ratios := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(costRatios), ratio))))
	byRatio := make([]*heldOutRule, len(ratios))
	for i := range ratios {
		byRatio[i] = r.newHeldOutRule()
	}
	outer := r.foldsOf(r.all(), folds, newRand(r.Seed, streamOuter))
	r.total = len(outer) + 1
	all, err := fit(r.all())
	if err != nil {
		return nil, err
	}
	for _, out := range outer {
		at, err := fit(r.all().without(out))
		if err != nil {
			return nil, err
		}
		for i, ratio := range ratios {
			byRatio[i].add(at(ratio), out)
		}
		r.traceBoth(at(ratio), out)
	}
	for i, ratio := range ratios {
		r.report.Costs = append(r.report.Costs, r.costPoint(ratio, r.selective(r.all(), byRatio[i].retained)))
	}
	r.report.ComparisonBasis = "inputs that were not used to set the rule, each in its turn"
	r.compareNone(r.all())
	held := r.newHeldOut()
	held.own = byRatio[slices.Index(ratios, ratio)]
	held.compare(r.Scope)
	r.expect(held)
	c := all(ratio)
	r.choose(c)
	r.judge(c, r.all(), held.own.retained)
	r.report.why("An input called safe is deferred when its risk is above 1/%v: reviewing it then costs less than leaving it, if a miss "+
		"costs as much as %v reviews and a review finds the miss.", ratio, ratio)
	return c, nil
}

// costPoint returns the cost of what a threshold of 1/ratio retains of all inputs.
func (r *run) costPoint(ratio float64, got eval.Selective) CostPoint {
	c := CostPoint{Ratio: ratio, Threshold: 1 / ratio, Inputs: got.Inputs, Deferred: got.Inputs - got.Retained, Missed: got.Missed}
	w := r.served(r.all())
	c.DeferredPer1000 = w.per1000(count(r.critical)-got.Critical, c.Deferred-(count(r.critical)-got.Critical))
	c.MissedPer1000 = w.per1000(c.Missed, 0)
	c.CostPer1000 = c.DeferredPer1000 + ratio*c.MissedPer1000
	c.WithoutDeferral = ratio * w.per1000(count(r.missed), 0)
	return c
}

// served weighs the inputs of a recording so that they are mixed as where the model serves.
type served struct {
	inputs           int
	critical, others float64 // weight of an input that is, and is not, truly critical
}

// served returns the weights of a part that Options.Prevalence stands for: 1 and 1 without it.
func (r *run) served(p part) served {
	w := served{p.n, 1, 1}
	if share := float64(p.count(r.critical)) / float64(p.n); r.Prevalence > 0 && share > 0 && share < 1 {
		w.critical, w.others = r.Prevalence/share, (1-r.Prevalence)/(1-share)
	}
	return w
}

// per1000 returns how many of 1,000 inputs some of the recording's are, given how many of these are
// critical.
func (w served) per1000(critical, others int) float64 {
	return 1000 * (w.critical*float64(critical) + w.others*float64(others)) / float64(w.inputs)
}

// noteServed notes what a prevalence changes in the figures, which are of a part of the recording.
func (r *run) noteServed(p part, got eval.Selective) {
	if r.Prevalence == 0 {
		return
	}
	w := r.served(p)
	r.report.note("coverage, reviews and all counts are of the recording, of which %.3g%% of the inputs are critical; where %.3g%% are, "+
		"about %.0f of 1,000 inputs are deferred and %.2g missed, if critical inputs look the same there; critical miss rate and "+
		"critical FNR do not depend on the share", 100*float64(p.count(r.critical))/float64(p.n), 100*r.Prevalence,
		1000-w.per1000(got.Critical, got.Retained-got.Critical), w.per1000(got.Missed, 0))
}

// errNoRisk says why nothing can be weighed by its risk.
func errNoRisk(s *search) error {
	among := ""
	if s.part.n < s.n {
		among = " with a fifth of the inputs held out"
	}
	return fmt.Errorf("a cost ratio needs the risk of each input%s: %s", among, s.tooFewForRisk())
}
