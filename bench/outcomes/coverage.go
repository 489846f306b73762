package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/outcome/evidence"
	"github.com/ckd-project/ckd/policy"
)

const outcomesOfARun = 10_000

var coverageColumns = []string{"mixed audits", "uniform audits", "called critical audited too", "miss rate, mixed", "rate of audits changes",
	"FNR doubles half-way, average since", "95% Clopper-Pearson, looked at after each"}

var allAudited = audited{name: "all audited", m: 0.5, critical: policy.CriticalAudited}

// measureCoverage counts the runs in which no interval, after any outcome, left the truth out.
func measureCoverage(b *bench, s *study, t *table) {
	cells := []string{s.name}
	for _, a := range []audited{mixed, uniform, allAudited} {
		cells = append(cells, b.covered(s.phases(evidence.FNR, a, a, 1)))
	}
	more := mixed
	more.times = 3
	cells = append(cells, b.covered(s.phases(evidence.MissRate, mixed, mixed, 1)),
		b.covered(s.phases(evidence.FNR, mixed, more, 1)), b.covered(s.phases(evidence.FNR, mixed, mixed, 2)))

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
	of               evidence.Risk
	reviews          *reviews
	missed, critical float64 // of all inputs, for each step
}

// phases returns the two halves of runs: under two settings, and with another FNR in the second half.
func (s *study) phases(of evidence.Risk, first, second audited, times float64) (phases []phase) {
	for i, a := range []audited{first, second} {
		t, settings := s.with(a)
		if i == 1 && times != 1 {
			if t = t.withFNR(times * t.risk(evidence.FNR)); t == nil {
				return nil
			}
		}
		p := phase{of: of, reviews: t.reviewsOf(of, settings)}
		missed, critical := t.rates(of)
		p.missed, p.critical = missed/p.reviews.share, critical/p.reviews.share
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
		sequence := evidence.NewSequence(phases[0].of, 0.95)
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

// rates returns the missed and the critical inputs of a risk as shares of all inputs.
func (t *traffic) rates(of evidence.Risk) (missed, critical float64) {
	return t.share(func(in *input) bool { return in.retained && in.missed() }),
		t.share(func(in *input) bool { return in.critical && (in.retained || of == evidence.MissRate) })
}

var widthColumns = []string{"mixed audits", "uniform audits", "called critical audited too"}

// measureWidth gives the median width of the interval after 2,000 audits that cost something.
func measureWidth(b *bench, s *study, t *table) {
	cells := []string{s.name}
	for _, a := range []audited{mixed, uniform, allAudited} {
		traffic, settings := s.with(a)
		r := traffic.reviewsOf(evidence.FNR, settings)
		widths := each(b, b.runs/4, func(rng *rand.Rand) float64 {
			sequence := r.newSequence(evidence.FNR)
			for paid := 0; paid < 2000; {
				in := r.draw(rng)
				paid += btoi(in.paid)
				sequence.Observe(in.observation())
			}
			low, high := sequence.Interval()
			return high - low
		})
		cells = append(cells, number(quantile(widths, 0.5)))
	}
	t.add(cells...)
}

var biasColumns = []string{"truth", "mixed", "uniform", "mixed, called critical audited too", "unweighted, mixed: wrong"}

// measureBias gives the mean of the estimate after 10,000 outcomes, and how many standard errors of
// that mean it is off.
func measureBias(b *bench, s *study, t *table) {
	truth := s.traffic.risk(evidence.FNR)
	cells := []string{s.name, number(truth)}
	var unweighted []float64
	for _, a := range []audited{mixed, uniform, allAudited} {
		traffic, settings := s.with(a)
		r := traffic.reviewsOf(evidence.FNR, settings)
		estimates := each(b, b.runs, func(rng *rand.Rand) evidence.Estimate {
			e := evidence.Estimate{Of: evidence.FNR}
			for range outcomesOfARun {
				e.Observe(r.draw(rng).observation())
			}
			return e
		})
		cells = append(cells, biasOf(estimates, truth))
		if a == mixed {
			for _, e := range estimates {
				unweighted = append(unweighted, float64(e.Misses)/float64(e.Critical))
			}
		}
	}
	wrong, _ := mean(unweighted)
	t.add(append(cells, number(wrong))...)
}

// biasOf prints the mean of estimates, and how many of its standard errors it is off.
func biasOf(estimates []evidence.Estimate, truth float64) string {
	var values []float64
	for _, e := range estimates {
		values = append(values, e.Value())
	}
	average, se := mean(values)
	return fmt.Sprintf("%.4f (%+.1f)", average, (average-truth)/se)
}
