package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/ckd-project/ckd/calibrate/internal/riskfit"
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
	case t.Passes < o.Base.FewestPasses:
		return nil, nil, fmt.Errorf("the recording has %d passes, but the policy accepts no fewer than %d", t.Passes, o.Base.FewestPasses)
	}
	for i, label := range labels {
		if label < 0 || label >= t.K {
			return nil, nil, fmt.Errorf("label %d is %d, expected 0 to %d", i, label, t.K-1)
		}
	}
	r := &run{Options: o, ctx: ctx}
	r.sample = newSample(t, labels, o.Base.Degenerate, o.Base.Saturated)
	r.sample.stopsEarly = o.EarlyStop != nil
	r.sample.inGroups(o.Groups)
	r.final = r.sample
	if unfamiliar != nil {
		if unfamiliar.K != t.K {
			return nil, nil, fmt.Errorf("the unfamiliar inputs have %d classes, expected %d, those of the recording", unfamiliar.K, t.K)
		}
		r.unfamiliar = newSample(unfamiliar, make([]int, unfamiliar.Inputs), o.Base.Degenerate, o.Base.Saturated)
	}
	r.result = &Report{
		Objective: o.Objective.String(), Scope: o.Scope, Seed: o.Seed,
		Inputs: r.n, Critical: r.criticalIn(r.all()), Missed: count(r.missed), Passes: t.Passes,
		Why: []string{}, Comparison: []Row{}, Notes: []string{},
	}
	if err := r.countReviews(); err != nil {
		return nil, nil, err
	}
	if r.Guard == UsualGuard {
		r.Guard = DefaultGuard(r.deferrableCoverage())
	}
	if r.result.Critical == 0 {
		return nil, nil, errors.New("no input has a critical class: nothing can be learnt about missing one")
	}
	if candidates, _ := candidatesFor(r.sample, r.all(), o.Scope, o.reliability()); len(candidates) == 0 {
		return nil, nil, errors.New("every score is the same for all inputs: no threshold can tell them apart")
	}
	r.noteData()

	var err error
	switch {
	case o.Objective.coverage() > 0:
		err = r.forCoverage()
	case o.Objective.CostRatio > 0:
		err = r.forCost()
	case o.Objective.OnAverage:
		err = r.forMissOnAverage()
	default:
		err = r.forLimits()
	}
	if err != nil {
		return nil, nil, err
	}
	return r.result, r.draft, nil
}

// run holds one calibration while it runs.
type run struct {
	*sample
	Options
	ctx    context.Context
	result *Report
	draft  *policy.Draft // draft of the policy; nil until choose
	chosen candidate
	// unfamiliar has the inputs of Options.Unfamiliar, nil for none.
	unfamiliar *sample
	final      *sample // with the guard and the risk of the chosen candidate; sample itself before

	mutex       sync.Mutex // guards the fields below
	done, total int
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

// steps announces how many searches will follow.
func (r *run) steps(searches int) { r.total = searches * foldsOfSearch }

// step counts a fold that is done. Several goroutines may call it.
func (r *run) step() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.done++
	r.Progress.of("comparing rules")(r.done, r.total)
}

