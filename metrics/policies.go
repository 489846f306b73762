package metrics

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/policy"
)

// policies declares which policies are in force, what their calibration expects, and how loading
// them went.
type policies struct {
	info                                *prometheus.GaugeVec
	coverage, coverageLow, coverageHigh *prometheus.GaugeVec
	missRate, criticalFNR               *prometheus.GaugeVec
	reloadSuccessful, reloadSuccessTime prometheus.Gauge
}

func declarePolicies(t *table) policies {
	return policies{
		info: t.gauge("ckd_policy_info",
			"Always 1: version and content hash of the policy in force.",
			"model", "version", "hash"),
		coverage: t.gauge("ckd_policy_expected_coverage",
			"Share of inputs that the policy's calibration expects to be retained; absent if "+
				"it does not say.",
			"model"),
		coverageLow: t.gauge("ckd_policy_expected_coverage_low",
			"Lower end of the 95% interval of ckd_policy_expected_coverage; absent if the "+
				"calibration does not say.",
			"model"),
		coverageHigh: t.gauge("ckd_policy_expected_coverage_high",
			"Upper end of the 95% interval of ckd_policy_expected_coverage; absent if the "+
				"calibration does not say.",
			"model"),
		missRate: t.gauge("ckd_policy_expected_critical_miss_rate",
			"Share of all critical inputs that the policy's calibration expects to be retained "+
				"and called safe; absent if it does not say.",
			"model"),
		criticalFNR: t.gauge("ckd_policy_expected_critical_fnr",
			"Share of retained critical inputs that the policy's calibration expects to be "+
				"called safe; absent if it does not say.",
			"model"),
		reloadSuccessful: t.gauge("ckd_policy_last_reload_successful",
			"1 if the last attempt to load the policies succeeded; 0 if it failed and the "+
				"previous policies stay in force.",
		).WithLabelValues(),
		reloadSuccessTime: t.gauge("ckd_policy_last_reload_success_timestamp_seconds",
			"When the policies were last loaded successfully, in seconds since 1970.",
		).WithLabelValues(),
	}
}

// putInForce sets the series of a policy. Those of expectations that its calibration does not state
// are deleted.
func (f *policies) putInForce(p *policy.Policy) {
	f.info.WithLabelValues(p.Name, p.Version, p.Hash).Set(1)
	set := func(v *prometheus.GaugeVec, stated bool, value float64) {
		if !stated {
			v.DeleteLabelValues(p.Name)
			return
		}
		v.WithLabelValues(p.Name).Set(value)
	}
	calibration := cmp.Or(p.Calibration, &policy.Calibration{})
	none := policy.Interval{High: 1}
	coverage := cmp.Or(calibration.ExpectedCoverage, &none)
	missRate := cmp.Or(calibration.ExpectedCriticalMissRate, &none)
	fnr := cmp.Or(calibration.ExpectedCriticalFNR, &none)
	set(f.coverage, coverage != &none, coverage.Value)
	set(f.coverageLow, coverage.Known(), coverage.Low)
	set(f.coverageHigh, coverage.Known(), coverage.High)
	set(f.missRate, missRate != &none, missRate.Value)
	set(f.criticalFNR, fnr != &none, fnr.Value)
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
