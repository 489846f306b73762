package metrics

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// daemonEvents declares what happens to the daemon as a whole, whatever the model.
type daemonEvents struct {
	buildInfo                                 *prometheus.GaugeVec
	httpRefused, accessRefused, reloadsFailed *prometheus.CounterVec
	bytesRefused, connectionsRefused          *prometheus.CounterVec
	connectionsOpen                           *prometheus.GaugeVec
	connectionsLimit                          prometheus.Gauge
	certificateNotAfter                       prometheus.Gauge
	panics, watchesRefused, stalled           prometheus.Counter
	memoryPressure                            *prometheus.GaugeVec // without a series where there is no memory limit
	memoryRefused, memoryEnded                prometheus.Counter
}

func declareDaemonEvents(t *table) daemonEvents {
	d := daemonEvents{
		buildInfo: t.gauge("ckd_build_info",
			"Always 1: version and revision of the daemon, and the Go version that built it.",
			"version", "revision", "goversion"),
		httpRefused: t.counter("ckd_http_requests_refused_total",
			"HTTP requests answered with an error before they became a call, by HTTP status "+
				"code; the others are counted as calls.",
			"code"),
		accessRefused: t.counter("ckd_access_refused_total",
			"Calls and HTTP requests refused for who made them, by reason.",
			"reason"),
		bytesRefused: t.counter("ckd_open_bytes_refused_total",
			"Requests for room in max-open-bytes that were refused: it is full, or the connection or "+
				"identity holds what it may.",
			"reason"),
		connectionsRefused: t.counter("ckd_connections_refused_total",
			"Connections closed as they came, by limit: max-connections (all) or "+
				"max-connections-per-address (address).",
			"limit"),
		connectionsOpen: t.gauge("ckd_connections_open",
			"Open connections, by address: grpc, http or admin.",
			"address"),
		connectionsLimit: t.gauge("ckd_connections_limit",
			"Most connections over gRPC and HTTP together; those of the admin address do not count.",
		).WithLabelValues(),
		reloadsFailed: t.counter("ckd_security_reloads_failed_total",
			"Failed attempts to read the certificates, the access file or the keys of receipts "+
				"again; what was in force stays.",
			"files"),
		certificateNotAfter: t.gauge("ckd_certificate_not_after_timestamp_seconds",
			"When the daemon's certificate expires, in seconds since 1970; 0 without TLS.",
		).WithLabelValues(),
		panics: t.counter("ckd_panics_total",
			"Panics turned into an error of the one call that they happened in: faults of the "+
				"daemon, to be reported.",
		).WithLabelValues(),
		watchesRefused: t.counter("ckd_watches_refused_total",
			"Health watches refused for lack of room: clients that balance load take the "+
				"daemon for unhealthy.",
		).WithLabelValues(),
		stalled: t.counter("ckd_connections_stalled_total",
			"Connections closed because their client read no reply to its unary calls for "+
				"30 s.",
		).WithLabelValues(),
		memoryPressure: t.gauge("ckd_memory_pressure",
			"Memory that lives above that of the idle daemon, as a share of what the memory limit "+
				"leaves: from 0.8 on new calls and streams are refused, from 0.9 on connections are "+
				"ended. No series without a memory limit."),
		memoryRefused: t.counter("ckd_memory_refused_total",
			"Calls, streams and compressed messages refused because memory was short.",
		).WithLabelValues(),
		memoryEnded: t.counter("ckd_memory_connections_ended_total",
			"Connections ended because memory was very short and they held most of it, or because "+
				"messages that were not whole exceeded max-open-bytes and they had most of them.",
		).WithLabelValues(),
	}
	for _, code := range []string{"400", "403", "404", "405", "408", "413", "415", "429"} {
		d.httpRefused.WithLabelValues(code)
	}
	for _, limit := range []string{"all", "address"} {
		d.connectionsRefused.WithLabelValues(limit)
	}
	for _, address := range []string{"grpc", "http", "admin"} {
		d.connectionsOpen.WithLabelValues(address)
	}
	for _, files := range []string{"access", "certificates"} {
		d.reloadsFailed.WithLabelValues(files)
	}
	return d
}

// create creates the series whose label values come from the options.
func (d *daemonEvents) create(o Options) error {
	for _, reason := range o.AccessReasons {
		if _, err := d.accessRefused.GetMetricWithLabelValues(reason); err != nil {
			return fmt.Errorf("metrics: access reason %q: %w", reason, err)
		}
	}
	for _, reason := range o.BytesReasons {
		if _, err := d.bytesRefused.GetMetricWithLabelValues(reason); err != nil {
			return fmt.Errorf("metrics: reason %q: %w", reason, err)
		}
	}
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

// WatchRefused counts a health watch that was refused for lack of room.
func (m *Metrics) WatchRefused() { m.collector.daemon.watchesRefused.Inc() }

// ConnectionStalled counts a connection that was closed because its client did not read.
func (m *Metrics) ConnectionStalled() { m.collector.daemon.stalled.Inc() }

// MemoryPressure records the share of the memory limit that clients use.
func (m *Metrics) MemoryPressure(share float64) {
	m.collector.daemon.memoryPressure.WithLabelValues().Set(share)
}

// MemoryRefused counts a call, stream or message that was refused because memory was short.
func (m *Metrics) MemoryRefused() { m.collector.daemon.memoryRefused.Inc() }

// MemoryConnectionsEnded counts connections that were ended because memory was very short.
func (m *Metrics) MemoryConnectionsEnded(n int) { m.collector.daemon.memoryEnded.Add(float64(n)) }

// HTTPRefused counts an HTTP request that was answered with an error before it became a call. code is
// its HTTP status.
func (m *Metrics) HTTPRefused(code int) {
	m.collector.daemon.httpRefused.WithLabelValues(strconv.Itoa(code)).Inc()
}

// AccessRefused counts a call that was refused for who made it, under one of Options.AccessReasons.
func (m *Metrics) AccessRefused(reason string) {
	m.collector.daemon.accessRefused.WithLabelValues(reason).Inc()
}

// BytesRefused counts a request for bytes that was refused, under one of Options.BytesReasons.
func (m *Metrics) BytesRefused(reason string) {
	m.collector.daemon.bytesRefused.WithLabelValues(reason).Inc()
}

// ConnectionRefused counts a connection that was closed as it came, because of the limit on "all"
// connections or on those of an "address".
func (m *Metrics) ConnectionRefused(limit string) {
	m.collector.daemon.connectionsRefused.WithLabelValues(limit).Inc()
}

// ConnectionsOpen counts connections that were opened at the address "grpc", "http" or "admin", or
// closed if n is negative.
func (m *Metrics) ConnectionsOpen(address string, n int) {
	m.collector.daemon.connectionsOpen.WithLabelValues(address).Add(float64(n))
}

// ConnectionsLimit records how many connections there may be over gRPC and HTTP together.
func (m *Metrics) ConnectionsLimit(n int) { m.collector.daemon.connectionsLimit.Set(float64(n)) }

// SecurityReloadFailed counts a failed attempt to read the "certificates", the "access" file or the "receipt-keys",
// or to fetch the "issuer-keys".
func (m *Metrics) SecurityReloadFailed(files string) {
	m.collector.daemon.reloadsFailed.WithLabelValues(files).Inc()
}

// CertificateNotAfter records when the certificate in force ends.
func (m *Metrics) CertificateNotAfter(t time.Time) {
	m.collector.daemon.certificateNotAfter.Set(float64(t.Unix()))
}