// search prepares a search over the rules of a scope, on the inputs of a part. Threshold curves
// weigh costs at the critical FNR f. Inputs outside the part have no influence.
func (r *run) search(p part, scope policy.Scope, f float64) (*search, error) {
	fitted, err := r.fit(p)
	if err != nil {
		return nil, err
	}
	s := &search{
		sample: fitted.heldOut, fitted: fitted, part: p, scope: scope, soft: r.soften(p), f: f, step: r.step,
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

// choose makes the draft of the policy with the candidate that a search chose, its thresholds, and
// what the search fitted.
func (r *run) choose(s *search, chosen candidate, t thresholds) {
	r.chosen, r.final = chosen, s.final
	c := &Chosen{
		Gate: chosen.gate, ReliabilityThreshold: chosen.reliability, Compared: len(s.candidates),
		Primary: Threshold{string(nameOfScore(chosen.primary)), t[byPrimary]},
	}
	p := r.Base.Draft()
	p.ReliabilityThreshold = r.reliability()
	p.Gate, p.Scope = chosen.gate, r.Scope
	p.Primary = policy.Rule{Score: nameOfScore(chosen.primary), Threshold: t[byPrimary], HasThreshold: true}
	p.Fallback = policy.Rule{Score: policy.CBEC}
	if chosen.sides() == 2 {
		c.Fallback = &Threshold{chosen.fallback.String(), t[byFallback]}
		p.Fallback = policy.Rule{Score: nameOfScore(chosen.fallback), Threshold: t[byFallback], HasThreshold: true}
	}
	r.result.Gain = r.gain(chosen)
	p.Guard, p.Risk = nil, nil
	if chosen.guarded {
		c.Guard = &Threshold{string(policy.MI), s.final.guard}
		p.Guard = &policy.Guard{Score: policy.MI, Threshold: s.final.guard}
	}
	if p.Risk = s.fitted.policy(); p.Risk != nil {
		r.result.Risk = riskReport(s.model)
	} else {
		r.result.note("no probability of being critical is given: %d critical inputs are called safe among those that it would be fitted to, "+
			"expected %d or more", s.missedInputs(), riskfit.FewestMissed)
	}
	if p.Kind != policy.Dirichlet {
		p.ExpectedPasses = r.table.Passes
		for p.Gate.ReadsSkewness() && p.FewestPasses < r.table.Passes && r.hardlyOpens(p.FewestPasses, chosen.reliability) {
			p.FewestPasses++
		}
	}
	p.Calibration = &policy.Calibration{
		Recording: policy.Recording{Inputs: r.n, CriticalInputs: r.result.Critical, Passes: r.table.Passes},
		Objective: r.result.Objective, Scope: r.Scope, Seed: r.Seed, Reference: reference(r.table, r.Base),
	}
	if e := r.result.Expected; e != nil {
		p.Calibration.ExpectedCoverage = &policy.Interval{Value: e.Coverage, Low: e.CoverageInterval[0], High: e.CoverageInterval[1]}
		p.Calibration.ExpectedCriticalFNR = intervalOf(e.CriticalFNR, e.CriticalFNRInterval)
		p.Calibration.ExpectedCriticalMissRate = intervalOf(e.CriticalMissRate, e.CriticalMissRateInterval)
	}
	if c := r.result.Certificate; c != nil {
		p.Calibration.Certificate = c.forPolicy()
	}
	r.result.Chosen, r.draft = c, &p
}

// hardlyOpens reports whether so few passes hardly let a gate open that reads skewness. With an
// early-stopping rule to come, a gate that can open at all is enough from half of the passes on:
// otherwise no pass would be left to save.
func (r *run) hardlyOpens(passes int, reliability float64) bool {
	const spare = 2
	most := decomp.SkewnessCap(passes, r.table.Spec.Variance)
	if r.EarlyStop != nil && 2*passes >= r.table.Passes {
		return most <= reliability
	}
	return most < spare*reliability
}

func intervalOf(value *float64, interval *[2]float64) *policy.Interval {
	if value == nil {
		return nil
	}
	return &policy.Interval{Value: *value, Low: interval[0], High: interval[1]}
}

// expect reports figures that were measured on inputs which chose neither candidate nor thresholds.
// critical counts the critical inputs among them.
func (r *Report) expect(s eval.Selective, critical int) {
	r.expectCoverage(s)
	e := r.Expected
	e.CriticalMissRate, e.CriticalMissRateInterval = exactShare(s.Missed, critical)
	e.CriticalFNR, e.CriticalFNRInterval = exactShare(s.Missed, s.Critical)
}

// exactShare returns k/n with its exact 95% interval (Clopper-Pearson), nil where n is 0.
func exactShare(k, n int) (*float64, *[2]float64) {
	if n == 0 {
		return nil, nil
	}
	share, interval := float64(k)/float64(n), exactInterval(k, n)
	return &share, &interval
}

// expectCoverage reports the coverage alone, for inputs whose misses chose the thresholds.
func (r *Report) expectCoverage(s eval.Selective) {
	r.Expected = &Expected{Coverage: s.Coverage(), CoverageInterval: exactInterval(s.Retained, s.Inputs)}
}

// row returns a row of the comparison. critical is the number of critical inputs among those
// counted.
func (r *run) row(name string, scope policy.Scope, s eval.Selective, critical int) Row {
	row := Row{
		Rule: name, Scope: scope, Inputs: s.Inputs, Deferred: s.Inputs - s.Retained, Coverage: s.Coverage(),
		CriticalInputs: critical, CriticalRetained: s.Critical, Missed: s.Missed, CriticalKept: s.Called, FalseKept: s.FalseCalls,
	}
	row.CriticalMissRate, row.CriticalMissRateInterval = exactShare(s.Missed, critical)
	row.CriticalFNR, row.CriticalFNRInterval = exactShare(s.Missed, s.Critical)
	row.Accuracy, _ = exactShare(s.Correct, s.Retained)
	row.Reviews = row.Deferred
	if r.CriticalCalls == eval.Reviewed {
		row.Reviews += row.CriticalKept
	}
	return row
}

// bothScopes returns both scopes, the chosen one first.
func bothScopes(chosen policy.Scope) []policy.Scope {
	if chosen == policy.PredictedSafe {
		return []policy.Scope{policy.PredictedSafe, policy.AllInputs}
	}
	return []policy.Scope{policy.AllInputs, policy.PredictedSafe}
}

// noteData notes what the recording itself lacks.
func (r *run) noteData() {
	const few = 30
	res, t, say := r.result, r.table, r.result.note
	if r.group != nil {
		say("the %d inputs come in %d groups: folds, parts, certificates and the intervals of what is expected are by group; the intervals of the "+
			"comparison count every input as independent", r.n, r.groups)
	}
	if res.Critical < few {
		say("only %d of %d inputs are critical: every figure about them is uncertain, see the intervals", res.Critical, res.Inputs)
	}
	switch {
	case res.Missed == 0:
		say("no critical input is missed even without deferral: there is nothing to choose rules by, and the choice rests on chance")
	case res.Missed < few/3:
		say("of the critical inputs only %d are missed without deferral: the choice of rule rests on these", res.Missed)
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
	saturated := count(t.Saturated) // of those whose passes are identical
	identical := count(t.Degenerate) - saturated
	for _, h := range []struct {
		n    int
		what string
		is   policy.Handling
	}{{identical, "identical", r.Base.Degenerate}, {saturated, "identical and one-hot", r.Base.Saturated}} {
		if h.n > 0 {
			say("the passes of %d of %d inputs are %s: %s", h.n, r.n, h.what, map[policy.Handling]string{
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

func count(marks []bool) int {
	n := 0
	for _, m := range marks {
		n += index(m)
	}
	return n
}
