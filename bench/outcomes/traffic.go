package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/ckd-project/ckd/internal/outcome/audit"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// input holds what the policy made of an input of a recording.
type input struct {
	class                          int // the true one
	retained, calledSafe, critical bool
	risk                           float64 // NaN where there is none
	propensity                     float64
	paid                           bool // a review is an audit that costs something
	weight                         float64
}

func (in *input) missed() bool { return in.critical && in.calledSafe }

func (in *input) observation() evidence.Observation {
	return evidence.Observation{Retained: in.retained, Critical: in.critical, Missed: in.missed(), Propensity: in.propensity}
}

// traffic holds inputs that come independently, each as often as its weight says.
type traffic struct{ inputs []input }

// sum adds up the weights of some inputs.
func (t *traffic) sum(counts func(in *input) bool) float64 {
	sum := 0.0
	for i := range t.inputs {
		if in := &t.inputs[i]; counts(in) {
			sum += in.weight
		}
	}
	return sum
}

// all returns the weight of all inputs.
func (t *traffic) all() float64 { return t.sum(func(*input) bool { return true }) }

// risk returns the true risk.
func (t *traffic) risk(of evidence.Risk) float64 {
	missed := t.sum(func(in *input) bool { return in.retained && in.missed() })
	return missed / t.sum(func(in *input) bool { return in.critical && (in.retained || of == evidence.MissRate) })
}

// changed returns the traffic with each input changed.
func (t *traffic) changed(change func(in *input)) *traffic {
	other := &traffic{slices.Clone(t.inputs)}
	for i := range other.inputs {
		change(&other.inputs[i])
	}
	return other
}

// withFNR returns the traffic with another FNR of the retained, by the mix of critical inputs that
// are retained; nil where that cannot be.
func (t *traffic) withFNR(target float64) *traffic {
	now := t.risk(evidence.FNR)
	if !(now > 0 && now < 1 && target < 1) {
		return nil
	}
	return t.changed(func(in *input) {
		switch {
		case !in.critical || !in.retained:
		case in.missed():
			in.weight *= target / now
		default:
			in.weight *= (1 - target) / (1 - now)
		}
	})
}

// reviews draws the inputs that someone looks at and that are steps of a risk. It draws among these
// directly, since no other input changes the evidence.
type reviews struct {
	inputs       []input
	up           []float64 // to each input, the share of reviews up to it
	share        float64   // of all inputs
	paid         float64   // audits as a share of all inputs
	hits, misses float64   // their least propensities
}

// reviewsOf returns the reviews that are steps of a risk under settings.
func (t *traffic) reviewsOf(of evidence.Risk, a policy.Audit) *reviews {
	r := &reviews{
		inputs: t.inputs, up: make([]float64, len(t.inputs)),
		hits: audit.LeastPropensity(&a, receipt.CalledCritical), misses: audit.LeastPropensity(&a, receipt.CalledSafe),
	}
	all := t.all()
	for i := range t.inputs {
		if in := &t.inputs[i]; in.retained || of == evidence.MissRate {
			reviewed := in.weight * in.propensity / all
			r.share += reviewed
			if in.paid {
				r.paid += reviewed
			}
		}
		r.up[i] = r.share
	}
	return r
}

// draw returns the next reviewed input.
func (r *reviews) draw(rng *rand.Rand) *input {
	u := rng.Float64() * r.share
	return &r.inputs[sort.Search(len(r.up)-1, func(i int) bool { return r.up[i] > u })]
}

// gap returns how many inputs come until the next reviewed one, itself included.
func (r *reviews) gap(rng *rand.Rand) float64 {
	return 1 + math.Floor(math.Log(1-rng.Float64())/math.Log1p(-r.share))
}

func (r *reviews) newAlarm(of evidence.Risk, line, runLength float64) *evidence.Alarm {
	a := evidence.NewAlarm(of, line, runLength)
	a.BeginCohort(r.hits)
	return a
}

// The monitors share a level of 1: the pooled ones by weight, and the miss rates of critical classes equally
// what is left.
const weightMiss, weightFNR, weightClasses = 0.5, 0.25, 0.25

// runLength returns the run length, in outcomes, of all monitors together at which at least so many
// inputs lie between false alarms: each monitor counts its own steps.
func runLength(t *traffic, a policy.Audit, between float64) float64 {
	retained, all := t.reviewsOf(evidence.FNR, a), t.reviewsOf(evidence.MissRate, a)
	return between * ((weightMiss+weightClasses)*all.share + weightFNR*retained.share)
}
