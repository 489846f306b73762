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
func (to *reporter) row(name string, scope policy.Scope, of part, retained []bool) Row {
	s, critical := to.run.selective(of, retained), of.count(to.run.critical)
	row := Row{
		Rule: name, Scope: scope, Inputs: s.Inputs, Deferred: s.Inputs - s.Retained, Coverage: s.Coverage(),
		CriticalInputs: critical, CriticalRetained: s.Critical, Missed: s.Missed, CriticalKept: s.Called, FalseKept: s.FalseCalls,
	}
	row.CriticalMissRate, row.CriticalMissRateInterval, row.CriticalFNR, row.CriticalFNRInterval = to.run.missShares(of, retained)
	row.Accuracy, _ = to.run.share(of, retained, to.run.correct)
	row.Reviews = row.Deferred
	if to.run.CriticalCalls == eval.Reviewed {
		row.Reviews += row.CriticalKept
	}
	return row
}

// compare adds rows to the comparison.
func (to *reporter) compare(rows ...Row) { to.Comparison = append(to.Comparison, rows...) }

// Rows of the comparison that are no candidates.
const (
	calibratedRule = "calibrated"
	noDeferral     = "no deferral"
)

// compareNone adds the row of no deferral.
func (to *reporter) compareNone() {
	all := to.run.all()
	to.compare(to.row(noDeferral, policy.AllInputs, all, all.of))
}

// choose reports what was chosen, after everything that it is compared with.
func (to *reporter) choose(c *choice) {
	to.Chosen, to.Gain, to.Reread = c.chosen(), to.gain(c.one), c.reread(to.run.Base.Classes)
	if c.model != nil {
		to.Risk = c.model.Reliability
		return
	}
	to.note("no probability of being critical is given: %s", c.tooFewForRisk())
}

// noteDeferringAll notes if the critical miss rate is kept by deferring nearly all that could be
// missed.
func (to *reporter) noteDeferringAll(got eval.Selective) {
	without := float64(to.Missed) / float64(to.Critical)
	if to.run.Objective.MaxCriticalFNR == 0 && got.Critical > 0 && got.CriticalFNR() > without {
		to.note("of the critical inputs that are retained a share of %.3g is called safe, more than the %.3g without deferral: "+
			"the promise is kept by deferring nearly all others. Compare --max-critical-fnr, and scope %s",
			got.CriticalFNR(), without, policy.PredictedSafe)
	}
}

// explainScope says what the scope keeps from being deferred.
func (to *reporter) explainScope() {
	if to.Scope == policy.PredictedSafe {
		to.why("In scope %s the %.1f%% of the inputs that are predicted critical are never deferred.", to.Scope,
			100*float64(count(to.run.predictedCritical))/float64(to.Inputs))
	}
}

// noteData notes what the recording itself lacks.
func (to *reporter) noteData() {
	const few = 30
	r, t, say := to.run, to.run.table, to.note
	if r.group != nil {
		say("the %d inputs come in %d groups: folds, parts, certificates and intervals are by group", r.n, r.groups)
	}
	if to.Critical < few {
		say("only %d of %d inputs are critical: every figure about them is uncertain, see the intervals", to.Critical, to.Inputs)
	}
	switch {
	case to.Missed == 0:
		say("no critical input is missed even without deferral: there is nothing to choose rules by, and the choice rests on chance")
	case to.Missed < few/3:
		say("of the critical inputs only %d are missed without deferral: the choice of rule rests on these", to.Missed)
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
		is   policy.Handling
	}{{alike, "hardly differ", r.Base.Degenerate}, {saturated, "are one-hot", r.Base.Saturated}} {
		if h.n > 0 {
			say("the passes of %d of %d inputs %s: %s", h.n, r.n, h.what, map[policy.Handling]string{
				policy.HandleDefer:   "the policy defers them whatever their score",
				policy.HandleRetain:  "the policy retains them whatever their score",
				policy.HandleByScore: "they are decided by score, like any other",
			}[h.is])
		}
	}
	if t.Spec.Kind != decomp.Dirichlet && t.Passes < 5 {
		say("%d passes are few: scores are coarse, and thresholds for them do not carry over to more", t.Passes)
	}
}
