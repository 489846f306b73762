package main

import (
	"math/rand/v2"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
)

// An input is one of a recording as the policy left it.
type input struct {
	row                            int // in the table of the recording
	class                          int // the true one
	retained, calledSafe, critical bool
	risk                           float64 // NaN where there is none
	propensity                     float64
	paid                           bool // a review is an audit that costs something
}

func (in *input) missed() bool { return in.critical && in.calledSafe }

func (in *input) observation() evidence.Observation {
	return evidence.Observation{Retained: in.retained, Critical: in.critical, Missed: in.missed(), Propensity: in.propensity}
}

// A traffic is inputs that come independently, each as often as its weight says.
type traffic struct {
	inputs  []input
	weights []float64
}

// sum adds up the weights of some inputs.
func (t *traffic) sum(of func(in *input) bool) float64 {
	sum := 0.0
	for i := range t.inputs {
		if of(&t.inputs[i]) {
			sum += t.weights[i]
		}
	}
	return sum
}

// share returns the share of inputs.
func (t *traffic) share(of func(in *input) bool) float64 {
	return t.sum(of) / t.sum(func(*input) bool { return true })
}

// risk returns the true risk.
func (t *traffic) risk(of evidence.Risk) float64 {
	missed := t.sum(func(in *input) bool { return in.retained && in.missed() })
	return missed / t.sum(func(in *input) bool { return in.critical && (in.retained || of == evidence.MissRate) })
}

// reweighted returns the traffic with the weight of each input multiplied.
func (t *traffic) reweighted(factor func(in *input) float64) *traffic {
	r := &traffic{inputs: t.inputs, weights: make([]float64, len(t.weights))}
	for i := range t.inputs {
		r.weights[i] = t.weights[i] * factor(&t.inputs[i])
	}
	return r
}

// withFNR returns the traffic with another FNR of the retained, by the mix of critical inputs that
// are retained; nil where that cannot be.
func (t *traffic) withFNR(target float64) *traffic {
	now := t.risk(evidence.FNR)
	if !(now > 0 && now < 1 && target < 1) {
		return nil
	}
	return t.reweighted(func(in *input) float64 {
		switch {
		case !in.critical || !in.retained:
			return 1
		case in.missed():
			return target / now
		}
		return (1 - target) / (1 - now)
	})
}

// An alias draws inputs with given weights in constant time (Walker 1977, Vose 1991).
type alias struct {
	inputs []int
	keep   []float64
	other  []int
}

func newAlias(weights []float64) *alias {
	a := &alias{}
	sum := 0.0
	for i, w := range weights {
		if w > 0 {
			a.inputs = append(a.inputs, i)
			sum += w
		}
	}
	n := len(a.inputs)
	a.keep, a.other = make([]float64, n), make([]int, n)
	var small, large []int
	for j, i := range a.inputs {
		a.keep[j], a.other[j] = weights[i]/sum*float64(n), j
		if a.keep[j] < 1 {
			small = append(small, j)
		} else {
			large = append(large, j)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		a.other[s] = l
		a.keep[l] -= 1 - a.keep[s]
		if a.keep[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	return a
}

func (a *alias) draw(rng *rand.Rand) int {
	j := rng.IntN(len(a.inputs))
	if rng.Float64() < a.keep[j] {
		return a.inputs[j]
	}
	return a.inputs[a.other[j]]
}
