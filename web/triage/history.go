package triage

import (
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
)

// maxSteps of a history: 15 minutes, and the current step.
const maxSteps = int(15*time.Minute/stepTime) + 1

// history holds what one model counted in the last 15 minutes: the differences of its counters
// between samples, by steps.
type history struct {
	from time.Time // when its counters were 0; zero if unknown: then it begins at their first values

	scraped scrapedLabels
	skip    bool // ignores the current scrape, which is of another policy

	policy *policy.Policy // nil before the first scrape
	about  pagestate.Policy
	rows

	counters counters
	gauges   gauges

	latest time.Time // time of the last scrape
	steps  []step    // the oldest first
}

// scrapedLabels holds the labels of classes in a scrape.
type scrapedLabels struct {
	names []string
	cut   int // classes without a label of their own
}

// gauges holds the gauges of a model in the last scrape.
type gauges map[seriesOf]float64

// value returns a gauge, or 0 if it is missing or not finite.
func (g gauges) value(s seriesOf) float64 {
	if v := g[s]; finite(v) {
		return v
	}
	return 0
}

// begin begins a scrape under the policy in force.
func (h *history) begin(p *policy.Policy) {
	labels, ok := orderOf(h.scraped.names, h.scraped.cut, p.Classes)
	if h.skip = !ok; h.skip {
		return
	}
	if h.policy != p || !slices.Equal(labels, h.classes) {
		h.follow(p, newRows(labels, h.scraped.cut))
	}
	h.counters.begin()
	clear(h.gauges)
}

// follow goes on under a policy. The history begins anew unless the rows stay the same.
func (h *history) follow(p *policy.Policy, r rows) {
	if h.policy == nil || !slices.Equal(h.classes, r.classes) {
		from := h.from
		if h.policy != nil {
			from = time.Time{}
		}
		*h = history{from: from, scraped: h.scraped, counters: newCounters(len(r.classes)), gauges: make(gauges)}
	}
	h.rows, h.policy, h.about = r, p, describe(p)
}

// read adds the value of a counter.
func (h *history) read(s seriesOf, v float64) {
	if !h.skip && finite(v) {
		h.counters.add(s, v)
	}
}

// readGauge sets a gauge, unless its class has no row.
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

// readHistogram adds the C_k of a class.
func (h *history) readHistogram(class string, histogram *dto.Histogram) {
	if h.skip {
		return
	}
	h.read(seriesOf{kind: classSum, a: class}, histogram.GetSampleSum())
	h.read(seriesOf{kind: classCount, a: class}, float64(histogram.GetSampleCount()))
	h.counters.addBuckets(h.row(class), histogram)
}

// readCreated notes when the counters of the model began.
func (h *history) readCreated(at time.Time) {
	if !h.skip {
		h.counters.createdAt(at)
	}
}

// end ends a scrape: it adds the counts since the scrape before to the current step. over ends
// the step, too.
func (h *history) end(scraped time.Time, over bool) {
	if h.skip || h.policy == nil {
		return
	}
	if h.latest.IsZero() {
		if h.from.IsZero() {
			h.latest = scraped
			h.counters.end()
			return
		}
		h.latest = h.from
	}
	if n := len(h.steps); n == 0 || h.steps[n-1].over {
		h.steps = append(h.steps, step{begun: h.latest})
	}
	s := &h.steps[len(h.steps)-1]
	s.seconds += max(0, scraped.Sub(h.latest).Seconds())
	s.over, s.changed = over, scraped
	h.counters.addTo(s)
	h.counters.end()
	h.latest = scraped

	old := max(0, len(h.steps)-maxSteps)
	for old < len(h.steps)-1 && scraped.Sub(h.steps[old+1].begun) >= 15*time.Minute {
		old++
	}
	h.steps = slices.Delete(h.steps, 0, old)
}
