package calibrate

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/calibrate/internal/riskfit"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// fit returns the sample with a guard and the risk, which are learned from a part before rules are
// compared, and the model of risk; nil for none. Risk rises with p_critical, so that the labels it was
// fitted to decide no comparison. The same part gives the same fit.
func (r *run) fit(p part) (*sample, *riskfit.Fit) {
	s, inputs := *r.sample, p.inputs()
	s.guard = math.Inf(1)
	if share := r.guardShare(); share > 0 {
		mi := make([]float64, len(inputs))
		for at, i := range inputs {
			mi[at] = r.table.Scores[decomp.MI][i]
		}
		s.guard = eval.Threshold(mi, 1-share)
	}
	if r.table.Mean == nil { // without mean predictions there is nothing to fit
		return &s, nil
	}
	labels, groups := make([]int, len(inputs)), make([]int, len(inputs))
	for at, i := range inputs {
		labels[at], groups[at] = r.label[i], r.group[i]
	}
	model := riskfit.New(r.table.Select(inputs), labels, riskfit.Options{Groups: groups, Seed: r.Seed, Prevalence: r.Prevalence})
	if model == nil {
		return &s, nil
	}
	s.risk = riskfit.Risks(r.table, model.Risk)
	s.order[riskScore] = ascending(s.risk)
	return &s, model
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

// guardShare returns the share of inputs above the guard, which is never more than the objective lets
// be deferred: critical calls may use up part of a budget of reviews.
func (r *run) guardShare() float64 {
	most := 1.0
	switch {
	case r.Objective.Coverage > 0:
		most = 1 - r.Objective.Coverage
	case r.Objective.Reviews > 0:
		most = max(0, r.Objective.Reviews-float64(count(r.predictedCritical))/float64(r.n))
	}
	return min(r.Guard, most)
}
