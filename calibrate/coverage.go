package calibrate

import (
	"math"
	"slices"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// forCoverage chooses the candidate with the lowest critical FNR at a coverage.
//
// All inputs choose the candidate and its thresholds. An outer cross-validation measures what to
// expect: it repeats choosing and fitting without each fold, and decides the fold.
func (r *run) forCoverage() error {
	coverage := r.Objective.Coverage
	outer := r.foldsOf(r.all(), folds, newRand(r.Seed, streamOuter))
	r.steps(2*len(outer) + 1)
	r.result.ComparisonBasis = "held-out folds of the recording: every rule was chosen and fitted without the inputs it is measured on"
	r.result.Comparison = append(r.result.Comparison, row("no deferral", policy.AllInputs, r.everything(r.all()), r.result.Critical))
	for _, scope := range bothScopes(r.Scope) {
		var calibrated eval.Selective
		var plain []candidate
		all, _ := candidatesFor(r.sample, r.all(), scope, r.reliability())
		for _, one := range all {
			if one.plain() || one.papers() {
				plain = append(plain, one)
			}
		}
		counts := make([]eval.Selective, len(plain))
		for _, out := range outer {
			rest := r.all().without(out)
			s := r.search(rest, scope, r.curveFNR(rest))
			best, err := s.bestAt(r, coverage)
			if err != nil {
				return err
			}
			addTo(&calibrated, r.count(out, scope, best, s.curve(best)(coverage)))
			for i, one := range plain {
				addTo(&counts[i], r.count(out, scope, one, s.curve(one)(coverage)))
			}
		}
		own := row("calibrated", scope, calibrated, r.result.Critical)
		own.Calibrated = true
		r.result.Comparison = append(r.result.Comparison, own)
		for i, one := range plain {
			r.result.Comparison = append(r.result.Comparison, row(one.String(), scope, counts[i], r.result.Critical))
		}
		if scope == r.Scope {
			r.result.expect(calibrated)
		}
	}

	s := r.search(r.all(), r.Scope, r.curveFNR(r.all()))
	r.result.Notes = append(r.result.Notes, s.notes...)
	best, err := s.bestAt(r, coverage)
	if err != nil {
		return err
	}
	t := s.curve(best)(coverage)
	r.choose(best, t, len(s.candidates))
	r.noteCoverage(r.count(r.all(), r.Scope, best, t))
	r.explainCoverage(best, len(s.candidates))
	return nil
}

// Candidates are compared at the requested coverage and at coverages near it, with Gaussian
// weights. At a single coverage one critical input moves the critical FNR, and candidates rarely
// differ.
const (
	nearby   = 3 // steps to either side
	nearStep = 0.05
	nearSD   = 0.06
)

// penalty is the lead, in standard errors of the critical FNR, that a candidate needs if nobody
// would write it by hand. There are many such candidates, and the best of many is partly lucky.
const penalty = 0.2

// bestAt returns the candidate with the lowest critical FNR around a coverage.
func (s *search) bestAt(r *run, coverage float64) (candidate, error) {
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
		return candidate{}, err
	}
	best, lowest := 0, math.Inf(1)
	for i, one := range s.candidates {
		risk, sum := 0.0, 0.0
		for c, w := range weights {
			risk, sum = risk+w*found[i][c].fnr(), sum+w
		}
		risk /= sum
		if !one.plain() {
			at := found[i][slices.Index(coverages, coverage)]
			risk += penalty * math.Sqrt(at.fnr()*(1-at.fnr())/max(at.critical/repeats, 1))
		}
		if risk < lowest {
			best, lowest = i, risk
		}
	}
	return s.candidates[best], nil
}

// everything counts all inputs of a part as retained.
func (s *sample) everything(p part) eval.Selective {
	c := eval.Selective{Inputs: p.n}
	for _, i := range p.inputs() {
		s.add(&c, i)
	}
	return c
}

func addTo(sum *eval.Selective, s eval.Selective) {
	sum.Inputs += s.Inputs
	sum.Retained += s.Retained
	sum.Correct += s.Correct
	sum.Critical += s.Critical
	sum.Missed += s.Missed
}
