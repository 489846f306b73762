package calibrate

import (
	"math"
	"slices"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// forCoverage chooses the rule with the lowest critical FNR at a coverage.
//
// The rule of the policy is chosen, and its thresholds are set, on all inputs.
// What is reported of it is measured by an outer cross-validation: choosing and
// fitting is repeated without each fold, and the fold is decided.
func (r *run) forCoverage() error {
	coverage := r.Objective.Coverage
	outer := r.foldsOf(r.all(), folds, newRand(r.Seed, streamOuter))
	r.steps(2*len(outer) + 1)
	r.result.ComparisonBasis = "held-out folds of the recording: every rule was chosen and fitted without the inputs it is measured on"
	r.result.Comparison = append(r.result.Comparison, row("no deferral", policy.AllInputs, r.everything(), r.result.Critical))
	for _, scope := range r.bothScopes() {
		var calibrated eval.Selective
		var plain []rule
		all, _ := rulesFor(r.sample, r.all(), scope, r.Base.ReliabilityThreshold)
		for _, one := range all {
			if one.plain() || one.papers() {
				plain = append(plain, one)
			}
		}
		counts := make([]eval.Selective, len(plain))
		for _, out := range outer {
			rest := r.all().without(out)
			s := r.search(rest, scope, r.pathFNR(rest))
			best, err := s.bestAt(r, coverage)
			if err != nil {
				return err
			}
			addTo(&calibrated, r.count(out, scope, best, s.path(best)(coverage)))
			for i, one := range plain {
				addTo(&counts[i], r.count(out, scope, one, s.path(one)(coverage)))
			}
		}
		own := row("calibrated", scope, calibrated, r.result.Critical)
		own.Calibrated = true
		r.result.Comparison = append(r.result.Comparison, own)
		for i, one := range plain {
			r.result.Comparison = append(r.result.Comparison, row(one.String(), scope, counts[i], r.result.Critical))
		}
		if scope == r.Scope {
			r.expect(calibrated)
		}
	}

	s := r.search(r.all(), r.Scope, r.pathFNR(r.all()))
	r.result.Notes = append(r.result.Notes, s.notes...)
	best, err := s.bestAt(r, coverage)
	if err != nil {
		return err
	}
	t := s.path(best)(coverage)
	r.choose(best, t, len(s.rules))
	r.noteCoverage(r.count(r.all(), r.Scope, best, t))
	r.explainCoverage(best, len(s.rules))
	return nil
}

// nearby is how far from the coverage asked for rules are compared too, with
// Gaussian weights of standard deviation nearbySD: at one coverage a single
// critical input moves the critical FNR, and rules do not differ in that.
const (
	nearby   = 3 // steps to either side
	nearStep = 0.05
	nearSD   = 0.06
)

// handicap, in standard errors of the critical FNR, is by how much a rule that
// was not meant for the task by anyone has to be better: there are many, and the
// best of many is partly luck.
const handicap = 0.2

// bestAt is the rule with the lowest critical FNR around a coverage.
func (s *search) bestAt(r *run, coverage float64) (rule, error) {
	const leastCoverage = 0.05
	var coverages, weights []float64
	for i := -nearby; i <= nearby; i++ {
		if c := coverage + float64(i)*nearStep; i == 0 || c >= leastCoverage && c <= 1+1e-9 {
			coverages = append(coverages, c)
			weights = append(weights, math.Exp(-math.Pow(float64(i)*nearStep/nearSD, 2)/2))
		}
	}
	found, err := s.estimate(r.ctx, coverages, r.Seed)
	if err != nil {
		return rule{}, err
	}
	best, lowest := 0, math.Inf(1)
	for i, one := range s.rules {
		risk, sum := 0.0, 0.0
		for c, w := range weights {
			risk, sum = risk+w*found[i][c].fnr(), sum+w
		}
		risk /= sum
		if !one.plain() {
			at := found[i][slices.Index(coverages, coverage)]
			risk += handicap * math.Sqrt(at.fnr()*(1-at.fnr())/max(at.critical/repeats, 1))
		}
		if risk < lowest {
			best, lowest = i, risk
		}
	}
	return s.rules[best], nil
}

// everything retained.
func (r *run) everything() eval.Selective {
	s := eval.Selective{Inputs: r.n}
	for i := range r.n {
		r.add(&s, i)
	}
	return s
}

func addTo(sum *eval.Selective, s eval.Selective) {
	sum.Inputs += s.Inputs
	sum.Retained += s.Retained
	sum.Correct += s.Correct
	sum.Critical += s.Critical
	sum.Missed += s.Missed
}
