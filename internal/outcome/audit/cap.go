package audit

import (
	"math"
	"sync"
	"sync/atomic"
)

// Times in microseconds.
const (
	second = 1_000_000
	hour   = 3600 * second
	// memory is the time constant of the average rate of audits.
	memory = 600 * second
)

// limiter lowers propensities so that audits stay within a cap, smoothly and by what was issued
// before alone: never by labels, and not by the draws themselves.
//
// It adds up the propensities before the cap, and with the first draw of each second gets from them an
// average rate with exponential weights. The draws of a second so share one factor, which only earlier
// seconds decided. In the first ten minutes the average is too low, so that there may be more audits.
type limiter struct {
	perHour float64       // the cap; 0 for none
	factor  atomic.Uint64 // float64 bits, in [leastFactor, 1]
	giving  atomic.Bool   // the cap gives way: even the least factor exceeds it

	ticked         atomic.Int64  // when the averages were last brought up to date
	safe, critical atomic.Uint64 // propensities of the second since then, in parts of unit

	mu                   sync.Mutex
	safeSum, criticalSum float64 // weighted sums of propensities
}

// unit is what sums of propensities are counted in, so that they add without rounding.
const unit = 1 << 32

func newLimiter(perHour float64) *limiter {
	l := &limiter{perHour: perHour}
	l.factor.Store(math.Float64bits(1))
	return l
}

// factorAt returns the factor for the propensities of inputs called safe at a time, and whether the cap
// gives way.
func (l *limiter) factorAt(now int64) (factor float64, gives bool) {
	if l.perHour == 0 {
		return 1, false
	}
	if elapsed := now - l.ticked.Load(); (elapsed >= second || elapsed <= -second) && l.mu.TryLock() {
		l.tick(now)
		l.mu.Unlock()
	}
	return math.Float64frombits(l.factor.Load()), l.giving.Load()
}

// tick brings the averages up to date. A clock that was set back counts as standing still.
func (l *limiter) tick(now int64) {
	decay := math.Exp(-float64(max(now-l.ticked.Swap(now), 0)) / memory)
	l.safeSum = (l.safeSum + float64(l.safe.Swap(0))/unit) * decay
	l.criticalSum = (l.criticalSum + float64(l.critical.Swap(0))/unit) * decay
	const perHour = float64(hour) / memory
	left, wanted := l.perHour-l.criticalSum*perHour, l.safeSum*perHour
	if wanted <= left {
		l.factor.Store(math.Float64bits(1))
		l.giving.Store(false)
		return
	}
	share := left / wanted
	l.factor.Store(math.Float64bits(max(share, leastFactor)))
	l.giving.Store(share < leastFactor)
}

// add adds a propensity before the cap to the sum of its stratum.
func (l *limiter) add(sum *atomic.Uint64, propensity float64) {
	if l.perHour > 0 {
		sum.Add(uint64(propensity * unit))
	}
}
