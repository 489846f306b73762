package evidence

// A Below tells whether the interval of a Sequence lies below one risk a, at a hundredth of its cost:
// it keeps the wealths K+(a) and K-(a) alone. For simulations; a ledger shows intervals.
type Below struct {
	level, risk  float64
	hits, misses float64 // the least propensities
	above, below [sequenceBets]float64
	estimate     Estimate
}

// NewBelow returns a Below for a risk in (0, 1), with the level of NewSequence and the least
// propensities of BeginCohort.
func NewBelow(r Risk, level, risk, leastAlarm, leastHolding float64) *Below {
	b := &Below{level: level, risk: risk, hits: checkedPropensity(leastAlarm), misses: checkedPropensity(leastHolding), estimate: Estimate{Of: r}}
	for k := range sequenceBets {
		b.above[k], b.below[k] = 1, 1
	}
	return b
}

// Observe adds one outcome. Only critical outcomes change anything.
func (b *Below) Observe(o Observation) {
	up, down := boldest*b.hits/o.Propensity, boldest*b.misses/o.Propensity
	switch b.estimate.Of.kindOf(o) {
	case hit:
		up, down = -min(up, 1), down*b.risk/(1-b.risk)
	case miss:
		up, down = up*(1-b.risk)/b.risk, -min(down, 1)
	default:
		return
	}
	for k := range sequenceBets {
		b.above[k] = min(b.above[k]*(1+up), mostEvidence)
		b.below[k] = min(b.below[k]*(1+down), mostEvidence)
		up, down = up/2, down/2
	}
	b.estimate.Observe(o)
}

// Reached reports whether the upper limit lies below the risk now.
func (b *Below) Reached() bool {
	if b.estimate.Critical == 0 || !(b.estimate.Value() < b.risk) {
		return false
	}
	sum := 0.0
	for k := range sequenceBets {
		sum += b.above[k] + b.below[k]
	}
	return sum/sequenceBets*(1-b.level) >= 2
}
