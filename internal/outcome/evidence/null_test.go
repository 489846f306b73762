package evidence

import (
	"math"
	"testing"
)

// A population is one kind of input per row, with its probability. The last row fills up to 1.
type population []struct {
	share float64
	Observation
}

// populationsAt returns populations in which the FNR is exactly a, as the first row is given the share that
// makes it so.
func populationsAt(a float64) map[string]population {
	retained := func(share float64, critical, missed bool, propensity float64) struct {
		share float64
		Observation
	} {
		return struct {
			share float64
			Observation
		}{share, Observation{Retained: true, Critical: critical, Missed: missed, Propensity: propensity}}
	}
	// hits and misses, the latter a share a of both.
	split := func(critical float64) (hits, misses float64) { return critical * (1 - a), critical * a }
	const half, most = 0.4, 0.9 // shares of critical inputs
	h, m := split(half)
	h9, m9 := split(most)
	return map[string]population{
		"uniform":        {retained(m, true, true, 0.1), retained(h, true, false, 0.1), retained(1-half, false, false, 0.1)},
		"hits are free":  {retained(m, true, true, 0.05), retained(h, true, false, 1), retained(1-half, false, false, 0.05)},
		"mixed audits":   {retained(m/3, true, true, 0.05), retained(2*m/3, true, true, 0.4), retained(h, true, false, 0.1), retained(1-half, false, false, 0.05)},
		"nearly all":     {retained(m9, true, true, 0.3), retained(h9, true, false, 0.6), retained(1-most, false, false, 0.3)},
		"hits by chance": {retained(m, true, true, 0.2), retained(h/2, true, false, 0.2), retained(h/2, true, false, 0.9), retained(1-half, false, false, 0.2)},
	}
}

// withDeferred returns populations in which the critical miss rate is exactly a: deferred inputs stand
// beside those retained, and a deferred critical input takes the place of a hit. Inputs of other critical
// classes are uncritical to the risk of one class.
func withDeferred(a float64) map[string]population {
	row := func(share float64, o Observation) struct {
		share float64
		Observation
	} {
		return struct {
			share float64
			Observation
		}{share, o}
	}
	miss := Observation{Retained: true, Critical: true, Missed: true, Propensity: 0.05}
	hit := Observation{Retained: true, Critical: true, Propensity: 0.05}
	deferred := Observation{Critical: true, Propensity: 1}
	otherClass := Observation{Retained: true, Missed: true, Propensity: 0.05}
	const critical = 0.4
	h, m := critical*(1-a), critical*a
	return map[string]population{
		"all deferred":    {row(m, miss), row(h, deferred), row(1-critical, Observation{Retained: true, Propensity: 0.05})},
		"half deferred":   {row(m, miss), row(h/2, hit), row(h/2, deferred), row(1-critical, Observation{Propensity: 1})},
		"another class":   {row(m, miss), row(h/3, hit), row(2*h/3, deferred), row(1-critical, otherClass)},
		"mostly deferred": {row(m, Observation{Retained: true, Critical: true, Missed: true, Propensity: 0.4}), row(h/9, hit), row(8*h/9, deferred), row(1-critical, otherClass)},
	}
}

// least returns the least propensities of hits and of misses.
func (p population) least() (hits, misses float64) {
	hits, misses = 1, 1
	for _, row := range p {
		if row.Missed {
			misses = min(misses, row.Propensity)
		} else if row.Critical {
			hits = min(hits, row.Propensity)
		}
	}
	return hits, misses
}

// eachRun calls f with each course of n reviewed inputs and its probability.
func (p population) eachRun(n int, f func(probability float64, run []Observation)) {
	reviewed := 0.0
	for _, row := range p {
		reviewed += row.share * row.Propensity
	}
	var walk func(probability float64, run []Observation)
	walk = func(probability float64, run []Observation) {
		if len(run) == n {
			f(probability, run)
			return
		}
		for _, row := range p {
			walk(probability*row.share*row.Propensity/reviewed, append(run[:len(run):len(run)], row.Observation))
		}
	}
	walk(1, nil)
}

// nullsAt returns populations with the risk that is exactly a in each.
func nullsAt(a float64) map[string]struct {
	risk Risk
	population
} {
	all := make(map[string]struct {
		risk Risk
		population
	})
	for risk, populations := range map[Risk]map[string]population{FNR: populationsAt(a), MissRate: withDeferred(a)} {
		for name, p := range populations {
			all[risk.String()+" "+name] = struct {
				risk Risk
				population
			}{risk, p}
		}
	}
	return all
}

// TestNull enumerates every course of five reviewed inputs: where the risk is a, no wealth is
// expected to grow, and the evidence grows by one a step.
func TestNull(t *testing.T) {
	const steps = 5
	for _, point := range []int{25, 40, 50, 60, 80} { // risks from 0.002 to 0.95
		a := riskAt(float64(point))
		for name, c := range nullsAt(a) {
			t.Run(name, func(t *testing.T) {
				hits, misses := c.least()
				above, below, evidence := 0.0, 0.0, 0.0
				c.eachRun(steps, func(probability float64, run []Observation) {
					s, alarm := NewSequence(c.risk, 0.95), NewAlarm(c.risk, a, 1e9)
					s.above.points, s.below.points = s.above.points[:1], s.below.points[:1] // one is quick
					one, other := [points]float64{grid[0][point]}, [points]float64{grid[1][point]}
					s.above.odds, s.below.odds = &one, &other
					s.BeginCohort(hits, misses)
					alarm.BeginCohort(hits)
					for _, o := range run {
						s.Observe(o)
						alarm.Observe(o)
					}
					ups, downs := s.above.logs(0), s.below.logs(0)
					above += probability * math.Exp(logMean(ups[:]))
					below += probability * math.Exp(logMean(downs[:]))
					evidence += probability * alarm.Evidence()
				})
				// All three are martingales where the risk is exactly a.
				for what, e := range map[string]float64{"K+": above, "K-": below, "evidence a step": evidence / steps} {
					if math.Abs(e-1) > 1e-9 {
						t.Errorf("a = %v: %s is expected to be %v, want 1", a, what, e)
					}
				}
			})
		}
	}
}
