package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/internal/metrics/internal/sharded"
)

// table lists the families of series that the groups declare.
type table struct {
	classBuckets bool // classic buckets in histograms by class
	families     []family
}

// family holds the series of one name, and what the documentation says of them.
type family struct {
	name, kind, help string
	labels           []string
	vec              vec
}

// vec is implemented by sharded vectors and by those of client_golang.
type vec interface {
	Describe(to chan<- *prometheus.Desc)
	DeleteLabelValues(values ...string) bool
	DeletePartialMatch(labels prometheus.Labels) int
}

func (t *table) add(name, kind, help string, labels []string, v vec) {
	t.families = append(t.families, family{name, kind, help, labels, v})
}

// counter declares a counter.
func (t *table) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	t.add(name, "counter", help, labels, v)
	return v
}

// sharded declares a counter that every input may update.
func (t *table) sharded(name, help string, labels ...string) *sharded.CounterVec {
	v := sharded.NewCounterVec(name, help, labels)
	t.add(name, "counter", help, labels, v)
	return v
}

// histogram declares a histogram that every input updates. One by class has classic buckets only
// where Options ask for them.
func (t *table) histogram(name, help string, l *sharded.Layout, labels ...string) *sharded.HistogramVec {
	classic := t.classBuckets || !slices.Contains(labels, "class")
	v := sharded.NewHistogramVec(name, help, l, classic, labels)
	t.add(name, "histogram", help, labels, v)
	return v
}

// gauge declares a gauge that keeps the value it was set to.
func (t *table) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	t.add(name, "gauge", help, labels, v)
	return v
}

// computed declares a gauge whose values a scrape computes.
func (t *table) computed(name, help string, labels ...string) *computed {
	v := &computed{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
	t.add(name, "gauge", help, labels, v)
	return v
}

// computedCounter declares a counter that something else counts.
func (t *table) computedCounter(name, help string, labels ...string) *computed {
	v := &computed{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
	t.add(name, "counter", help, labels, v)
	return v
}

// deleteModel deletes all series of a model.
func (t *table) deleteModel(name string) {
	for _, f := range t.families {
		f.vec.DeletePartialMatch(prometheus.Labels{"model": name})
	}
}

// computed is a family of gauges, or of counters, whose values a scrape computes. It keeps no series.
type computed struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// send sends a scrape the value of the series with the given label values.
func (g *computed) send(to chan<- prometheus.Metric, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(g.desc, g.kind, value, labels...)
}

// Describe implements vec.
func (g *computed) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// DeleteLabelValues implements vec: there is nothing to delete.
func (*computed) DeleteLabelValues(...string) bool { return false }

// DeletePartialMatch implements vec: there is nothing to delete.
func (*computed) DeletePartialMatch(prometheus.Labels) int { return 0 }
