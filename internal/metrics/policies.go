package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/policy"
)

// policies declares which policies are in force, what their calibration expects, and how loading
// them went.
type policies struct {
	info, expected                      *prometheus.GaugeVec
	reloadSuccessful, reloadSuccessTime prometheus.Gauge
}

func declarePolicies(t *table) policies {
	return policies{
		info: t.gauge("ckd_policy_info",
			"Always 1: version and content hash of the policy in force.",
			"model", "version", "hash"),
		expected: t.gauge("ckd_policy_expected",
			"What the calibration expects, and the ends of its 95% interval. Absent where it does not say.",
			"model", "figure", "bound"),
		reloadSuccessful: t.gauge("ckd_policy_last_reload_successful",
			"1 if the policies were loaded at the last attempt; 0 if not, and the previous ones stay in force.",
		).WithLabelValues(),
		reloadSuccessTime: t.gauge("ckd_policy_last_reload_success_timestamp_seconds",
			"When the policies were last loaded successfully, in seconds since 1970.",
		).WithLabelValues(),
	}
}

// putInForce sets the series of a policy, and deletes those of expectations that its calibration does
// not state.
func (f *policies) putInForce(p *policy.Policy) {
	f.info.WithLabelValues(p.Name, p.Version, p.Hash).Set(1)
	f.expected.DeletePartialMatch(prometheus.Labels{"model": p.Name})
	if p.Calibration == nil {
		return
	}
	for figure, interval := range map[string]*policy.Interval{
		"coverage":           p.Calibration.ExpectedCoverage,
		"critical_miss_rate": p.Calibration.ExpectedCriticalMissRate,
	} {
		if interval == nil {
			continue
		}
		f.expected.WithLabelValues(p.Name, figure, "estimate").Set(interval.Value)
		if interval.Known() {
			f.expected.WithLabelValues(p.Name, figure, "low").Set(interval.Low)
			f.expected.WithLabelValues(p.Name, figure, "high").Set(interval.High)
		}
	}
}

// Reloaded records an attempt to load the policies; at is the time of a success.
func (m *Metrics) Reloaded(ok bool, at time.Time) {
	if !ok {
		m.collector.policies.reloadSuccessful.Set(0)
		return
	}
	m.collector.policies.reloadSuccessful.Set(1)
	m.collector.policies.reloadSuccessTime.Set(float64(at.UnixNano()) / 1e9)
}
