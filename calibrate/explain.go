package calibrate

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// explainCoverage says why a candidate was chosen for a coverage.
func (r *run) explainCoverage(s *search, chosen candidate) {
	how := fmt.Sprintf("by %d times repeated %d-fold cross-validation on all %d inputs", repeats, folds, r.n)
	if r.Objective.Minimize == CriticalFNR {
		r.result.why("%s has the lowest critical FNR around %s of the %d rules compared, %s.", chosen.inWords(), r.budget(),
			len(s.candidates), how)
	} else {
		r.result.why("Of %d rules, %s is chosen for missing the fewest critical inputs around %s, %s. The best of the paper's "+
			"scores, p_critical, risk and the best gate are compared in this order: an equal one does not replace the one before it, "+
			"and a gate must lead by two standard errors.", len(s.candidates), chosen.inWords(), r.budget(), how)
	}
	r.result.why("Its expected figures come from an outer cross-validation, in which fitting, choosing and placing thresholds are " +
		"repeated without the inputs that are then decided.")
	r.explainReach()
}

// budget names what the objective asks for.
func (r *run) budget() string {
	if r.Objective.Reviews == 0 {
		return fmt.Sprintf("coverage %v", r.Objective.Coverage)
	}
	return fmt.Sprintf("%v reviews per 1,000 inputs in all", perMille(r.Objective.Reviews))
}

// explainParts says why one part of the recording chose a candidate.
func (r *run) explainParts(chosen candidate, compared int, chooses, certifies part, merit string) {
	r.result.why("Of the %d rules compared, %s %s, by %d times repeated %d-fold cross-validation on %d inputs (%d critical).",
		compared, chosen.inWords(), merit, repeats, folds, chooses.n, r.criticalIn(chooses))
	r.result.why("The other %d inputs (%d critical) chose nothing but the point on its path; the expected coverage is of them.",
		certifies.n, r.criticalIn(certifies))
	if r.result.Certificate != nil {
		r.result.why(oneAttempt)
	}
	r.explainReach()
}

// noteCoverage notes if the policy misses the coverage asked for on its own recording, or does
// worse than no deferral.
func (r *run) noteCoverage(own eval.Selective) {
	const off = 0.01
	got, asked := own.Coverage(), r.Objective.Coverage
	if r.Objective.Reviews > 0 {
		r.noteReviews(own)
		asked = got
	}
	least, most := r.reach()
	if math.Abs(got-asked) > off+1/float64(r.n) && asked >= least && asked <= most {
		r.result.note("coverage %v cannot be had: the policy retains %.3g%% of the inputs that it was calibrated on, because many share "+
			"one score or are decided by something else; expect that rather than the figure of the folds", asked, 100*got)
	}
	if without := r.everything(r.all()).CriticalFNR(); r.Objective.Minimize == CriticalFNR && own.CriticalFNR() > without {
		r.result.note("the policy is worse than none: of the critical inputs that it retains %.3g%% are called safe, without deferral "+
			"%.3g%%", 100*own.CriticalFNR(), 100*without)
	}
}

// noteReviews says how the reviews come about that the policy makes of its own recording.
func (r *run) noteReviews(own eval.Selective) {
	called := count(r.predictedCritical)
	safe := own.Inputs - own.Retained - (called - own.Called)
	r.result.note("of %v reviews per 1,000 inputs in all, %.1f are of critical calls, deferred or kept; the policy has %.1f left for inputs "+
		"called safe, and defers %.1f of these", perMille(r.Objective.Reviews), per1000(called, r.n),
		1000*r.Objective.Reviews-per1000(called, r.n), per1000(safe, r.n))
}

// explainReach says how the scope limits the coverages that are possible.
func (r *run) explainReach() {
	if r.Scope == policy.PredictedSafe {
		r.result.why("In scope %s the %.1f%% of the inputs that are predicted critical are never deferred.", r.Scope,
			100*float64(count(r.predictedCritical))/float64(r.n))
	}
	least, most := r.reach()
	switch c := r.Objective.Coverage; {
	case c == 0:
	case c < least:
		r.result.note("coverage %v cannot be had: %.3g%% of the inputs are retained whatever their score", c, 100*least)
	case c > most:
		r.result.note("coverage %v cannot be had: %.3g%% of the inputs are deferred whatever their score", c, 100*(1-most))
	}
}

// reach returns the least and the largest coverage that thresholds can give. The other inputs are
// retained or deferred whatever their score.
func (r *run) reach() (least, most float64) {
	f := r.final.fixedOf(r.all(), r.Scope, r.chosen.treatment(), r.hard())
	return f.retained.retained / float64(r.n), 1 - (float64(f.inputs)-f.retained.retained)/float64(r.n)
}

// inWords names a candidate in a sentence.
func (r candidate) inWords() string {
	switch {
	case r.guarded:
		return fmt.Sprintf("%s with a guard on %s", nameOfScore(r.primary), policy.MI)
	case r.gate == policy.Never:
		return fmt.Sprintf("the score %s alone", nameOfScore(r.primary))
	}
	return fmt.Sprintf("gate %s with primary score %s and fallback score %s", r.gate, r.primary, r.fallback)
}
