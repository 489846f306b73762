package evidence

import "math"

// Gains are the logarithms of what the bets of an Alarm multiply by over some outcomes:
//
//	sum of log(1 + lambda Z_n(a)),   lambda = 0.98 p/a 2^-k,   k = 0..9.
//
// The start that makes their mean largest is an estimate of when a risk rose above its line. It is chosen by
// looking, and bounds no error.
type Gains [alarmBets]float64

// Add adds one outcome of a risk that was held against line, with leastPropensity as in
// Alarm.BeginCohort. An outcome that is no critical one changes nothing.
func (g *Gains) Add(r Risk, line, leastPropensity float64, o Observation) {
	k := r.kindOf(o)
	if k != hit && k != miss || !(line > 0 && line < 1) {
		return
	}
	won := winnings(k, line, checkedPropensity(leastPropensity), o.Propensity)
	for i := range g {
		g[i] += math.Log1p(max(won, -1))
		won /= 2
	}
}

// LogMean returns the logarithm of the mean over the bets of what they multiply by.
func (g *Gains) LogMean() float64 { return logMean(g[:]) }
