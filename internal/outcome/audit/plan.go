package audit

import (
	"math"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// Plan gives the propensities of inputs under one policy. Nil is the plan of a policy that audits
// nothing.
type Plan struct {
	audit policy.Audit
	// meanRoot is the mean of sqrt(risk) that the risk is scaled by; 0 where propensities do not
	// follow the risk.
	meanRoot float64
}

// NewPlan returns nil for a policy that audits nothing.
func NewPlan(p *policy.Policy) *Plan {
	if p.Audit == nil {
		return nil
	}
	plan := &Plan{audit: *p.Audit}
	if p.Risk != nil && p.Calibration != nil {
		plan.meanRoot = p.Calibration.MeanRootRisk
	}
	return plan
}

// Stratum returns the stratum of an input by the decision about it.
func Stratum(d policy.Decision, calledCritical bool) receipt.Stratum {
	switch {
	case d.Action == policy.Defer:
		return receipt.Deferred
	case calledCritical:
		return receipt.CalledCritical
	}
	return receipt.CalledSafe
}

// Propensity returns the probability, in [0,1], with which an input is reviewed, before the cap. Risk
// counts only for inputs called safe; where it is unknown (NaN) they have the plain rate.
//
// For inputs called safe it is rate * (m + (1-m) sqrt(risk) / mean sqrt(risk)), at most 1: the
// propensities that make the variance of a weighted count of misses least are proportional to
// sqrt(risk), and the floor rate*m bounds the weights where the risk is wrong.
func (p *Plan) Propensity(s receipt.Stratum, risk float64) float64 {
	switch {
	case s == receipt.Deferred:
		return 1
	case p == nil:
		return 0
	case s == receipt.CalledCritical:
		if p.audit.PredictedCritical == policy.CriticalFree {
			return 1
		}
		return p.audit.Rate
	case p.meanRoot == 0 || math.IsNaN(risk):
		return p.audit.Rate
	}
	a := &p.audit
	return min(a.Rate*(a.M+(1-a.M)*math.Sqrt(risk)/p.meanRoot), 1)
}

// leastFactor is the least factor by which the cap lowers propensities. It keeps busy hours visible.
const leastFactor = 0.1

// LeastPropensity returns the least propensity that inputs of a stratum may have under settings,
// whatever their risk and the cap: what bets on weighted outcomes are bounded by.
func LeastPropensity(a *policy.Audit, s receipt.Stratum) float64 {
	switch {
	case s == receipt.Deferred:
		return 1
	case a == nil:
		return 0
	case s == receipt.CalledCritical && a.PredictedCritical == policy.CriticalFree:
		return 1
	case s == receipt.CalledCritical:
		return a.Rate
	case a.Cap > 0:
		return a.Rate * a.M * leastFactor
	}
	return a.Rate * a.M
}
