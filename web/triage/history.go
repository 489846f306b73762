package triage

import (
	"slices"
	"strings"
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

	policy *policy.Policy // nil before the first sample
	about  pagestate.Policy
	rows

	counters counters
	gauges   gauges

	latest time.Time        // time of the last scrape
	steps  []step           // the oldest first
	older  []pagestate.Hour // counts of each step of the last hour before these
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

// begin begins a scrape.
func (h *history) begin() {
	h.counters.begin()
	clear(h.gauges)
}

// follow goes on under a policy. The history begins anew unless the rows stay the same.
func (h *history) follow(p *policy.Policy, about pagestate.Policy, r rows) {
	if h.policy == nil || !slices.Equal(h.labels, r.labels) {
		from := h.from
		if h.policy != nil {
			from = time.Time{}
		}
		*h = history{from: from, counters: newCounters(len(r.labels)), gauges: make(gauges)}
	}
	h.rows, h.policy, h.about = r, p, about
}

// read adds the value of a counter.
func (h *history) read(s seriesOf, v float64) {
	if finite(v) {
		h.counters.add(s, v)
	}
}

// readGauge sets a gauge, unless its class has no row.
func (h *history) readGauge(s seriesOf, v float64) {
	if strings.HasPrefix(s.name, driftPrefix) {
		if _, own := h.position[s.a]; !own {
			return
		}
	}
	h.gauges[s] = v
}

// readHistogram adds the C_k of a class. During a reload a scrape may have classes of another policy.
func (h *history) readHistogram(class string, histogram *dto.Histogram) {
	row, ok := h.position[class]
	if !ok {
		return
	}
	h.read(seriesOf{name: epistemic + "_sum", a: class}, histogram.GetSampleSum())
	h.read(seriesOf{name: epistemic + "_count", a: class}, float64(histogram.GetSampleCount()))
	h.counters.addBuckets(row, histogram)
}

// end ends a scrape: it adds the counts since the scrape before to the current step. over ends
// the step, too.
func (h *history) end(scraped time.Time, over bool) {
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
	for i := range h.steps[:old] {
		h.older = append(h.older, h.hourOf(&h.steps[i]))
	}
	h.steps = slices.Delete(h.steps, 0, old)
	for len(h.older) > 1 && scraped.Sub(h.older[1].Since) >= time.Hour {
		h.older = h.older[1:]
	}
}
