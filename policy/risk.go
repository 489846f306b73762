package policy

import (
	"math"
	"slices"

	"github.com/ckd-project/ckd/policy/risk"
)

// RiskScore is the calibrated probability that an input called safe is truly critical, in [0,1].
// Inputs called critical have none. It is the one score that package decomp does not compute, since
// it needs a Policy.Risk.
const RiskScore Score = "risk"

// RuleScores lists the scores that a rule may name: Scores, then RiskScore.
func RuleScores() []Score { return append(Scores(), RiskScore) }

// GuardScores lists the scores that a guard may name: those that look at all classes alike.
func GuardScores() []Score {
	return slices.DeleteFunc(Scores(), Score.needsCritical)
}

// Risk says how probable it is that an input is truly critical, as a calibration fitted it.
type Risk struct {
	// The log-odds of being truly critical for an input called safe. Inputs unlike those of the
	// calibration are beyond what they know: a guard finds some.
	CalledSafe Logistic `key:"called_safe,required"`
	// The log-odds of being truly critical for an input called critical, which orders work lists and
	// decides nothing.
	CalledCritical Logistic `key:"called_critical,required"`
	// The quantiles of the probability of being truly critical over the inputs of the calibration, of
	// the levels 0, 1/64, 2/64, up to 1.
	Quantiles []float64 `key:"quantiles,required" range:"0..1"`
	// The share of critical inputs that the numbers are for. Where traffic has another share, all of
	// them are off.
	Prevalence float64 `key:"prevalence,required" range:"(0..1)"`
}

// Logistic is a probability whose log-odds are Intercept + Slope * log(p/(1-p)), of the mean
// probability p of the critical classes together, clipped to 1e-6 from 0 and 1. It does not fall as p
// rises.
type Logistic struct {
	// The log-odds where p_critical is a half.
	Intercept float64 `key:"intercept,required" range:"-1e6..1e6"`
	// What the log-odds of p_critical are multiplied by.
	Slope float64 `key:"slope,required" range:"0..1e6"`
}

// Guard defers inputs unlike those of the calibration, whatever class is predicted.
type Guard struct {
	// The score that tells inputs unlike those of the calibration.
	Score Score `key:"score,required" form:"guard"`
	// An input for which it is above this is deferred as unfamiliar.
	Threshold float64 `key:"threshold,required" range:">=0"`
}

// Finds reports whether an input with this value of the guard's score is unfamiliar. One that
// cannot be compared (NaN) is.
func (g *Guard) Finds(value float64) bool { return g != nil && !(value <= g.Threshold) }

// Percentiles looks up percentiles among the quantiles of a Risk. It is immutable.
type Percentiles struct {
	quantiles [Levels]float64
	// inverse has the inverse of the distance from each quantile to the next, divided by the number of
	// distances.
	inverse [Levels]float64
}

// Percentiles returns the percentiles among the quantiles.
func (r *Risk) Percentiles() *Percentiles {
	p := &Percentiles{quantiles: [Levels]float64(r.Quantiles)}
	const distances = Levels - 1
	for i := range distances {
		p.inverse[i] = min(1/((p.quantiles[i+1]-p.quantiles[i])*distances), math.MaxFloat64)
	}
	return p
}

// Of returns which share of the calibration's inputs had a probability of at most x, by linear
// interpolation between the quantiles: 0 below all of them, 1 from the largest on.
func (p *Percentiles) Of(x float64) float64 {
	q := &p.quantiles
	const last = len(q) - 1
	switch {
	case !(x >= q[0]):
		return 0
	case x >= q[last]:
		return 1
	}
	at := 0 // the last quantile that is not above x
	for step := (last + 1) / 2; step > 0; step /= 2 {
		if at+step <= last && q[at+step] <= x {
			at += step
		}
	}
	return float64(at)/float64(last) + (x-q[at])*p.inverse[at]
}

// Probability returns the probability for an input whose critical classes have the mean probability
// pCritical together.
func (l Logistic) Probability(pCritical float64) float64 {
	return risk.Logistic(l.Intercept + l.Slope*risk.LogOdds(pCritical))
}

// checkRisk checks that there are critical classes, and a risk model for rules that need it.
func (b *builder) checkRisk(p *Policy) {
	for _, r := range p.reachable() {
		if r.Score != RiskScore || !b.sound("gate") {
			continue
		}
		if p.Risk == nil && b.sound(r.field+".score", "calibrated.risk") {
			b.fault(r.field+".score", "%s needs a model of risk, which is missing: ckd calibrate writes both", RiskScore)
		}
		if r.Threshold > 1 && b.sound(r.field+".threshold") {
			b.fault(r.field+".threshold", "expected a probability of at most 1 for score %s, found %v", RiskScore, r.Threshold)
		}
	}
	if p.Risk != nil && len(p.Critical) == 0 && b.sound("calibrated.risk", "classes", "critical") {
		b.fault("critical", "no class is critical, expected at least one for a model of risk")
	}
}
