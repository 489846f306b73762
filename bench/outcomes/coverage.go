package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/policy"
)

const outcomesOfARun = 10_000

var coverageColumns = []string{"mixed audits", "uniform audits", "FNR doubles half-way, average since",
	"95% Clopper-Pearson, looked at after each"}

// measureCoverage counts the runs in which no interval, after any outcome, left the truth out.
func measureCoverage(b *bench, s *study, t *table) {
	cells := []string{s.name}
	for _, halves := range [][]phase{s.phases(mixed, 1), s.phases(uniform, 1), s.phases(mixed, 2)} {
		cells = append(cells, b.covered(halves))
	}

	// With everything reviewed, a bound that holds once is looked at after every outcome.
	truth := s.traffic.risk(evidence.FNR)
	certain := &traffic{inputs: make([]input, len(s.traffic.inputs)), weights: s.traffic.weights}
	for i, in := range s.traffic.inputs {
		in.propensity = 1
		certain.inputs[i] = in
	}
	r := certain.reviewsOf(evidence.FNR, policy.Audit{Rate: 1, M: 1})
	alarms := count(each(b, b.runs, func(rng *rand.Rand) bool {
		misses, critical := 0, 0
		for range outcomesOfARun {
			in := r.draw(rng)
			if !in.critical {
				continue
			}
			critical++
			if misses += btoi(in.missed()); in.missed() && 1-binomial.Tail(misses-1, critical, truth) <= 0.05 {
				return true
			}
		}
		return false
	}))
	t.add(append(cells, share(alarms, b.runs)+" false alarms")...)
}

// A phase is half a run.
type phase struct {
	reviews          *reviews
	missed, critical float64 // of all inputs, for each step
}

// phases returns the two halves of runs, the second with another FNR; nil where that cannot be.
func (s *study) phases(a audited, times float64) (phases []phase) {
	for half := range 2 {
		t, settings := s.with(a)
		if half == 1 && times != 1 {
			if t = t.withFNR(times * t.risk(evidence.FNR)); t == nil {
				return nil
			}
		}
		p := phase{reviews: t.reviewsOf(evidence.FNR, settings)}
		p.missed = t.share(func(in *input) bool { return in.retained && in.missed() }) / p.reviews.share
		p.critical = t.share(func(in *input) bool { return in.retained && in.critical }) / p.reviews.share
		phases = append(phases, p)
	}
	return phases
}

// covered prints the share of runs in which all intervals held the risk, on average since the
// beginning, with its lower 95% limit.
func (b *bench) covered(phases []phase) string {
	if phases == nil {
		return none
	}
	held := count(each(b, b.runs, func(rng *rand.Rand) bool {
		sequence := evidence.NewSequence(evidence.FNR, 0.95)
		misses, critical := 0., 0. // expected, so far
		grown := 0.
		for _, p := range phases {
			sequence.BeginCohort(p.reviews.hits, p.reviews.misses)
			for n := range outcomesOfARun / len(phases) {
				misses, critical = misses+p.missed, critical+p.critical
				in := p.reviews.draw(rng)
				sequence.Observe(in.observation())
				// Looking is what takes time. Only a miss raises the lower limit, and hits lower the upper
				// one when the wealth that excludes a risk has grown: by at most so much.
				truth := misses / critical
				if in.critical {
					grown += p.reviews.misses / in.propensity * truth / (1 - truth)
				}
				if in.missed() || grown > 0.005 || n%20 == 0 {
					if grown = 0; !sequence.Contains(truth) {
						return false
					}
				}
			}
		}
		return true
	}))
	low, _ := binomial.Interval(held, b.runs, 0.95)
	return fmt.Sprintf("%s [%.3g]", number(float64(held)/float64(b.runs)), low)
}
