package metrics

import "github.com/prometheus/client_golang/prometheus"

// Use says how much of a limited resource clients hold. A Limit of 0 means that it has none of its own.
type Use struct {
	Resource     string
	InUse, Limit int64
}

// saturation declares the gauges of limited resources.
type saturation struct{ inUse, limit *computed }

func declareSaturation(t *table) saturation {
	return saturation{
		inUse: t.computed("ckd_in_use",
			"How much of a limited resource clients hold, by resource.",
			"resource"),
		limit: t.computed("ckd_limit",
			"Limit of ckd_in_use: what goes beyond it is refused.",
			"resource"),
	}
}

// ReadUse makes every scrape call read, beside what earlier calls of ReadUse named. Each resource must
// have one reader.
func (m *Metrics) ReadUse(read func() []Use) {
	s := m.collector.saturation
	m.collector.atScrapes(func() func(chan<- prometheus.Metric) {
		all := read()
		return func(to chan<- prometheus.Metric) {
			for _, use := range all {
				s.inUse.send(to, float64(use.InUse), use.Resource)
				if use.Limit != 0 {
					s.limit.send(to, float64(use.Limit), use.Resource)
				}
			}
		}
	})
}
