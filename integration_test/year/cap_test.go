package year

import (
	"math"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// capped is the account of one daemon's cap under one policy.
type capped struct {
	perHour float64
	second  time.Time     // that began with the last draw a second or more after the one before
	passed  time.Duration // until then, by a clock that stands still where it is set back
	drawn   []drawn       // one for each second
	factor  float64       // of the probabilities of inputs called safe in this second
	gives   bool          // even a tenth of them is more than the cap
}

// drawn sums the probabilities of the audits of a second, before the cap.
type drawn struct {
	passed         time.Duration
	safe, critical float64
}

// draw returns by how much the cap lowers the probability that an input which is called safe is drawn
// with, and whether it gives way: audits of the last ten minutes, with exponential weights, are to stay
// within the cap, and those of inputs called critical stay as they are.
func (c *capped) draw(t *terms, s receipt.Stratum, at time.Time) (factor float64, gives bool) {
	if s == receipt.Deferred || s == receipt.CalledCritical && t.free {
		return 1, false
	}
	if c.second.IsZero() || at.Sub(c.second).Abs() >= time.Second {
		c.begin(at)
	}
	last := &c.drawn[len(c.drawn)-1]
	if s == receipt.CalledCritical {
		last.critical += t.rate
		return 1, false
	}
	last.safe += t.rate
	return c.factor, c.gives
}

// begin begins a second.
func (c *capped) begin(at time.Time) {
	if !c.second.IsZero() {
		c.passed += max(0, at.Sub(c.second))
	}
	c.second = at
	safe, critical := 0.0, 0.0
	for _, d := range c.drawn {
		weight := 6 * math.Exp(-(c.passed-d.passed).Minutes()/10) // an hour has six times ten minutes
		safe, critical = safe+weight*d.safe, critical+weight*d.critical
	}
	share := 1.0
	if safe > c.perHour-critical {
		share = (c.perHour - critical) / safe
	}
	c.factor, c.gives = max(share, 0.1), share < 0.1
	c.drawn = append(c.drawn, drawn{passed: c.passed})
}
