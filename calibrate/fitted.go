package calibrate

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/calibrate/internal/riskfit"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// fitted holds what is learned from a part before any rule is compared: the guard, and the model of
// the risk.
type fitted struct {
	// model is nil where too few critical inputs are called safe.
	model *riskfit.Fit
	// heldOut has the risk of each input of the part by a model that was fitted without it: by these
	// risks rules are compared. final has the risk of every input by the model of the whole part, as
	// a policy will have it.
	heldOut, final *sample
}

// fit fits a guard and the risk to a part. The same part gives the same fit.
func (r *run) fit(p part) (*fitted, error) {
	guarded := r.withGuard(p, r.guardShare())
	f := &fitted{heldOut: guarded, final: guarded}
	if r.table.Mean == nil { // without mean predictions there is nothing to fit
		return f, nil
	}
	inputs := p.inputs()
	labels := make([]int, len(inputs))
	var groups []int
	for at, i := range inputs {
		labels[at] = r.label[i]
		if r.group != nil {
			groups = append(groups, r.group[i])
		}
	}
	model, err := riskfit.New(r.table.Select(inputs), labels, riskfit.Options{Groups: groups, Seed: r.Seed, Prevalence: r.Prevalence})
	if err != nil || model.Risk == nil {
		return f, err
	}
	f.model = model
	own := make([]float64, r.n)
	for at, i := range inputs {
		own[i] = model.Held[at]
	}
	f.heldOut, f.final = guarded.withRisk(seen(own)), guarded.withRisk(f.riskOf(r.table))
	return f, nil
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

// riskOf returns the risk of each input of a table by the model of the whole part.
func (f *fitted) riskOf(t *eval.Table) []float64 { return seen(riskfit.Risk(t, &f.model.Risk.Model)) }

// seen puts 0 in the place of risks that are not a number: inputs called critical have none, and no
// rule looks at it.
func seen(risk []float64) []float64 {
	for i, v := range risk {
		if math.IsNaN(v) {
			risk[i] = 0
		}
	}
	return risk
}

// policy returns the risk as a policy holds it; nil where there is no model.
func (f *fitted) policy() *policy.Risk {
	if f.model == nil {
		return nil
	}
	return f.model.Risk
}

// guardShare returns the share of inputs above the guard, which is never more than may be deferred.
func (r *run) guardShare() float64 {
	share := r.Guard
	if c := r.deferrableCoverage(); c > 0 {
		share = min(share, 1-c)
	}
	return max(share, 0)
}
