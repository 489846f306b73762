package calibrate

import (
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// reporter writes the report of a run: figures as rows and intervals, and what they mean in
// sentences. It chooses nothing. Rows, notes and reasons are only added, in the order in which a
// reader gets them.
type reporter struct {
	*Report
	run *run
	// byClass has what is expected of single critical classes.
	byClass []Line
}

func newReporter(r *run) *reporter {
	return &reporter{run: r, Report: &Report{
		Objective: r.Objective.String(), Scope: r.Scope, Seed: r.Seed,
		Inputs: r.n, Critical: count(r.critical), Missed: count(r.missed), Passes: r.table.Passes,
		Why: []string{}, Comparison: []Row{}, Notes: []string{}, Signs: []passcheck.Sign{},
	}}
}

// row returns a row of the comparison: of a rule that retains the marked inputs of a part.
func (rep *reporter) row(name string, scope policy.Scope, p part, retained []bool) Row {
	s, critical := rep.run.selective(p, retained), p.count(rep.run.critical)
	row := Row{
		Rule: name, Scope: scope, Inputs: s.Inputs, Deferred: s.Inputs - s.Retained, Coverage: s.Coverage(),
		CriticalInputs: critical, CriticalRetained: s.Critical, Missed: s.Missed, CriticalKept: s.Called, FalseKept: s.FalseCalls,
	}
	row.CriticalMissRate, row.CriticalMissRateInterval, row.CriticalFNR, row.CriticalFNRInterval = rep.run.missShares(p, retained)
	row.Accuracy, _ = rep.run.share(p, retained, rep.run.correct)
	row.Reviews = row.Deferred
	if rep.run.CriticalCalls == eval.Reviewed {
		row.Reviews += row.CriticalKept
	}
	return row
}

// compare adds rows to the comparison.
func (rep *reporter) compare(rows ...Row) { rep.Comparison = append(rep.Comparison, rows...) }

// Rows of the comparison that are no candidates.
const (
	calibratedRule = "calibrated"
	noDeferral     = "no deferral"
)

// compareNone adds the row of no deferral.
func (rep *reporter) compareNone() {
	all := rep.run.all()
	rep.compare(rep.row(noDeferral, policy.AllInputs, all, all.holds))
}

// choose reports what was chosen, after everything that it is compared with.
func (rep *reporter) choose(c *choice) {
	rep.Chosen, rep.Gain, rep.Reread = c.chosen(), rep.gain(c.rule), c.reread(rep.run.Base.Classes)
	if c.model != nil {
		rep.Risk = c.model.Reliability
		return
	}
	rep.note("no probability of being critical is given: %s", c.tooFewForRisk())
}

// noteDeferringAll notes if the critical miss rate is kept by deferring nearly all that could be
// missed.
func (rep *reporter) noteDeferringAll(got eval.Selective) {
	without := float64(rep.Missed) / float64(rep.Critical)
	if rep.run.Objective.MaxCriticalFNR == 0 && got.Critical > 0 && got.CriticalFNR() > without {
		rep.note("of the critical inputs that are retained a share of %.3g is called safe, more than the %.3g without deferral: "+
			"the promise is kept by deferring nearly all others. Compare --max-critical-fnr, and scope %s",
			got.CriticalFNR(), without, policy.PredictedSafe)
	}
}

// explainScope says what the scope keeps from being deferred.
func (rep *reporter) explainScope() {
	if rep.Scope == policy.PredictedSafe {
		rep.why("In scope %s the %.1f%% of the inputs that are predicted critical are never deferred.", rep.Scope,
			100*float64(count(rep.run.predictedCritical))/float64(rep.Inputs))
	}
}

// noteData notes what the recording itself lacks.
func (rep *reporter) noteData() {
	const few = 30
	r, t, say := rep.run, rep.run.table, rep.note
	if r.group != nil {
		say("the %d inputs come in %d groups: folds, parts, certificates and intervals are by group", r.n, r.groups)
	}
	if rep.Critical < few {
		say("only %d of %d inputs are critical: every figure about them is uncertain, see the intervals", rep.Critical, rep.Inputs)
	}
	switch {
	case rep.Missed == 0:
		say("no critical input is missed even without deferral: there is nothing to choose rules by, and the choice rests on chance")
	case rep.Missed < few/3:
		say("of the critical inputs only %d are missed without deferral: the choice of rule rests on these", rep.Missed)
	}
	support := make([]int, t.K)
	for i := range r.n {
		support[r.label[i]]++
	}
	predicted := make([]int, t.K)
	for _, k := range t.Predicted {
		predicted[k]++
	}
	for k, n := range support {
		if n == 0 {
			say("class %s has no inputs: nothing is known about missing it", r.Base.Classes[k])
		}
		if predicted[k] == 0 && slices.Contains(t.Spec.Critical, k) {
			say("critical class %s is never predicted", r.Base.Classes[k])
		}
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
