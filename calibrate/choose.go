package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// choose chooses gate, scores and thresholds on a labelled table. The draft of the policy is nil if
// nothing certifies.
func choose(ctx context.Context, t *eval.Table, labels []int, o Options) (*Report, *policy.Draft, error) {
	if o.Groups == nil {
		o.Groups = t.Copies
	}
	if err := cmp.Or(o.check(), o.Objective.check(), o.Objective.checkClasses(o.Base), o.checkTable(t, labels)); err != nil {
		return nil, nil, err
	}
	r := &run{Options: o, ctx: ctx, steps: steps{progress: o.Progress}}
	r.sample = newSample(t, labels, o.Base.Degenerate, o.Base.Saturated)
	if r.grouping = newGrouping(o.Groups); r.group != nil && r.groups < 2 {
		return nil, nil, fmt.Errorf("all %d inputs are of one group, expected at least 2: one to choose a rule, another to measure it on", r.n)
	}
	if err := r.countReviews(); err != nil {
		return nil, nil, err
	}
	rep := newReporter(r)
	rep.Groups = r.groups
	if rep.suspect(t.Suspect(labels)) {
		return rep.Report, nil, nil
	}
	if rep.Critical == 0 {
		return nil, nil, errors.New("no input has a critical class: nothing can be learnt about missing one")
	}
	if candidates, _ := candidatesFor(r.sample, r.all(), o.Scope, o.reliability()); len(candidates) == 0 {
		return nil, nil, errors.New("every score is the same for all inputs: no threshold can tell them apart")
	}
	rep.noteData()

	method := forLimits
	switch {
	case o.Objective.coverage() > 0:
		method = forCoverage
	case o.Objective.CostRatio > 0:
		method = forCost
	}
	c, err := method(r, rep)
	if c == nil || err != nil {
		return rep.Report, nil, err
	}
	d := c.draft(r, rep.Report)
	rep.Lines = o.setLines(d, rep.byClass)
	return rep.Report, d, nil
}

// checkTable checks what is to be learned from.
func (o *Options) checkTable(t *eval.Table, labels []int) error {
	switch {
	case o.Scope != policy.AllInputs && o.Scope != policy.PredictedSafe:
		return fmt.Errorf("scope %q: expected %s or %s", o.Scope, policy.AllInputs, policy.PredictedSafe)
	case len(labels) != t.Inputs:
		return fmt.Errorf("%d labels, expected %d: one for each input", len(labels), t.Inputs)
	case o.Groups != nil && len(o.Groups) != t.Inputs:
		return fmt.Errorf("%d groups, expected %d: one for each input", len(o.Groups), t.Inputs)
	case len(t.Spec.Critical) == 0:
		return errors.New("no class is critical: there is nothing that must not be missed, name the critical classes")
	case t.Passes < o.Base.FewestPasses && o.Base.FewestPasses != o.Base.ExpectedPasses: // not what a calibration wrote
		return fmt.Errorf("the recording has %d passes, but the policy accepts no fewer than %d", t.Passes, o.Base.FewestPasses)
	}
	for i, label := range labels {
		if label < 0 || label >= t.K {
			return fmt.Errorf("label %d is %d, expected 0 to %d", i, label, t.K-1)
		}
	}
	return nil
}

// run holds the sample and the options of one calibration, and prepares the searches that every
// objective starts from. Once it is made nothing in it changes but its steps: what an objective
// finds goes into a report and a choice.
type run struct {
	*sample
	Options
	ctx   context.Context
	steps steps
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
			"(%.1f per 1,000) are called critical, expected a budget above that", perMille(budget), called, r.n, per1000(called, r.n))
	}
	return nil
}

// deferrableCoverage returns the coverage that leaves those inputs out which the objective lets be
// deferred: where critical calls use up part of a budget of reviews, it is above the objective's.
func (r *run) deferrableCoverage() float64 {
	if r.Objective.Reviews == 0 {
		return r.Objective.Coverage
	}
	return 1 - max(0, r.Objective.Reviews-float64(count(r.predictedCritical))/float64(r.n))
}

// steps counts the searches of a run, of those announced, and passes both on as progress.
type steps struct {
	progress    Progress
	done, total int
}

// announce sets how many searches will be made. It is called once, before the first of them.
func (s *steps) announce(searches int) { s.total = searches }

// step counts a search that is done.
func (s *steps) step() {
	s.done++
	s.progress.of("comparing rules")(s.done, s.total)
}

// bothScopes returns both scopes, the chosen one first.
func bothScopes(chosen policy.Scope) []policy.Scope {
	if chosen == policy.PredictedSafe {
		return []policy.Scope{policy.PredictedSafe, policy.AllInputs}
	}
	return []policy.Scope{policy.AllInputs, policy.PredictedSafe}
}
