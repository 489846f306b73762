package metrics

import (
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// daemonEvents declares what happens to the daemon as a whole, whatever the model.
type daemonEvents struct {
	buildInfo                                *prometheus.GaugeVec
	refused, connectionsEnded, reloadsFailed *prometheus.CounterVec
	certificateNotAfter                      prometheus.Gauge
	panics                                   prometheus.Counter
	memoryPressure                           *prometheus.GaugeVec // without a series where there is no memory limit
}

func declareDaemonEvents(t *table) daemonEvents {
	d := daemonEvents{
		buildInfo: t.gauge("ckd_build_info",
			"Always 1: version and revision of the daemon, and the Go version that built it.",
			"version", "revision", "goversion"),
		refused: t.counter("ckd_refused_total",
			"What was refused other than inputs, by resource and reason.",
			"resource", "reason"),
		connectionsEnded: t.counter("ckd_connections_ended_total",
			"Connections that the daemon ended: replies stayed unread, or memory was very short.",
			"reason"),
		reloadsFailed: t.counter("ckd_security_reloads_failed_total",
			"Failed attempts to read certificates, access file or receipt keys again; the old ones stay in force.",
			"files"),
		certificateNotAfter: t.gauge("ckd_certificate_not_after_timestamp_seconds",
			"When the daemon's certificate expires, in seconds since 1970; 0 without TLS.",
		).WithLabelValues(),
		panics: t.counter("ckd_panics_total",
			"Faults of the daemon that ended one call with an error; report them.",
		).WithLabelValues(),
		memoryPressure: t.gauge("ckd_memory_pressure",
			"Live memory as a share of what the memory limit leaves beyond the idle daemon: from 0.8 on calls are refused, "+
				"from 0.9 on connections ended. Absent without a limit."),
	}
	// Alerts are raised by the first of these events.
	d.refused.WithLabelValues("memory", "short")
	d.refused.WithLabelValues("watches", "full")
	for _, reason := range []string{"unread", "memory"} {
		d.connectionsEnded.WithLabelValues(reason)
	}
	for _, files := range []string{"access", "certificates"} {
		d.reloadsFailed.WithLabelValues(files)
	}
	return d
}

// create creates the series whose label values come from the options.
func (d *daemonEvents) create(o Options) error {
	if o.Receipts {
		d.reloadsFailed.WithLabelValues("receipt-keys")
	}
	build, err := d.buildInfo.GetMetricWithLabelValues(o.Version, o.Revision, runtime.Version())
	if err != nil {
		return fmt.Errorf("metrics: version %q, revision %q: %w", o.Version, o.Revision, err)
	}
	build.Set(1)
	return nil
}

// Panicked counts a panic that was turned into an error of one call.
func (m *Metrics) Panicked() { m.collector.daemon.panics.Inc() }

// Refused counts what was refused for want of a resource or of a right. Both labels must be words of
// the daemon, never a client's.
func (m *Metrics) Refused(resource, reason string) {
	m.collector.daemon.refused.WithLabelValues(resource, reason).Inc()
}

// ConnectionsEnded counts connections that the daemon ended because their client left replies "unread",
// or because "memory" was very short.
func (m *Metrics) ConnectionsEnded(reason string, n int) {
	m.collector.daemon.connectionsEnded.WithLabelValues(reason).Add(float64(n))
}

// MemoryPressure records the share of the memory limit that clients use.
func (m *Metrics) MemoryPressure(share float64) {
	m.collector.daemon.memoryPressure.WithLabelValues().Set(share)
}

// SecurityReloadFailed counts a failed attempt to read the "certificates", the "access" file or the "receipt-keys",
// or to fetch the "issuer-keys".
func (m *Metrics) SecurityReloadFailed(files string) {
	m.collector.daemon.reloadsFailed.WithLabelValues(files).Inc()
}

// CertificateNotAfter records when the certificate in force ends.
func (m *Metrics) CertificateNotAfter(t time.Time) {
	m.collector.daemon.certificateNotAfter.Set(float64(t.Unix()))
}
