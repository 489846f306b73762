package calibrate

import (
	"math"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// forCoverage chooses the candidate that misses fewest critical inputs at a coverage: see
// search.best.
//
// All inputs choose the candidate and its thresholds. An outer cross-validation measures what to
// expect: it repeats fitting, choosing and placing thresholds without each fold, and decides the
// fold.
func (r *run) forCoverage() (*choice, error) {
	coverage := r.Objective.coverage()
	outer := r.foldsOf(r.all(), folds, newRand(r.Seed, streamOuter))
	r.total = 2*len(outer) + 1
	r.report.ComparisonBasis = "inputs that were not used to set the rule, each in its turn"
	r.compareNone(r.all())
	var retained []bool // held out, by the procedure
	for _, scope := range bothScopes(r.Scope) {
		held := r.newHeldOut()
		for _, out := range outer {
			s, err := r.search(r.all().without(out), scope)
			if err != nil {
				return nil, err
			}
			own := s.choiceAt(s.best(coverage, r.keepsCalls(scope)), coverage)
			held.own.add(own, out)
			if scope == r.Scope {
				r.traceBoth(own, out)
			}
			for _, rule := range s.candidates {
				held.show(s.choiceAt(rule, coverage), out)
			}
		}
		held.compare(scope)
		if scope == r.Scope {
			r.expect(held)
			retained = held.own.retained
		}
	}

	s, err := r.search(r.all(), r.Scope)
	if err != nil {
		return nil, err
	}
	r.report.Notes = append(r.report.Notes, s.notes...)
	c := s.choiceAt(s.best(coverage, r.keepsCalls(r.Scope)), coverage)
	r.choose(c)
	r.judge(c, r.all(), retained)
	r.noteCoverage(c)
	r.explainCoverage(c)
	return c, nil
}

// folds is the number of folds of the cross-validation.
const folds = 5

// heldOut sums up, over the folds of a cross-validation, what rules do that were chosen and fitted
// without the fold that they decide.
type heldOut struct {
	run   *run
	own   *heldOutRule
	shown map[candidate]*heldOutRule
	order []candidate // of shown
}

// heldOutRule says what a rule does with the inputs held out.
type heldOutRule struct {
	retained []bool // by input
	decided  int    // inputs
	guarded  int    // of them, those that the guard deferred
}

func (r *run) newHeldOut() *heldOut {
	return &heldOut{run: r, own: r.newHeldOutRule(), shown: map[candidate]*heldOutRule{}}
}

func (r *run) newHeldOutRule() *heldOutRule { return &heldOutRule{retained: make([]bool, r.n)} }

// add adds what a choice decides of a fold.
func (h *heldOutRule) add(c *choice, out part) {
	for i, retained := range c.retained(out) {
		h.retained[i] = h.retained[i] || retained
		h.guarded += index(out.holds[i] && c.rule.guarded && c.unfamiliar(i))
	}
	h.decided += out.n
}

// show adds what a rule decides of a fold to those that the comparison shows by name.
func (h *heldOut) show(c *choice, out part) {
	if h.shown[c.rule] == nil {
		h.shown[c.rule] = h.run.newHeldOutRule()
		h.order = append(h.order, c.rule)
	}
	h.shown[c.rule].add(c, out)
}

// compare adds the rules to the comparison, the calibrated one first.
func (h *heldOut) compare(scope policy.Scope) {
	own := h.run.row(calibratedRule, scope, h.run.all(), h.own.retained)
	own.Calibrated = true
	h.run.compare(own)
	for _, rule := range h.order {
		if shown := h.shown[rule]; shown.decided == h.run.n { // every fold has it
			row := h.run.row(rule.String(), scope, h.run.all(), shown.retained)
			row.KeepsCalls = rule.keepsCalls()
			h.run.compare(row)
		}
	}
}

// noteCoverage notes if a choice misses the coverage asked for on its own recording, and if no
// threshold can give that coverage.
func (r *run) noteCoverage(c *choice) {
	own := c.selective(c.part)
	if r.Objective.Reviews > 0 {
		r.noteReviews(own)
		return
	}
	const off = 0.01
	got, asked := own.Coverage(), r.Objective.Coverage
	switch least, most := c.path(c.part, c.scope, c.rule).reach(); {
	case asked < least:
		r.report.note("a coverage of %s cannot be had: %.3g%% of the inputs are retained whatever their score", percent(asked), 100*least)
	case asked > most:
		r.report.note("a coverage of %s cannot be had: %.3g%% of the inputs are deferred whatever their score", percent(asked), 100*(1-most))
	case math.Abs(got-asked) > off+1/float64(r.n):
		r.report.note("a coverage of %s cannot be had: the policy retains %.3g%% of the inputs that it was calibrated on, because many share "+
			"one score or are decided by something else; expect that rather than the figure of the folds", percent(asked), 100*got)
	}
}

// noteReviews says how the reviews come about that the policy makes of its own recording.
func (r *run) noteReviews(own eval.Selective) {
	called, budget := count(r.predictedCritical), r.Objective.Reviews
	safe := own.Inputs - own.Retained - (called - own.Called)
	r.report.note("of %v reviews per 1,000 inputs in all, %.0f are of critical calls, deferred or kept; the policy has %.0f left for inputs "+
		"called safe, and defers %.0f of these", perMille(budget), per1000(called, r.report.Inputs),
		1000*budget-per1000(called, r.report.Inputs), per1000(safe, r.report.Inputs))
}

// explainCoverage says why a candidate was chosen for a coverage.
func (r *run) explainCoverage(c *choice) {
	first := "the best of the paper's scores"
	if r.keepsCalls(r.Scope) {
		first = "the " + policy.PCritical.Words()
	}
	r.report.why("Of %d rules, %s is chosen for missing few critical inputs around %s on all %d inputs. The simplest rule, %s, is kept unless "+
		"another misses fewer by more than one standard error.", len(c.candidates), c.rule.inWords(), r.Objective.budget(), r.report.Inputs, first)
	r.report.why("Its expected figures come from %d-fold cross-validation, in which fitting, choosing and placing thresholds are "+
		"repeated without the inputs that are then decided.", folds)
	r.explainScope()
}

func per1000(n, all int) float64 { return 1000 * float64(n) / float64(max(all, 1)) }
