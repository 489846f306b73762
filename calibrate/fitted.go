package calibrate

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/calibrate/internal/riskfit"
)

// fit returns the sample with a guard and the risk, which are learned from a part before rules are
// compared, and the model of risk; nil for none. Risk rises with p_critical, so that the labels it was
// fitted to decide no comparison. The same part gives the same fit.
func (r *run) fit(p part) (*sample, *riskfit.Fit) {
	s := r.withGuard(p, r.guardShare())
	if r.table.Mean == nil { // without mean predictions there is nothing to fit
		return s, nil
	}
	inputs := p.inputs()
	labels, groups := make([]int, len(inputs)), make([]int, len(inputs))
	for at, i := range inputs {
		labels[at], groups[at] = r.label[i], r.group[i]
	}
	model := riskfit.New(r.table.Select(inputs), labels, riskfit.Options{Groups: groups, Seed: r.Seed, Prevalence: r.Prevalence})
	if model == nil {
		return s, nil
	}
	risk := riskfit.Risks(r.table, model.Risk)
	for i, v := range risk {
		if math.IsNaN(v) { // inputs called critical have none, and no rule looks at it
			risk[i] = 0
		}
	}
	return s.withRisk(risk), model
}

// tooFewForRisk says why no risk could be fitted to the part of a search.
func (s *search) tooFewForRisk() string {
	others := 0
	for i, inside := range s.part.holds {
		others += index(inside && !s.predictedCritical[i] && !s.critical[i])
	}
	return fmt.Sprintf("%d critical and %d non-critical inputs are called safe among those that it would be fitted to, expected %d or more of each",
		s.part.count(s.missed), others, riskfit.FewestMissed)
}

// guardShare returns the share of inputs above the guard, which is never more than may be deferred.
func (r *run) guardShare() float64 {
	share := r.Guard
	if c := r.deferrableCoverage(); c > 0 {
		share = min(share, 1-c)
	}
	return max(share, 0)
}
