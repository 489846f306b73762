package calibrate

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// fit returns the sample with a guard and the risk, which are learned from a part before rules are
// compared, and the model of risk; nil for none. Risk rises with p_critical, so that the labels it was
// fitted to decide no comparison. The same part gives the same fit.
func (r *run) fit(p part) (*sample, *riskModel) {
	s := *r.sample
	s.guard = math.Inf(1)
	if share := r.guardShare(); share > 0 {
		mi := make([]float64, 0, p.n)
		for _, i := range p.inputs() {
			mi = append(mi, r.table.Scores[decomp.MI][i])
		}
		s.guard = eval.Threshold(mi, 1-share)
	}
	if r.table.Mean == nil { // without mean predictions there is nothing to fit
		return &s, nil
	}
	model, risks := fitRisk(r.sample, p, r.Seed, r.Prevalence)
	s.risk, s.order[riskScore] = risks, ascending(risks)
	return &s, model
}

// tooFewForRisk says why no risk could be fitted to the part of a search.
func (s *search) tooFewForRisk() string {
	others := 0
	for i, inside := range s.part.holds {
		others += index(inside && !s.predictedCritical[i] && !s.critical[i])
	}
	return fmt.Sprintf("%d critical and %d non-critical inputs are called safe among those that it would be fitted to, expected %d or more of each",
		s.part.count(s.missed), others, fewestMissed)
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
