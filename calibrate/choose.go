package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// choose chooses gate, scores and thresholds on a labelled table. The table of unfamiliar inputs may
// be nil. The draft of the policy is nil if nothing certifies.
func choose(ctx context.Context, t *eval.Table, labels []int, unfamiliar *eval.Table, o Options) (*Report, *policy.Draft, error) {
	if err := cmp.Or(o.Objective.check(), o.Objective.checkClasses(o.Base)); err != nil {
		return nil, nil, err
	}
	switch o.Scope {
	case policy.AllInputs, policy.PredictedSafe:
	default:
		return nil, nil, fmt.Errorf("scope %q: expected %s or %s", o.Scope, policy.AllInputs, policy.PredictedSafe)
	}
	switch {
	case len(labels) != t.Inputs:
		return nil, nil, fmt.Errorf("%d labels, expected %d: one for each input", len(labels), t.Inputs)
	case o.Groups != nil && len(o.Groups) != t.Inputs:
		return nil, nil, fmt.Errorf("%d groups, expected %d: one for each input", len(o.Groups), t.Inputs)
	case len(t.Spec.Critical) == 0:
		return nil, nil, errors.New("no class is critical: there is nothing that must not be missed, name the critical classes")
	case o.Seed > math.MaxInt64: // a policy cannot hold a larger seed
		return nil, nil, fmt.Errorf("seed %d: expected at most %d", o.Seed, int64(math.MaxInt64))
	case t.Passes < o.Base.FewestPasses && o.Base.FewestPasses != o.Base.ExpectedPasses: // not what a calibration wrote
		return nil, nil, fmt.Errorf("the recording has %d passes, but the policy accepts no fewer than %d", t.Passes, o.Base.FewestPasses)
	}
	for i, label := range labels {
		if label < 0 || label >= t.K {
			return nil, nil, fmt.Errorf("label %d is %d, expected 0 to %d", i, label, t.K-1)
		}
	}
	if o.Groups == nil {
		o.Groups = t.Copies
	}
	r := &run{Options: o, ctx: ctx, steps: steps{progress: o.Progress}}
	r.sample = newSample(t, labels, o.Base.Degenerate, o.Base.Saturated)
	if r.grouping = newGrouping(o.Groups); r.group != nil && r.groups < 2 {
		return nil, nil, fmt.Errorf("all %d inputs are of one group, expected at least 2: one to choose a rule, another to measure it on", r.n)
	}
	if unfamiliar != nil {
		if unfamiliar.K != t.K {
			return nil, nil, fmt.Errorf("the unfamiliar inputs have %d classes, expected %d, those of the recording", unfamiliar.K, t.K)
		}
		r.unfamiliar = newSample(unfamiliar, make([]int, unfamiliar.Inputs), o.Base.Degenerate, o.Base.Saturated)
	}
	if err := r.countReviews(); err != nil {
		return nil, nil, err
	}
	if r.Guard == UsualGuard {
		r.Guard = DefaultGuard(r.deferrableCoverage())
	}
	to := newReporter(r)
	to.Groups = r.groups
	if to.suspect(t.Suspect(labels)) {
		return to.Report, nil, nil
	}
	if to.Critical == 0 {
		return nil, nil, errors.New("no input has a critical class: nothing can be learnt about missing one")
	}
	if candidates, _ := candidatesFor(r.sample, r.all(), o.Scope, o.reliability()); len(candidates) == 0 {
		return nil, nil, errors.New("every score is the same for all inputs: no threshold can tell them apart")
	}
	to.noteData()

	var c *choice
	var err error
	switch {
	case o.Objective.coverage() > 0:
		c, err = forCoverage(r, to)
	case o.Objective.CostRatio > 0:
		c, err = forCost(r, to)
	case o.Objective.OnAverage:
		c, err = newRiskControl(r, to).choose()
	default:
		c, err = newLimitTest(r, to).choose()
	}
	if err != nil {
		return nil, nil, err
	}
	if c == nil {
		return to.Report, nil, nil
	}
	d := c.draft(r, to.Report)
	to.Lines = o.setLines(d, to.byClass)
	return to.Report, d, nil
}

// run holds the sample and the options of one calibration, and prepares the searches that every
// objective starts from. Once it is made nothing in it changes but its steps: what an objective
// finds goes into a report and a choice.
type run struct {
	*sample
	Options
	ctx context.Context
	// unfamiliar has the inputs of Options.Unfamiliar, nil for none.
	unfamiliar *sample
	steps      steps
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

// steps counts the folds that the searches of a run have held out, of those announced, and passes
// both on as progress.
type steps struct {
	progress Progress

	mutex       sync.Mutex // guards the fields below
	done, total int
}

// announce sets how many searches will be made. It is called once, before the first of them.
func (s *steps) announce(searches int) { s.total = searches * foldsOfSearch }

// step counts a fold that is done. Several goroutines may call it.
func (s *steps) step() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.done++
	s.progress.of("comparing rules")(s.done, s.total)
}

// search prepares a search over the rules of a scope, on the inputs of a part. Threshold curves
// weigh costs at the critical FNR f. Inputs outside the part have no influence.
func (r *run) search(p part, scope policy.Scope, f float64) (*search, error) {
	fitted, err := r.fit(p)
	if err != nil {
		return nil, err
	}
	s := &search{
		sample: fitted.heldOut, fitted: fitted, part: p, scope: scope, soft: r.soften(p), f: f, step: r.steps.step,
	}
	s.candidates, s.notes = candidatesFor(s.sample, p, scope, r.reliability())
	if len(s.candidates) == 0 { // the few inputs of the part do not differ, so that no rule is better
		s.candidates = []candidate{{gate: policy.Never, reliability: r.reliability(), primary: decomp.MI, fallback: decomp.MI}}
	}
	return s, nil
}

// fixedShare sets the critical FNR at which threshold curves weigh costs if the objective names
// none: half the critical FNR of retaining everything.
const fixedShare = 0.5

// curveFNR returns the critical FNR at which the curves of a part weigh costs. Where the misses
// themselves count, and not their share of what is retained, it is 0.
func (r *run) curveFNR(p part) float64 {
	if r.Objective.Minimize != CriticalFNR {
		return 0
	}
	return fixedShare * r.everything(p).CriticalFNR()
}

// bothScopes returns both scopes, the chosen one first.
func bothScopes(chosen policy.Scope) []policy.Scope {
	if chosen == policy.PredictedSafe {
		return []policy.Scope{policy.PredictedSafe, policy.AllInputs}
	}
	return []policy.Scope{policy.AllInputs, policy.PredictedSafe}
}
