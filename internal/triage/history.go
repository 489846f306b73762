package triage

import (
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/ckd-project/ckd/policy"
)

// mostSteps of a history: 15 minutes, and the step that is going on.
const mostSteps = int(15*time.Minute/stepTime) + 1

// history is what one model counted in the last 15 minutes: the differences of
// its counters between samples, by steps.
type history struct {
	from   time.Time // when its counters were 0; zero: not known, it begins with what they are
	looked time.Time // at

	scraped []string // labels of the scrape that is being taken in
	cut     int      // classes that have none of their own there
	skip    bool     // that scrape: it is of another policy

	policy *policy.Policy // nil before the first scrape
	about  Policy
	settle int // passes of the full decision, if a rule to settle by is in force, else 0
	// settled is when the rule was last seen to settle, under this policy, and stopped
	// when it was first seen to have stopped since; zero: never.
	settled, stopped time.Time
	rows

	slots   map[seriesOf]int
	series  []seriesOf // by slot
	now     []float64  // by slot, in the scrape
	last    []float64  // by slot, in the one before
	seen    []bool     // by slot, in the scrape
	nowC    []uint64   // by class and bucket
	lastC   []uint64   // likewise
	gauges  map[seriesOf]float64
	created time.Time // when the counters of the model began

	at    time.Time // of the last scrape that was taken in
	steps []step    // the oldest first
}

// step is what was counted in one step.
type step struct {
	at       time.Time // of its beginning
	seconds  float64
	over     bool
	changed  uint64    // the sample that it last grew by
	counters []float64 // by slot, those that came later missing; nil for all 0
	buckets  []uint32  // of C_k, by class and bucket; nil for all 0
}

// begin begins to take in a scrape, under the policy in force.
func (h *history) begin(p *policy.Policy) {
	labels, ok := orderOf(h.scraped, h.cut, p.Classes)
	if h.skip = !ok; h.skip {
		return
	}
	if h.policy != p || !slices.Equal(labels, h.labels) {
		h.follow(p, newRows(labels, h.cut > 0, p))
	}
	clear(h.now)
	clear(h.seen)
	clear(h.nowC)
	clear(h.gauges)
}

// follow goes on under a policy: with what it has if the rows are the same.
func (h *history) follow(p *policy.Policy, r rows) {
	if h.policy == nil || !h.equal(&r) {
		if h.policy != nil {
			h.from = time.Time{} // it goes on from what its counters are now
		}
		*h = history{
			from: h.from, looked: h.looked, scraped: h.scraped, cut: h.cut,
			slots: make(map[seriesOf]int), gauges: make(map[seriesOf]float64),
			nowC: make([]uint64, len(r.classes)*numBuckets), lastC: make([]uint64, len(r.classes)*numBuckets),
		}
	}
	if h.policy == nil || h.policy.Hash != p.Hash {
		h.settled, h.stopped = time.Time{}, time.Time{}
	}
	h.rows, h.policy, h.about, h.settle = r, p, describe(p), 0
	if rule := p.SettleRule(); rule != nil {
		h.settle = rule.Passes
	}
}

// slot of a series; a series that is new has one after all others.
func (h *history) slot(s seriesOf) int {
	i, ok := h.slots[s]
	if !ok {
		i = len(h.series)
		h.slots[s] = i
		h.series = append(h.series, s)
		h.now, h.last, h.seen = append(h.now, 0), append(h.last, 0), append(h.seen, false)
	}
	return i
}

// read takes in the value of a counter. Those of classes that share a row are added
// up.
func (h *history) read(s seriesOf, v float64) {
	if h.skip || !finite(v) || s.kind == pairSum && !h.pair(s.a, s.b) {
		return
	}
	if s.kind >= classSum && s.kind <= classDeciding {
		s.a = h.classes[h.row(s.a)]
	}
	i := h.slot(s)
	h.now[i] += v
	h.seen[i] = true
}

// readGauge takes in the value of a gauge, if its class has a row.
func (h *history) readGauge(s seriesOf, v float64) {
	if h.skip {
		return
	}
	if s.kind >= driftZ && s.kind <= driftAlarms {
		if _, own := h.position[s.a]; !own {
			return
		}
	}
	h.gauges[s] = v
}

// readHistogram takes in the C_k of a class.
func (h *history) readHistogram(class string, of *dto.Histogram) {
	if h.skip {
		return
	}
	h.read(seriesOf{kind: classSum, a: class}, of.GetSampleSum())
	h.read(seriesOf{kind: classCount, a: class}, float64(of.GetSampleCount()))
	at := h.row(class) * numBuckets
	readBuckets(h.nowC[at:at+numBuckets], of)
}

// readCreated takes in when the counters of the model began.
func (h *history) readCreated(at time.Time) {
	if h.skip || at.Equal(h.created) {
		return
	}
	if !h.created.IsZero() { // the model was gone in between
		clear(h.last)
		clear(h.lastC)
	}
	h.created = at
}

// fold ends taking in a scrape: it adds to the step that is going on what was
// counted since the one before. Where over, the step ends.
func (h *history) fold(at time.Time, sampled uint64, over bool) {
	if h.skip || h.policy == nil {
		return
	}
	h.watchSettling(at)
	if h.at.IsZero() {
		if h.from.IsZero() {
			h.at = at
			h.keep()
			return
		}
		h.at = h.from
	}
	if n := len(h.steps); n == 0 || h.steps[n-1].over {
		h.steps = append(h.steps, step{at: h.at})
	}
	s := &h.steps[len(h.steps)-1]
	s.seconds += max(0, at.Sub(h.at).Seconds())
	s.over, s.changed = over, sampled
	h.count(s)
	h.keep()
	h.at = at

	old := max(0, len(h.steps)-mostSteps)
	for old < len(h.steps)-1 && at.Sub(h.steps[old+1].at) >= 15*time.Minute {
		old++
	}
	h.steps = slices.Delete(h.steps, 0, old)
}

// count adds the differences between two scrapes to a step. What is less than it
// was has begun anew, at 0.
func (h *history) count(s *step) {
	for i, now := range h.now {
		d := now - h.last[i]
		if d < 0 {
			d = now
		}
		if d == 0 {
			continue
		}
		if missing := len(h.now) - len(s.counters); missing > 0 {
			s.counters = append(s.counters, make([]float64, missing)...)
		}
		s.counters[i] += d
	}
	for i, now := range h.nowC {
		d := now - h.lastC[i]
		if now < h.lastC[i] {
			d = now
		}
		if d == 0 {
			continue
		}
		if s.buckets == nil {
			s.buckets = make([]uint32, len(h.nowC))
		}
		s.buckets[i] = uint32(min(uint64(s.buckets[i])+d, math.MaxUint32))
	}
}

// watchSettling notes when settling stopped.
func (h *history) watchSettling(at time.Time) {
	switch stopped, told := h.gauges[seriesOf{kind: settleStopped}]; {
	case told && stopped == 0:
		h.settled, h.stopped = at, time.Time{}
	case told && !h.settled.IsZero() && h.stopped.IsZero():
		h.stopped = at
	}
}

// keep makes the scrape that was taken in the one before.
func (h *history) keep() {
	copy(h.last, h.now)
	copy(h.lastC, h.nowC)
}

// sums is what was counted in several steps.
type sums struct {
	seconds  float64
	counters []float64
	buckets  []uint64
}

func (h *history) newSums() *sums {
	return &sums{counters: make([]float64, len(h.series)), buckets: make([]uint64, len(h.nowC))}
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
