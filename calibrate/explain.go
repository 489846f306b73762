package calibrate

import (
	"fmt"

	"github.com/ckd-project/ckd/policy"
)

// explainCoverage says why a rule was chosen for a coverage.
func (r *run) explainCoverage(chosen rule, compared int) {
	r.result.Why = append(r.result.Why,
		fmt.Sprintf("%s has the lowest critical FNR around coverage %v of the %d rules compared, by %d times repeated %d-fold "+
			"cross-validation on all %d inputs.", r.inWords(chosen), r.Objective.Coverage, compared, repeats, folds, r.n),
		"Its expected figures come from an outer cross-validation, in which choosing and fitting are repeated without the "+
			"inputs that are then decided.")
	r.explainReach()
}

// explainParts says why a rule was chosen by a part of the recording.
func (r *run) explainParts(chosen rule, compared int, chooses, certifies part, merit string) {
	r.result.Why = append(r.result.Why,
		fmt.Sprintf("Of the %d rules compared, %s %s, by %d times repeated %d-fold cross-validation on %d inputs (%d critical).",
			compared, r.inWords(chosen), merit, repeats, folds, chooses.n, r.criticalIn(chooses)),
		fmt.Sprintf("The other %d inputs (%d critical) chose nothing but the point on its path; the expected coverage is of them.",
			certifies.n, r.criticalIn(certifies)))
	if r.result.Certificate != nil {
		r.result.Why = append(r.result.Why, oneAttempt)
	}
	r.explainReach()
}

// explainReach says where the scope limits what coverage can be had.
func (r *run) explainReach() {
	all := r.all()
	f := r.fixedOf(all, r.Scope, r.hard())
	kept := int(f.retained.retained)
	if r.Scope == policy.PredictedSafe {
		r.result.Why = append(r.result.Why, fmt.Sprintf("In scope %s the %.1f%% of the inputs that are predicted critical are "+
			"never deferred.", r.Scope, 100*float64(count(r.predictedCritical))/float64(r.n)))
	}
	if c := r.Objective.Coverage; c > 0 {
		least, most := float64(kept)/float64(r.n), 1-float64(f.inputs-kept)/float64(r.n)
		if c < least {
			r.result.Notes = append(r.result.Notes, fmt.Sprintf("coverage %v cannot be had: %.3g of the inputs are retained "+
				"whatever their score", c, least))
		}
		if c > most {
			r.result.Notes = append(r.result.Notes, fmt.Sprintf("coverage %v cannot be had: %.3g of the inputs are deferred "+
				"whatever their score", c, 1-most))
		}
	}
}

// inWords names a rule.
func (r *run) inWords(chosen rule) string {
	if chosen.gate == policy.Never {
		return fmt.Sprintf("the score %s alone", chosen.primary)
	}
	return fmt.Sprintf("gate %s with primary score %s and fallback score %s", chosen.gate, chosen.primary, chosen.fallback)
}

// oneAttempt is said of every certificate that is not void.
const oneAttempt = "The certificate is for this one attempt: to calibrate again on the same recording in another way voids it."
