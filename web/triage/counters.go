package triage

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// counters holds the values of a model's counters in the current scrape and in the one before.
// Counters have slots, in the order in which they were first seen.
type counters struct {
	slots   map[seriesOf]int
	series  []seriesOf // by slot
	now     []float64  // by slot
	last    []float64  // by slot, in the scrape before
	seen    []bool     // by slot: in the current scrape
	nowC    []uint64   // observations of C_k, by class and bucket
	lastC   []uint64   // the same, in the scrape before
	created time.Time  // when the counters of the model began
}

func newCounters(classes int) counters {
	return counters{slots: make(map[seriesOf]int), nowC: make([]uint64, classes*numBuckets), lastC: make([]uint64, classes*numBuckets)}
}

// begin begins a scrape.
func (c *counters) begin() {
	clear(c.now)
	clear(c.seen)
	clear(c.nowC)
}

// end makes the current scrape the one before.
func (c *counters) end() {
	copy(c.last, c.now)
	copy(c.lastC, c.nowC)
}

// add adds a value to a counter. A new counter gets the next slot.
func (c *counters) add(s seriesOf, v float64) {
	i, ok := c.slots[s]
	if !ok {
		i = len(c.series)
		c.slots[s] = i
		c.series = append(c.series, s)
		c.now, c.last, c.seen = append(c.now, 0), append(c.last, 0), append(c.seen, false)
	}
	c.now[i] += v
	c.seen[i] = true
}

// addBuckets adds a histogram of C_k to a row's buckets.
func (c *counters) addBuckets(row int, h *dto.Histogram) {
	readBuckets(c.nowC[row*numBuckets:(row+1)*numBuckets], h)
}

// createdAt notes when the counters of the model began. If they began anew, the model was gone in
// between, and the values before count as 0.
func (c *counters) createdAt(created time.Time) {
	if created.Equal(c.created) {
		return
	}
	if !c.created.IsZero() {
		clear(c.last)
		clear(c.lastC)
	}
	c.created = created
}

// addTo adds the counts since the scrape before to a step. A counter that fell has begun anew
// at 0.
func (c *counters) addTo(s *step) {
	for i, now := range c.now {
		d := now - c.last[i]
		if d < 0 {
			d = now
		}
		if d == 0 {
			continue
		}
		if missing := len(c.now) - len(s.counters); missing > 0 {
			s.counters = append(s.counters, make([]float64, missing)...)
		}
		s.counters[i] += d
	}
	for i, now := range c.nowC {
		d := now - c.lastC[i]
		if now < c.lastC[i] {
			d = now
		}
		if d == 0 {
			continue
		}
		if s.buckets == nil {
			s.buckets = make([]uint32, len(c.nowC))
		}
		s.buckets[i] = uint32(min(uint64(s.buckets[i])+d, math.MaxUint32))
	}
}

// step holds the counts of one step.
type step struct {
	begun    time.Time // when it began
	seconds  float64
	over     bool
	changed  time.Time // of the sample that it last grew by
	counters []float64 // by slot, without slots that came later; nil if all are 0
	buckets  []uint32  // counts of C_k, by class and bucket; nil if all are 0
}

// sums holds the counts of several steps.
type sums struct {
	seconds  float64
	counters []float64
	buckets  []uint64
}

func (c *counters) newSums() *sums {
	return &sums{counters: make([]float64, len(c.series)), buckets: make([]uint64, len(c.nowC))}
}

func (a *sums) add(s *step) {
	a.seconds += s.seconds
	for i, v := range s.counters {
		a.counters[i] += v
	}
	for i, n := range s.buckets {
		a.buckets[i] += uint64(n)
	}
}
