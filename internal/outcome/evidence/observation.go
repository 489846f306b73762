package evidence

import "math"

// Risk names the share that is estimated and tested.
type Risk uint8

// The risks.
const (
	// MissRate is the critical miss rate: of all truly critical inputs, the share retained and
	// predicted safe. A deferred input is no miss.
	MissRate Risk = 1 + iota
	// FNR is the critical false negative rate of the retained: of the retained inputs that are truly
	// critical, the share predicted safe. Deferred inputs are no steps.
	FNR
)

// String returns the risk's name in metrics and JSON, or "" for none.
func (r Risk) String() string {
	switch r {
	case MissRate:
		return "critical_miss_rate"
	case FNR:
		return "critical_fnr"
	}
	return ""
}

// smallestPropensity is the smallest positive float32: receipts hold propensities as float32.
const smallestPropensity = 0x1p-149

// An Observation is one reviewed input.
type Observation struct {
	// Retained says that the policy retained the input. It was deferred otherwise.
	Retained bool
	// Critical says that its true class is critical; of a class's own risk, that it is that class.
	Critical bool
	// Missed says that it is Critical and was predicted safe. It counts only if Critical is set.
	Missed bool
	// Propensity is the probability, in (0, 1], with which the input was to be reviewed. An
	// observation with another propensity is ignored, as one float32 cannot hold.
	Propensity float64
}

// kind says what an observation does to a risk.
type kind uint8

const (
	ignored    kind = iota
	uncritical      // a step on which nothing is bet
	hit             // critical and no miss: Z = -a/propensity
	miss            // Z = (1-a)/propensity
)

// kindOf tells what o does to the risk.
func (r Risk) kindOf(o Observation) kind {
	switch {
	case !(o.Propensity >= smallestPropensity && o.Propensity <= 1), r == FNR && !o.Retained:
		return ignored
	case !o.Critical:
		return uncritical
	case o.Missed && o.Retained:
		return miss
	}
	return hit
}

// An Estimate is a risk as the weighted share of the outcomes seen: the ratio Y/X of two
// Horvitz-Thompson estimates, each unbiased,
//
//	Y = sum of W R M,   X = sum of W R C for FNR, sum of W C for MissRate,   W = 1/propensity,
//
// with the first-order bias of a ratio removed (Beale 1962): few audited misses, each of a large
// weight, would otherwise read several percent too low. The unweighted share of misses among
// outcomes estimates nothing: reviews are far likelier where nothing can be missed.
//
// The zero value has seen nothing; set Of before the first Observe.
type Estimate struct {
	Of Risk
	// Outcomes counts the steps; Critical and Misses the critical ones and the missed among them.
	Outcomes, Critical, Misses uint64
	// WeightedCritical and WeightedMisses are X and Y: how many inputs are critical, and missed.
	WeightedCritical, WeightedMisses float64
	// SquaredCritical and SquaredMisses are the same sums of W^2.
	SquaredCritical, SquaredMisses float64
}

// Observe adds one outcome. Those that are no step of the risk change nothing.
func (e *Estimate) Observe(o Observation) {
	k := e.Of.kindOf(o)
	if k == ignored {
		return
	}
	e.Outcomes++
	if k == uncritical {
		return
	}
	w := 1 / o.Propensity
	e.Critical++
	e.WeightedCritical += w
	e.SquaredCritical += w * w
	if k == miss {
		e.Misses++
		e.WeightedMisses += w
		e.SquaredMisses += w * w
	}
}

// Add adds the outcomes of another estimate of the same risk, such as another cohort's. Sums of
// floating-point numbers depend on their order: add cohorts in one order.
func (e *Estimate) Add(o Estimate) {
	e.Outcomes += o.Outcomes
	e.Critical += o.Critical
	e.Misses += o.Misses
	e.WeightedCritical += o.WeightedCritical
	e.WeightedMisses += o.WeightedMisses
	e.SquaredCritical += o.SquaredCritical
	e.SquaredMisses += o.SquaredMisses
}

// Value returns the risk, in [0, 1], or NaN before a critical outcome was seen. With SX and SY the
// sums of W^2 over critical and missed inputs it is
//
//	Y/X (1 + SY/(X Y)) / (1 + SX/X^2) = (Y + SY/X) / (X + SX/X),
//
// which is the plain share where all have the same propensity.
func (e *Estimate) Value() float64 {
	if e.Critical == 0 {
		return math.NaN()
	}
	x := e.WeightedCritical
	return (e.WeightedMisses + e.SquaredMisses/x) / (x + e.SquaredCritical/x)
}

// ratio returns Y/X.
func (e *Estimate) ratio() float64 { return e.WeightedMisses / e.WeightedCritical }
