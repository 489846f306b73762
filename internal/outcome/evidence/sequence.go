package evidence

import (
	"math"
	"slices"
	"sort"
)

// A Sequence keeps limits of a risk that hold at all times at once while the risk is constant: with
// probability level, no interval that is ever returned leaves the risk out. It is a hedged betting
// confidence sequence (Waudby-Smith & Ramdas 2024). For each candidate a there are two wealths, each
// the mean over its bets lambda, that begin with 1,
//
//	K+_n(a): product of 1 + lambda Z_i(a), lambda = 0.98 p/a     2^-k: grows if the risk is above a,
//	K-_n(a): product of 1 - lambda Z_i(a), lambda = 0.98 q/(1-a) 2^-k: grows if the risk is below a,
//
// with p the least propensity of a critical input that is no miss and q that of a miss. The interval
// is where (K+ + K-)/2 < 1/(1-level), by Ville's inequality.
//
// Bets are fractions of the largest that cannot lose all, so that a hit multiplies K+ by
// 1 - 0.98 2^-k p/propensity, whatever a, and a miss by 1 + 0.98 2^-k p/propensity (1-a)/a; and the
// other way round for K-. Both are sums of exponentials of logit(a) with positive factors: their mean
// is convex in logit(a). Hence the interval is one, and contains the ratio of the weighted sums while
// the least propensities stay as they are. The wealth is kept at the points of a grid. Between them it is
// interpolated, less a bound of the error: limits are a little too wide, never too narrow.
//
// Where the risk changes, the interval is about its average since the beginning, and may be off.
//
// Use Clone to fork a Sequence. It takes about 30 kB.
type Sequence struct {
	level        float64
	above, below wealth
	estimate     Estimate
}

// NewSequence returns a sequence of intervals of the risk that hold with probability level, in (0,
// 1). Any other level, NaN included, gives the interval from 0 to 1 always.
func NewSequence(r Risk, level float64) *Sequence {
	return &Sequence{level: level, above: newWealth(+1), below: newWealth(-1), estimate: Estimate{Of: r}}
}

// BeginCohort fixes the bets for the outcomes that follow, and keeps the evidence so far. leastAlarm, in
// (0, 1], is the least propensity of a critical input that is no miss, as in Alarm.BeginCohort.
// leastHolding, in (0, 1], is that of a miss: of retained inputs called safe. They must not depend on
// the cohort's outcomes. A value outside (0, 1] bets nothing.
func (s *Sequence) BeginCohort(leastAlarm, leastHolding float64) {
	s.above.propensity = checkedPropensity(leastAlarm)
	s.below.propensity = checkedPropensity(leastHolding)
}

// Observe adds one outcome. Only critical outcomes move the interval. An outcome with a smaller
// propensity than BeginCohort was told would bet more than all: it ruins the bets that it exceeds.
func (s *Sequence) Observe(o Observation) {
	switch s.estimate.Of.kindOf(o) {
	case hit:
		s.above.lose(o.Propensity)
		s.below.gain(o.Propensity)
	case miss:
		s.above.gain(o.Propensity)
		s.below.lose(o.Propensity)
	}
	s.estimate.Observe(o)
}

// Estimate returns the weighted estimate of the outcomes observed.
func (s *Sequence) Estimate() Estimate { return s.estimate }

// Interval returns the limits of the risk, 0 <= low <= high <= 1; 0 and 1 while nothing is known. A
// limit beyond the grid, under 4.5e-5 or above 0.9975, is 0 or 1.
//
// Least propensities that change from cohort to cohort may exclude the estimate, or every point of
// the grid. The interval is widened to the estimate, and holds the point that is excluded least.
func (s *Sequence) Interval() (low, high float64) {
	if !(s.level > 0 && s.level < 1) || s.estimate.Critical == 0 {
		return 0, 1
	}
	limit := math.Ln2 - math.Log1p(-s.level) // of K+ + K-, twice 1/(1-level)
	estimate := s.estimate.Value()
	from := positionOf(s.estimate.ratio())
	if c := s.cellOf(cellOf(from)); c.log(from) >= limit {
		if from = s.least(); s.node(int(from)) >= limit {
			return min(estimate, riskAt(from)), max(estimate, riskAt(from))
		}
	}
	low, high = s.limits(from, limit)
	return min(estimate, low), max(estimate, high)
}

// limits returns the limits on both sides of a position within them.
func (s *Sequence) limits(from, limit float64) (low, high float64) {
	// The wealth falls towards from on its left, and rises on its right.
	low, high = 0, 1
	left := sort.Search(int(from)-firstCell+1, func(i int) bool { return s.node(int(from)-i) >= limit })
	if j := int(from) - left; j >= firstCell {
		c := s.cellOf(j)
		low = riskAt(bisect(float64(j), min(from, float64(j+1)), func(x float64) bool { return c.log(x) >= limit }))
	}
	next := int(math.Ceil(from))
	right := sort.Search(lastCell+1-next+1, func(i int) bool { return s.node(next+i) >= limit })
	if j := next + right; j <= lastCell+1 {
		c := s.cellOf(j - 1)
		high = riskAt(bisect(float64(j), max(from, float64(j-1)), func(x float64) bool { return c.log(x) >= limit }))
	}
	return low, high
}

// Contains reports whether a risk is within the limits, at a fraction of the cost of Interval. What
// Interval is widened by, where settings have changed, does not count.
func (s *Sequence) Contains(risk float64) bool {
	if !(risk >= 0 && risk <= 1) {
		return false
	}
	if !(s.level > 0 && s.level < 1) || s.estimate.Critical == 0 {
		return true
	}
	position := positionOf(risk)
	c := s.cellOf(cellOf(position))
	return c.log(position) < math.Ln2-math.Log1p(-s.level)
}

// bisect returns a position outside, next to where excluded ceases to hold on the way inside.
func bisect(outside, inside float64, excluded func(position float64) bool) float64 {
	for range 40 {
		if middle := (outside + inside) / 2; excluded(middle) {
			outside = middle
		} else {
			inside = middle
		}
	}
	return outside
}

// least returns the point of the grid with the least wealth.
func (s *Sequence) least() float64 {
	least := firstCell
	for j := firstCell; j <= lastCell+1; j++ {
		if s.node(j) < s.node(least) {
			least = j
		}
	}
	return float64(least)
}

// gains returns how many outcomes either side has gained from.
func (s *Sequence) gains() (above, below float64) {
	return float64(s.estimate.Misses), float64(s.estimate.Critical - s.estimate.Misses)
}

// node returns a lower limit of log(K+ + K-) at a point of the grid.
func (s *Sequence) node(j int) float64 {
	u, d := s.gains()
	above, below := s.above.logs(j), s.below.logs(j)
	return logSum(logMean(above[:])-u*interpolationError, logMean(below[:])-d*interpolationError)
}

// A cell has the wealth between two points of the grid.
type cell struct{ above, below local }

func (s *Sequence) cellOf(j int) cell {
	u, d := s.gains()
	return cell{s.above.local(j, u), s.below.local(j, d)}
}

// log returns a lower limit of log(K+ + K-).
func (c *cell) log(position float64) float64 {
	return logSum(c.above.log(position), c.below.log(position))
}

// Clone returns a copy that can go on by itself.
func (s *Sequence) Clone() *Sequence {
	c := *s
	c.above.points, c.below.points = slices.Clone(s.above.points), slices.Clone(s.below.points)
	return &c
}
