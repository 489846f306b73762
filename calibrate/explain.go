package calibrate

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// noteCoverage notes if a choice misses the coverage asked for on its own recording, or does worse
// than no deferral, and if no threshold can give that coverage.
func (to *reporter) noteCoverage(c *choice) {
	const off = 0.01
	r, own := to.run, c.selective(c.part)
	got, asked := own.Coverage(), r.Objective.Coverage
	if r.Objective.Reviews > 0 {
		to.noteReviews(own)
		asked = got
	}
	least, most := c.reach()
	if math.Abs(got-asked) > off+1/float64(r.n) && asked >= least && asked <= most {
		to.note("coverage %v cannot be had: the policy retains %.3g%% of the inputs that it was calibrated on, because many share "+
			"one score or are decided by something else; expect that rather than the figure of the folds", asked, 100*got)
	}
	if without := r.everything(r.all()).CriticalFNR(); r.Objective.Minimize == CriticalFNR && own.CriticalFNR() > without {
		to.note("the policy is worse than none: of the critical inputs that it retains %.3g%% are called safe, without deferral "+
			"%.3g%%", 100*own.CriticalFNR(), 100*without)
	}
	switch {
	case r.Objective.Reviews > 0:
	case asked < least:
		to.note("coverage %v cannot be had: %.3g%% of the inputs are retained whatever their score", asked, 100*least)
	case asked > most:
		to.note("coverage %v cannot be had: %.3g%% of the inputs are deferred whatever their score", asked, 100*(1-most))
	}
}

// noteReviews says how the reviews come about that the policy makes of its own recording.
func (to *reporter) noteReviews(own eval.Selective) {
	called, budget := count(to.run.predictedCritical), to.run.Objective.Reviews
	safe := own.Inputs - own.Retained - (called - own.Called)
	to.note("of %v reviews per 1,000 inputs in all, %.1f are of critical calls, deferred or kept; the policy has %.1f left for inputs "+
		"called safe, and defers %.1f of these", perMille(budget), per1000(called, to.Inputs),
		1000*budget-per1000(called, to.Inputs), per1000(safe, to.Inputs))
}

// explainCoverage says why a candidate was chosen for a coverage.
func (to *reporter) explainCoverage(c *choice) {
	o := &to.run.Objective
	how := fmt.Sprintf("by %d times repeated %d-fold cross-validation on all %d inputs", repeats, folds, to.Inputs)
	if o.Minimize == CriticalFNR {
		to.why("%s has the lowest critical FNR around %s of the %d rules compared, %s.", c.one.inWords(),
			o.budget(), len(c.candidates), how)
	} else {
		to.why("Of %d rules, %s is chosen for missing the fewest critical inputs around %s, %s. The best of the paper's "+
			"scores, p_critical, risk and the best gate are compared in this order: an equal one does not replace the one before it, "+
			"a gate must lead by two standard errors, and the best score, which is the best of ten on these folds, gives way to "+
			"p_critical and risk unless it leads by one.", len(c.candidates), c.one.inWords(), o.budget(), how)
	}
	to.why("Its expected figures come from an outer cross-validation, in which fitting, choosing and placing thresholds are " +
		"repeated without the inputs that are then decided.")
	to.explainScope()
}

// explainParts says why one part of the recording chose a candidate.
func (to *reporter) explainParts(own *ranking, certifies part, merit string) {
	r := to.run
	to.why("Of the %d rules compared, %s %s, by %d times repeated %d-fold cross-validation on %d inputs (%d critical).",
		len(own.candidates), own.chosen.inWords(), merit, repeats, folds, own.part.n, own.part.count(r.critical))
	to.why("The other %d inputs (%d critical) chose nothing but the point on its path; the expected coverage is of them.",
		certifies.n, certifies.count(r.critical))
	if to.Certificate != nil {
		to.why(oneAttempt)
	}
	to.explainScope()
}

// explainScope says what the scope keeps from being deferred.
func (to *reporter) explainScope() {
	if to.Scope == policy.PredictedSafe {
		to.why("In scope %s the %.1f%% of the inputs that are predicted critical are never deferred.", to.Scope,
			100*float64(count(to.run.predictedCritical))/float64(to.Inputs))
	}
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
