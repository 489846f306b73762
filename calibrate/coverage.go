package calibrate

import (
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// forCoverage chooses the candidate that misses fewest critical inputs at a coverage, or has the
// lowest critical FNR where that is asked for.
//
// All inputs choose the candidate and its thresholds. An outer cross-validation measures what to
// expect: it repeats fitting, choosing and placing thresholds without each fold, and decides the
// fold.
func forCoverage(r *run, to *reporter) (*choice, error) {
	coverage := r.Objective.coverage()
	outer := r.foldsOf(r.all(), folds, newRand(r.Seed, streamOuter))
	r.steps.announce(2*len(outer) + 1)
	to.ComparisonBasis = "held-out folds of the recording: every rule was chosen and fitted without the inputs it is measured on"
	to.compareNone()
	for _, scope := range bothScopes(r.Scope) {
		held := newHeldOut(r)
		for _, out := range outer {
			if err := held.decide(scope, out); err != nil {
				return nil, err
			}
		}
		held.compare(to, scope)
		if scope == r.Scope {
			to.expect(r.all(), held.own.retained)
			to.noteServed(r.all(), r.selective(r.all(), held.own.retained))
			to.byClass = r.classLines(held.own.retained)
		}
	}

	s, err := r.search(r.all(), r.Scope, r.curveFNR(r.all()))
	if err != nil {
		return nil, err
	}
	to.Notes = append(to.Notes, s.notes...)
	best, err := s.bestAt(r, coverage)
	if err != nil {
		return nil, err
	}
	c := &choice{s, best, s.curve(best)(coverage)}
	to.choose(c)
	to.noteCoverage(c)
	to.explainCoverage(c)
	return c, nil
}

// heldOut sums up, over the folds of an outer cross-validation, what rules do that were chosen and
// fitted without the fold that they decide.
type heldOut struct {
	run        *run
	own, naive *heldOutRule
	shown      map[candidate]*heldOutRule
	order      []candidate // of shown
}

// heldOutRule says what a rule retains of the inputs held out.
type heldOutRule struct {
	retained []bool // by input
	decided  int    // inputs
	// unfamiliar is the share of the unfamiliar inputs that it defers, on average over the folds.
	unfamiliar float64
}

func newHeldOut(r *run) *heldOut {
	h := &heldOut{run: r, shown: map[candidate]*heldOutRule{}}
	h.own, h.naive = h.rule(), h.rule()
	return h
}

func (h *heldOut) rule() *heldOutRule { return &heldOutRule{retained: make([]bool, h.run.n)} }

// decide adds a fold.
func (h *heldOut) decide(scope policy.Scope, out part) error {
	r, coverage := h.run, h.run.Objective.coverage()
	rest := r.all().without(out)
	s, err := r.search(rest, scope, r.curveFNR(rest))
	if err != nil {
		return err
	}
	best, err := s.bestAt(r, coverage)
	if err != nil {
		return err
	}
	add := func(rule *heldOutRule, one candidate) { h.add(rule, &choice{s, one, s.curve(one)(coverage)}, out) }
	add(h.own, best)
	add(h.naive, s.naive(coverage))
	for _, one := range s.shown() {
		h.show(&choice{s, one, s.curve(one)(coverage)}, out)
	}
	return nil
}

// add adds what a choice decides of a fold to a rule.
func (h *heldOut) add(rule *heldOutRule, c *choice, out part) {
	for i, retained := range c.retained(out) {
		rule.retained[i] = rule.retained[i] || retained
	}
	rule.decided += out.n
	rule.unfamiliar += c.deferredOf(h.run.unfamiliar, c.one, c.at) / folds
}

// show adds a rule to those that the comparison shows by name.
func (h *heldOut) show(c *choice, out part) {
	if h.shown[c.one] == nil {
		h.shown[c.one] = h.rule()
		h.order = append(h.order, c.one)
	}
	h.add(h.shown[c.one], c, out)
}

// compare adds the rules to the comparison, the calibrated one first.
func (h *heldOut) compare(to *reporter, scope policy.Scope) {
	row := func(name string, of *heldOutRule) Row {
		row := to.row(name, scope, h.run.all(), of.retained)
		if h.run.unfamiliar != nil {
			row.UnfamiliarDeferred = &of.unfamiliar
		}
		return row
	}
	own := row("calibrated", h.own)
	own.Calibrated = true
	to.compare(own, row(naivePick, h.naive))
	for _, one := range h.order {
		if shown := h.shown[one]; shown.decided == h.run.n { // every fold has it
			to.compare(row(one.String(), shown))
		}
	}
}

// shown returns the candidates that stand in the comparison by name: what someone might write by
// hand, the paper's rules, and the guarded rules without their guard.
func (s *search) shown() (all []candidate) {
	for _, one := range s.candidates {
		if !one.plain() && !one.papers() {
			continue
		}
		all = append(all, one)
		if one.guarded {
			one.guarded = false
			all = append(all, one)
		}
	}
	return all
}

// deferredOf returns the share of unfamiliar inputs that a candidate defers; 0 where there are none.
func (s *search) deferredOf(unfamiliar *sample, one candidate, t thresholds) float64 {
	if unfamiliar == nil {
		return 0
	}
	with := *unfamiliar
	with.guard = s.final.guard
	if s.model != nil {
		with.risk = s.riskOf(with.table)
	}
	deferred := 0
	for i := range with.n {
		deferred += index(!with.retains(i, s.scope, one, t))
	}
	return float64(deferred) / float64(with.n)
}

// naive returns the one of the paper's scores that misses fewest inputs of the part itself at a
// coverage: what a person would pick from a table, without folds or a model.
func (s *search) naive(coverage float64) candidate {
	var best candidate
	fewest := math.MaxInt
	for _, one := range s.candidates {
		if one.gate != policy.Never || !one.primary.InPaper() {
			continue
		}
		if missed := s.count(s.part, s.scope, one, s.curve(one)(coverage)).Missed; missed < fewest {
			best, fewest = one, missed
		}
	}
	if fewest == math.MaxInt {
		return s.candidates[0]
	}
	return best
}

// Candidates are compared at the requested coverage and at coverages near it, with Gaussian
// weights. At a single coverage one critical input moves the figures, and candidates rarely differ.
const (
	nearby   = 3 // steps to either side
	nearStep = 0.05
	nearSD   = 0.06
)

// near returns the coverages around one, with weights whose sum is 1.
func near(coverage float64) (coverages, weights []float64) {
	const leastCoverage = 0.05
	sum := 0.0
	for i := -nearby; i <= nearby; i++ {
		if c := coverage + float64(i)*nearStep; i == 0 || c >= leastCoverage && c <= 1+1e-9 {
			w := math.Exp(-math.Pow(float64(i)*nearStep/nearSD, 2) / 2)
			coverages, weights, sum = append(coverages, c), append(weights, w), sum+w
		}
	}
	for i := range weights {
		weights[i] /= sum
	}
	return coverages, weights
}

// penalty is the lead, in standard errors of the critical FNR, that a candidate needs if nobody
// would write it by hand. There are many such candidates, and the best of many is partly lucky.
const penalty = 0.2

// lowestFNR returns the candidate with the lowest critical FNR around a coverage: the paper's
// objective.
func (s *search) lowestFNR(found [][]counts, coverages, weights []float64, at int) candidate {
	best, lowest := 0, math.Inf(1)
	for i, one := range s.candidates {
		risk := 0.0
		for c, w := range weights {
			risk += w * found[i][c].fnr()
		}
		if !one.plain() {
			at := found[i][at]
			risk += penalty * math.Sqrt(at.fnr()*(1-at.fnr())/max(at.critical/repeats, 1))
		}
		if risk < lowest {
			best, lowest = i, risk
		}
	}
	return s.candidates[best]
}

// bestAt returns the candidate that is best around a coverage by the objective.
//
// Where misses count, rules are compared in an order, on inputs that did not fit them: the best of
// the paper's scores, p_critical, risk, the best gate. leadOver says when one takes the place of that
// before it. Of two that miss equally many, the first stays.
func (s *search) bestAt(r *run, coverage float64) (candidate, error) {
	coverages, weights := near(coverage)
	found, err := s.estimate(r.ctx, coverages, r.Seed)
	if err != nil {
		return candidate{}, err
	}
	if r.Objective.Minimize == CriticalFNR {
		return s.lowestFNR(found, coverages, weights, slices.Index(coverages, coverage)), nil
	}
	fewest := map[int]int{} // the best candidate of each place in the order
	lowest := map[int]float64{}
	for i, one := range s.candidates {
		missed := 0.0
		for c, w := range weights {
			missed += w * found[i][c].missed
		}
		place := one.place()
		if _, has := fewest[place]; !has || missed < lowest[place] {
			fewest[place], lowest[place] = i, missed
		}
	}
	var ordered []candidate
	for place := range places {
		if i, has := fewest[place]; has {
			ordered = append(ordered, s.candidates[i])
		}
	}
	missed, err := s.pair(r, ordered, coverages, weights)
	if err != nil {
		return candidate{}, err
	}
	best := 0
	for i := 1; i < len(ordered); i++ {
		fewer, se := missed.difference(best, i)
		if needed := leadOver(ordered[best].place(), ordered[i].place()); fewer != 0 && fewer > needed*se {
			best = i
		}
	}
	return ordered[best], nil
}

// The places of candidates in the order in which they are compared.
const (
	placeScore = iota
	placePCritical
	placeRisk
	placeGate
	places
)

func (r candidate) place() int {
	switch {
	case r.gate != policy.Never:
		return placeGate
	case r.primary == riskScore:
		return placeRisk
	case r.primary == decomp.PCritical:
		return placePCritical
	}
	return placeScore
}

// leadOver returns by how many standard errors of the paired difference the rule of a place must miss
// fewer than the one before it, to take its place. A gate is the best of very many. The best of ten
// scores was picked by the same folds that count its misses, which flatters it: p_critical and risk
// take its place even if they miss more, by less than a standard error.
func leadOver(before, place int) float64 {
	switch {
	case place == placeGate:
		return 2
	case before == placeScore:
		return -1
	}
	return 0
}

func addTo(sum *eval.Selective, s eval.Selective) {
	sum.Inputs += s.Inputs
	sum.Retained += s.Retained
	sum.Correct += s.Correct
	sum.Critical += s.Critical
	sum.Missed += s.Missed
	sum.Called += s.Called
	sum.FalseCalls += s.FalseCalls
}
