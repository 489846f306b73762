package main

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/ckd-project/ckd/internal/outcome/audit"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// reviews draws the inputs that someone looks at and that are steps of a risk. It draws among these
// directly, since no other input changes the evidence.
type reviews struct {
	inputs       []input
	alias        *alias
	share        float64 // of all inputs
	paid         float64 // audits as a share of all inputs
	hits, misses float64 // their least propensities
}

// reviewsOf returns the reviews that are steps of a risk under settings.
func (t *traffic) reviewsOf(of evidence.Risk, a policy.Audit) *reviews {
	r := &reviews{inputs: t.inputs}
	r.hits, r.misses = leastPropensities(a)
	weights := make([]float64, len(t.inputs))
	all := t.sum(func(*input) bool { return true })
	for i := range t.inputs {
		in := &t.inputs[i]
		if !in.retained && of == evidence.FNR {
			continue
		}
		weights[i] = t.weights[i] * in.propensity
		r.share += weights[i] / all
		if in.paid {
			r.paid += weights[i] / all
		}
	}
	r.alias = newAlias(weights)
	return r
}

// leastPropensities returns those of hits and of misses.
func leastPropensities(a policy.Audit) (hits, misses float64) {
	return audit.LeastPropensity(&a, receipt.CalledCritical), audit.LeastPropensity(&a, receipt.CalledSafe)
}

// draw returns the next reviewed input.
func (r *reviews) draw(rng *rand.Rand) *input { return &r.inputs[r.alias.draw(rng)] }

// gap returns how many inputs come until the next reviewed one, itself included.
func (r *reviews) gap(rng *rand.Rand) float64 {
	return 1 + math.Floor(math.Log(1-rng.Float64())/math.Log1p(-r.share))
}

func (r *reviews) newAlarm(of evidence.Risk, line, runLength float64) *evidence.Alarm {
	a := evidence.NewAlarm(of, line, runLength)
	a.BeginCohort(r.hits)
	return a
}

// Weights of the pooled monitors; the critical classes share the rest.
const weightFNR, weightMiss, weightClasses = 0.5, 0.25, 0.25

// runLength returns the run length, in outcomes, of all monitors together at which at least so many
// inputs lie between false alarms: each monitor counts its own steps.
func runLength(t *traffic, a policy.Audit, between float64) float64 {
	retained, all := t.reviewsOf(evidence.FNR, a), t.reviewsOf(evidence.MissRate, a)
	return between * ((weightFNR+weightClasses)*retained.share + weightMiss*all.share)
}

// inParallel runs f with the random numbers of each run.
func (b *bench) inParallel(runs int, f func(run int, rng *rand.Rand)) {
	var workers sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for w := range n {
		workers.Go(func() {
			for run := w; run < runs; run += n {
				f(run, rand.New(rand.NewPCG(b.seed, uint64(run+1000))))
			}
		})
	}
	workers.Wait()
}

// each returns what f returns of each run.
func each[T any](b *bench, runs int, f func(rng *rand.Rand) T) []T {
	all := make([]T, runs)
	b.inParallel(runs, func(run int, rng *rand.Rand) { all[run] = f(rng) })
	return all
}

// count counts those that are true.
func count(all []bool) (n int) {
	for _, v := range all {
		n += btoi(v)
	}
	return n
}
