package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"gonum.org/v1/gonum/stat"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/policy"
)

const lineColumns = "inputs between false alarms: stated | lower limit / stated"

// lineRow measures the inputs between false alarms of all monitors of a policy, with every line at
// the true risk, where false alarms are most frequent. It cuts runs at twice the stated length.
func lineRow(s *study) []string {
	const between = between / 10 // saves time: a longer run length is no other claim
	const cut = 2
	traffic, settings := s.audited(mixed)
	stated := runLength(traffic, settings, between)
	r := traffic.reviewsOf(evidence.MissRate, settings)
	lengths := each(runs/2, func(rng *rand.Rand) float64 {
		missRate := r.newAlarm(evidence.MissRate, s.traffic.risk(evidence.MissRate), stated/weightMiss)
		fnr := r.newAlarm(evidence.FNR, s.traffic.risk(evidence.FNR), stated/weightFNR)
		classes := map[int]*evidence.Alarm{}
		for _, k := range s.policy.Critical {
			ofClass := s.traffic.changed(func(in *input) { in.critical = in.class == k })
			classes[k] = r.newAlarm(evidence.MissRate, ofClass.risk(evidence.MissRate), stated/weightClasses*float64(len(s.policy.Critical)))
		}
		for n := 1.; ; n++ {
			in := r.draw(rng)
			o := in.observation()
			missRate.Observe(o)
			fnr.Observe(o)
			raised := missRate.Raised() || fnr.Raised() || n >= cut*stated
			for k, a := range classes {
				o.Critical = in.class == k
				a.Observe(o)
				raised = raised || a.Raised()
			}
			if raised {
				return n
			}
		}
	})
	mean, sd := stat.MeanStdDev(lengths, nil)
	return []string{number(between), number((mean - 1.96*stat.StdErr(sd, runs/2)) / stated)}
}

const coverageColumns = "mixed audits | uniform audits | FNR doubles half-way, average since | 95% Clopper-Pearson, looked at after each"

const outcomesOfARun = 10_000

// coverageRow counts the runs in which no interval, after any outcome, left the truth out.
func coverageRow(s *study) (cells []string) {
	for _, halves := range [][]phase{s.phases(mixed, 1), s.phases(uniform, 1), s.phases(mixed, 2)} {
		cells = append(cells, covered(halves))
	}
	// With everything reviewed, a bound that holds once is looked at after every outcome.
	truth := s.traffic.risk(evidence.FNR)
	r := s.traffic.changed(func(in *input) { in.propensity = 1 }).reviewsOf(evidence.FNR, policy.Audit{Rate: 1, M: 1})
	alarms := count(each(runs, func(rng *rand.Rand) bool {
		misses, critical := 0, 0
		for range outcomesOfARun {
			in := r.draw(rng)
			if !in.critical {
				continue
			}
			critical++
			if !in.missed() {
				continue
			}
			if misses++; 1-binomial.Tail(misses-1, critical, truth) <= 0.05 {
				return true
			}
		}
		return false
	}))
	return append(cells, fmt.Sprintf("%.3g%% false alarms", 100*float64(alarms)/runs))
}

// phase holds the traffic of a run before or after its change.
type phase struct {
	reviews          *reviews
	missed, critical float64 // of all inputs, for each step
}

// phases returns the two halves of runs, the second with another FNR; nil where that cannot be.
func (s *study) phases(a audited, times float64) (phases []phase) {
	for half := range 2 {
		t, settings := s.audited(a)
		if half == 1 && times != 1 {
			if t = t.withFNR(times * t.risk(evidence.FNR)); t == nil {
				return nil
			}
		}
		p := phase{reviews: t.reviewsOf(evidence.FNR, settings)}
		steps := t.all() * p.reviews.share
		p.missed = t.sum(func(in *input) bool { return in.retained && in.missed() }) / steps
		p.critical = t.sum(func(in *input) bool { return in.retained && in.critical }) / steps
		phases = append(phases, p)
	}
	return phases
}

// covered prints the share of runs in which all intervals held the risk, on average since the
// beginning, with its lower 95% limit.
func covered(phases []phase) string {
	if phases == nil {
		return none
	}
	held := count(each(runs, func(rng *rand.Rand) bool {
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
	low, _ := binomial.Interval(held, runs, 0.95)
	return fmt.Sprintf("%s [%.3g]", number(float64(held)/runs), low)
}

const delayColumns = "FNR | audits per 1,000 inputs | doubles: mixed | uniform | triples: mixed | uniform | inputs until a doubling, mixed"

// delayRow counts the paid audits from a change to the alarm, after a good period: medians, and what
// 90% of the runs do not exceed.
func delayRow(s *study) []string {
	const goodOutcomes, lineFactor = 1000, 1.5 // the line over the FNR of the good period
	fnr := s.traffic.risk(evidence.FNR)
	delays := func(a audited, times float64) (audits, inputs string) {
		good, settings := s.audited(a)
		bad := good.withFNR(times * lineFactor * fnr)
		if bad == nil {
			return none, none
		}
		limit := runLength(good, settings, between) / weightFNR
		before, after := good.reviewsOf(evidence.FNR, settings), bad.reviewsOf(evidence.FNR, settings)
		all := each(runs/2, func(rng *rand.Rand) (passed [2]float64) {
			alarm := before.newAlarm(evidence.FNR, lineFactor*fnr, limit)
			for range goodOutcomes {
				alarm.Observe(before.draw(rng).observation())
			}
			for !alarm.Raised() {
				in := after.draw(rng)
				passed[1] += after.gap(rng)
				if in.paid {
					passed[0]++
				}
				alarm.Observe(in.observation())
			}
			return passed
		})
		spread := func(which int) string {
			values := make([]float64, len(all))
			for i := range all {
				values[i] = all[i][which]
			}
			slices.Sort(values)
			return fmt.Sprintf("%s [%s]", number(stat.Quantile(0.5, stat.Empirical, values, nil)), number(stat.Quantile(0.9, stat.Empirical, values, nil)))
		}
		return spread(0), spread(1)
	}
	twice, inputs := delays(mixed, 2)
	twiceUniform, _ := delays(uniform, 2)
	thrice, _ := delays(mixed, 3)
	thriceUniform, _ := delays(uniform, 3)
	return []string{
		number(fnr), number(1000 * s.traffic.reviewsOf(evidence.FNR, *s.policy.Audit).paid), twice, twiceUniform, thrice, thriceUniform, inputs,
	}
}

// each returns what f returns of each run, with the random numbers of that run.
func each[T any](runs int, f func(rng *rand.Rand) T) []T {
	all := make([]T, runs)
	var workers sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for w := range n {
		workers.Go(func() {
			for run := w; run < runs; run += n {
				all[run] = f(rand.New(rand.NewPCG(seed, uint64(run+1000))))
			}
		})
	}
	workers.Wait()
	return all
}

// count counts those that are true.
func count(all []bool) (n int) {
	for _, v := range all {
		if v {
			n++
		}
	}
	return n
}

// none stands where nothing was measured.
const none = "n/a"

// number prints a figure with three digits that matter, and thousands apart.
func number(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.3g", v)
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-2)
	digits := fmt.Sprintf("%.0f", math.Round(v/unit)*unit)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
