package calibrate

import (
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// row returns a row of the comparison: of a rule that retains the marked inputs of a part.
func (r *run) row(name string, scope policy.Scope, p part, retained []bool) Row {
	s, critical := r.selective(p, retained), p.count(r.critical)
	row := Row{
		Rule: name, Scope: scope, Inputs: s.Inputs, Deferred: s.Inputs - s.Retained, Coverage: s.Coverage(),
		CriticalInputs: critical, CriticalRetained: s.Critical, Missed: s.Missed, CriticalKept: s.Called, FalseKept: s.FalseCalls,
	}
	row.CriticalMissRate, row.CriticalMissRateInterval, row.CriticalFNR, row.CriticalFNRInterval = r.missShares(p, retained)
	row.Accuracy, _ = r.share(p, retained, r.correct)
	row.Reviews = row.Deferred
	if r.CriticalCalls == eval.Reviewed {
		row.Reviews += row.CriticalKept
	}
	return row
}

// compare adds rows to the comparison.
func (r *run) compare(rows ...Row) { r.report.Comparison = append(r.report.Comparison, rows...) }

// Rows of the comparison that are no candidates.
const (
	calibratedRule = "calibrated"
	noReview       = "no review"
)

// compareNone adds the row of no review, on a part.
func (r *run) compareNone(p part) { r.compare(r.row(noReview, policy.AllInputs, p, p.holds)) }

// choose reports what was chosen, after everything that it is compared with.
func (r *run) choose(c *choice) {
	r.report.Chosen, r.report.Reread = c.chosen(), c.reread(r.Base.Classes)
	if c.model != nil {
		r.report.Risk = c.model.reliability
		return
	}
	r.report.note("no probability of being critical is given: %s", c.tooFewForRisk())
}

// noteDeferringAll notes if the critical miss rate is kept by deferring nearly all that could be
// missed.
func (r *run) noteDeferringAll(got eval.Selective) {
	without := float64(r.report.Missed) / float64(r.report.Critical)
	pooled := func(l Limit) bool { return l.Bounds == policy.CriticalFNR && l.Class == "" }
	if !slices.ContainsFunc(r.Objective.Limits, pooled) && got.Critical > 0 && got.CriticalFNR() > without {
		r.report.note("of the critical inputs that are retained a share of %.3g is called safe, more than the %.3g without deferral: "+
			"the promise is kept by deferring nearly all others. Compare --max-critical-fnr, and scope %s",
			got.CriticalFNR(), without, policy.PredictedSafe)
	}
}

// explainScope says what the scope keeps from being deferred.
func (r *run) explainScope() {
	if r.report.Scope == policy.PredictedSafe {
		r.report.why("In scope %s the %.1f%% of the inputs that are predicted critical are never deferred.", r.report.Scope,
			100*float64(count(r.predictedCritical))/float64(r.report.Inputs))
	}
}

// noteData notes what the recording itself lacks.
func (r *run) noteData() {
	const few = 30
	t, say := r.table, r.report.note
	if r.grouped {
		say("the %d inputs come in %d groups: folds, parts, certificates and intervals are by group", r.n, r.groups)
	}
	if r.report.Critical < few {
		say("only %d of %d inputs are critical: every figure about them is uncertain, see the intervals", r.report.Critical, r.report.Inputs)
	}
	switch {
	case r.report.Missed == 0:
		say("no critical input is missed even without deferral: there is nothing to choose rules by, and the choice rests on chance")
	case r.report.Missed < few/3:
		say("of the critical inputs only %d are missed without deferral: the choice of rule rests on these", r.report.Missed)
	}
	support := make([]int, t.K)
	for i := range r.n {
		support[r.label[i]]++
	}
	predicted := make([]int, t.K)
	for _, k := range t.Predicted {
		predicted[k]++
	}
	var unseen, never []string
	for k, n := range support {
		if n == 0 {
			unseen = append(unseen, r.Base.Classes[k])
		}
		if predicted[k] == 0 && slices.Contains(t.Spec.Critical, k) {
			never = append(never, r.Base.Classes[k])
		}
	}
	const several = 3 // classes that are named one by one
	for _, name := range unseen[:min(several, len(unseen))] {
		say("class %s has no inputs: nothing is known about missing it", name)
	}
	if more := len(unseen) - several; more > 0 {
		say("%d more classes have no inputs", more)
	}
	for _, name := range never[:min(several, len(never))] {
		say("critical class %s is never predicted", name)
	}
	if more := len(never) - several; more > 0 {
		say("%d more critical classes are never predicted", more)
	}
	saturated := count(t.Saturated) // of those whose passes hardly differ
	alike := count(t.Degenerate) - saturated
	for _, h := range []struct {
		n    int
		what string
		how  policy.Handling
	}{{alike, "hardly differ", r.Base.Degenerate}, {saturated, "are one-hot", r.Base.Saturated}} {
		if h.n > 0 {
			say("the passes of %d of %d inputs %s: %s", h.n, r.n, h.what, map[policy.Handling]string{
				policy.HandleDefer:   "the policy defers them whatever their score",
				policy.HandleRetain:  "the policy retains them whatever their score",
				policy.HandleByScore: "they are decided by score, like any other",
			}[h.how])
		}
	}
	if t.Spec.Kind != decomp.Dirichlet && t.Passes < 5 {
		say("%d passes are few: scores are coarse, and thresholds for them do not carry over to more", t.Passes)
	}
}

// expect reports what rules did with inputs that were held out, and what that stands for where the
// model serves.
func (r *run) expect(held *heldOut) {
	all, retained := r.all(), held.own.retained
	r.expectCoverage(all, retained)
	e := r.report.Expected
	e.CriticalMissRate, e.CriticalMissRateInterval, e.CriticalFNR, e.CriticalFNRInterval = r.missShares(all, retained)
	r.noteServed(all, r.selective(all, retained))
	r.noteGuard(held.own.guarded, all.n)
	r.byClass = r.expectClasses(retained)
}

// noteGuard notes how many inputs the guard deferred.
func (r *run) noteGuard(guarded, inputs int) {
	if r.Guard > 0 {
		r.report.note("the guard deferred %d of %d inputs as unfamiliar (%.3g per 1,000); coverage, reviews, misses and costs count them", guarded,
			inputs, per1000(guarded, inputs))
	}
}

// expectCoverage reports the coverage alone, for inputs whose misses chose the thresholds.
func (r *run) expectCoverage(p part, retained []bool) {
	coverage, interval := r.share(p, p.holds, retained)
	r.report.Expected = &Expected{Coverage: *coverage, CoverageInterval: *interval}
}
