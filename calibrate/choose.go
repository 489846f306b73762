package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// choose chooses gate, scores and thresholds on a labelled table. The draft of the policy is nil if
// nothing certifies.
func choose(ctx context.Context, t *eval.Table, labels []int, o Options) (*run, *policy.Policy, error) {
	if o.Groups == nil {
		o.Groups = t.Copies
	}
	if err := cmp.Or(o.check(), o.checkTable(t, labels)); err != nil {
		return nil, nil, err
	}
	r := newRun(ctx, t, labels, o)
	if r.grouped && r.groups < 2 {
		return nil, nil, fmt.Errorf("all %d inputs are of one group, expected at least 2: one to choose a rule, another to measure it on", r.n)
	}
	if err := r.countReviews(); err != nil {
		return nil, nil, err
	}
	if r.report.suspect(t.Suspect(labels)) {
		return r, nil, nil
	}
	if r.report.Critical == 0 {
		return nil, nil, errors.New("no input has a critical class: nothing can be learnt about missing one")
	}
	if candidates, _ := candidatesFor(r.sample, r.all(), o.Scope, o.Base.ReliabilityThreshold); len(candidates) == 0 {
		return nil, nil, errors.New("every score is the same for all inputs: no threshold can tell them apart")
	}
	r.noteData()

	method := r.forLimits
	switch {
	case o.Objective.coverage() > 0:
		method = r.forCoverage
	case o.Objective.CostRatio > 0:
		method = r.forCost
	}
	c, err := method()
	if c == nil || err != nil || r.report.withhold(r.Force) {
		return r, nil, err
	}
	return r, r.draft(c), nil
}

// checkTable checks what is to be learned from.
func (o *Options) checkTable(t *eval.Table, labels []int) error {
	switch {
	case len(t.Spec.Critical) == 0:
		return errors.New("no class is critical: there is nothing that must not be missed, name the critical classes")
	case t.Passes < o.Base.FewestPasses && o.Base.FewestPasses != o.Base.ExpectedPasses: // not what a calibration wrote
		return fmt.Errorf("the recording has %d passes, but the policy accepts no fewer than %d", t.Passes, o.Base.FewestPasses)
	}
	return eval.Recording{Classes: t.K, Labels: labels, Passes: decomp.Tensor{Inputs: t.Inputs}}.CheckLabels()
}

// run is one calibration. Its report is written as the work goes on: rows, notes and reasons are only
// added, in the order in which a reader gets them.
type run struct {
	*sample
	Options
	ctx         context.Context
	report      *Report
	byClass     []policy.ClassInterval // what is expected of single critical classes
	done, total int                    // searches, and rules that are ranked
	needless    bool                   // the bounds hold where nothing is deferred
}

func newRun(ctx context.Context, t *eval.Table, labels []int, o Options) *run {
	r := &run{sample: newSample(t, labels, o.Base.Degenerate, o.Base.Saturated), Options: o, ctx: ctx}
	r.grouping = newGrouping(o.Groups, t.Inputs)
	r.report = newReport(o.Objective.String(), o.Scope, o.Seed)
	r.report.CriticalCalls = o.CriticalCalls
	r.report.Inputs, r.report.Critical, r.report.Missed, r.report.Passes = r.n, count(r.critical), count(r.missed), t.Passes
	if r.grouped {
		r.report.Groups = r.groups
	}
	return r
}

// countReviews makes coverages count critical calls as reviewed, where the objective is a budget of
// reviews. It returns an error if the critical calls alone exceed the budget.
func (r *run) countReviews() error {
	budget := r.Objective.Reviews
	if budget == 0 {
		return nil
	}
	r.sample.countsReviews = true
	called := count(r.predictedCritical)
	if float64(called) > budget*float64(r.n) {
		return fmt.Errorf("%v reviews per 1,000 inputs are fewer than the critical calls, which are reviewed anyway: %d of the %d inputs "+
			"(%.1f per 1,000) are called critical, expected a budget above that: the rest is for inputs called safe", perMille(budget), called, r.n, per1000(called, r.n))
	}
	return nil
}

// bothScopes returns both scopes, the chosen one first.
func bothScopes(chosen policy.Scope) []policy.Scope {
	if chosen == policy.PredictedSafe {
		return []policy.Scope{policy.PredictedSafe, policy.AllInputs}
	}
	return []policy.Scope{policy.AllInputs, policy.PredictedSafe}
}
