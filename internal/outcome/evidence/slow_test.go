package evidence_test

import (
	"math"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
)

// A slow follows the definitions: it keeps Z of each step and the least propensities that it was
// observed under, and computes everything anew.
type slow struct {
	risk  evidence.Risk
	steps []slowStep
}

type slowStep struct {
	o                        evidence.Observation
	leastAlarm, leastHolding float64
}

// z returns Z(a) of an observation, and whether it is a step.
func (s slow) z(o evidence.Observation, a float64) (float64, bool) {
	r, m, c := number(o.Retained), number(o.Missed && o.Critical), number(o.Critical)
	if s.risk == evidence.FNR {
		return r * (m - a*c) / o.Propensity, o.Retained
	}
	return (r*m - a*c) / o.Propensity, true
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// alarm returns the Shiryaev-Roberts evidence against the line a.
func (s slow) alarm(a float64) float64 {
	mean := 0.0
	for k := range 10 {
		r := 0.0
		for _, step := range s.steps {
			z, ok := s.z(step.o, a)
			if !ok {
				continue
			}
			lambda := 0.98 * step.leastAlarm / a * math.Pow(2, -float64(k))
			r = (1 + r) * (1 + lambda*z)
		}
		mean += r / 10
	}
	return mean
}

// wealth returns log K+ and log K- at a.
func (s slow) wealth(a float64, bets int) (above, below float64) {
	var up, down []float64
	for k := range bets {
		u, d := 0.0, 0.0
		for _, step := range s.steps {
			z, _ := s.z(step.o, a)
			u += math.Log(1 + 0.98*step.leastAlarm/a*math.Pow(2, -float64(k))*z)
			d += math.Log(1 - 0.98*step.leastHolding/(1-a)*math.Pow(2, -float64(k))*z)
		}
		up, down = append(up, u), append(down, d)
	}
	return logMean(up), logMean(down)
}

func logMean(logs []float64) float64 {
	most, sum := math.Inf(-1), 0.0
	for _, l := range logs {
		most = math.Max(most, l)
	}
	for _, l := range logs {
		sum += math.Exp(l-most) / float64(len(logs))
	}
	return most + math.Log(sum)
}

// interval returns the limits by bisection from the weighted estimate.
func (s slow) interval(level float64, bets int) (low, high float64) {
	missed, critical := 0.0, 0.0
	for _, step := range s.steps {
		z0, _ := s.z(step.o, 0)
		z1, _ := s.z(step.o, 1)
		missed, critical = missed+z0, critical+z0-z1
	}
	inside := func(a float64) bool {
		u, d := s.wealth(a, bets)
		return math.Max(u, d)+math.Log1p(math.Exp(-math.Abs(u-d)))-math.Ln2 < -math.Log(1-level)
	}
	bisect := func(accepted, refuted float64) float64 {
		if inside(refuted) {
			return refuted
		}
		for range 60 {
			if middle := (accepted + refuted) / 2; inside(middle) {
				accepted = middle
			} else {
				refuted = middle
			}
		}
		return accepted
	}
	const edge = 1e-9
	estimate := math.Max(edge, math.Min(missed/critical, 1-edge))
	return bisect(estimate, edge), bisect(estimate, 1-edge)
}
