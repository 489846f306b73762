package calibrate

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/eval"
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

// noteCoverage says where the policy does not retain of its own recording what was
// asked for, or is no better than none.
func (r *run) noteCoverage(own eval.Selective) {
	const off = 0.01
	got, asked := own.Coverage(), r.Objective.Coverage
	least, most := r.reach()
	if math.Abs(got-asked) > off+1/float64(r.n) && asked >= least && asked <= most {
		r.result.Notes = append(r.result.Notes, fmt.Sprintf("coverage %v cannot be had: the policy retains %.3g%% of the inputs that it "+
			"was calibrated on, because many share one score or are decided by something else; expect that rather than the figure "+
			"of the folds", asked, 100*got))
	}
	if without := r.everything().CriticalFNR(); own.CriticalFNR() > without {
		r.result.Notes = append(r.result.Notes, fmt.Sprintf("the policy is worse than none: of the critical inputs that it retains "+
			"%.3g%% are called safe, without deferral %.3g%%", 100*own.CriticalFNR(), 100*without))
	}
}

// explainReach says where the scope limits what coverage can be had.
func (r *run) explainReach() {
	if r.Scope == policy.PredictedSafe {
		r.result.Why = append(r.result.Why, fmt.Sprintf("In scope %s the %.1f%% of the inputs that are predicted critical are "+
			"never deferred.", r.Scope, 100*float64(count(r.predictedCritical))/float64(r.n)))
	}
	if c := r.Objective.Coverage; c > 0 {
		least, most := r.reach()
		if c < least {
			r.result.Notes = append(r.result.Notes, fmt.Sprintf("coverage %v cannot be had: %.3g%% of the inputs are retained "+
				"whatever their score", c, 100*least))
		}
		if c > most {
			r.result.Notes = append(r.result.Notes, fmt.Sprintf("coverage %v cannot be had: %.3g%% of the inputs are deferred "+
				"whatever their score", c, 100*(1-most)))
		}
	}
}

// reach is the coverages between which thresholds have a say: other inputs are
// retained or deferred whatever their score.
func (r *run) reach() (least, most float64) {
	f := r.fixedOf(r.all(), r.Scope, r.hard())
	return f.retained.retained / float64(r.n), 1 - (float64(f.inputs)-f.retained.retained)/float64(r.n)
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
