package metrics

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// DefaultClassLabels is how many classes of a model have series of their own
// where Options does not say.
const DefaultClassLabels = 32

// Options are what a Metrics needs to know of the daemon.
type Options struct {
	// ClassLabels is how many classes of a model have series of their own; 0
	// takes DefaultClassLabels. The critical classes come first, then the rest,
	// both in the policy's order. What is left is counted together under one
	// further label. A model has at most ClassLabels*(ClassLabels-1)/2 pairs.
	ClassLabels int
	// RejectReasons are all reasons that an input can be refused for.
	RejectReasons []string
	// MessageReasons are all reasons that a message of a stream can be refused for.
	MessageReasons []string
	// AccessReasons are all reasons that a call can be refused for by who made it.
	AccessReasons []string
	// Version and Revision of the build.
	Version, Revision string
}

// Metrics is the series of the daemon. It may be shared.
type Metrics struct {
	options  Options
	series   *series
	models   map[string]*Model // under the lock of series
	rejected *reasonCounters   // without a model
}

// New registers the series. The error says which option is wrong, or why they
// cannot be registered; nothing is registered then.
func New(reg prometheus.Registerer, o Options) (*Metrics, error) {
	if o.ClassLabels < 0 {
		return nil, fmt.Errorf("metrics: %d class labels: expected at least 1, or 0 for the default of %d",
			o.ClassLabels, DefaultClassLabels)
	}
	if o.ClassLabels == 0 {
		o.ClassLabels = DefaultClassLabels
	}
	o.RejectReasons, o.MessageReasons = slices.Clone(o.RejectReasons), slices.Clone(o.MessageReasons)

	m := &Metrics{options: o, series: declare(), models: make(map[string]*Model)}
	for _, reason := range o.RejectReasons {
		if _, err := m.series.rejected.GetMetricWithLabelValues("", reason); err != nil {
			return nil, fmt.Errorf("metrics: reject reason %q: %w", reason, err)
		}
	}
	for _, reason := range o.AccessReasons {
		if _, err := m.series.accessRefused.GetMetricWithLabelValues(reason); err != nil {
			return nil, fmt.Errorf("metrics: access reason %q: %w", reason, err)
		}
	}
	m.rejected = newReasonCounters(m.series.rejected, "", o.RejectReasons)
	build, err := m.series.buildInfo.GetMetricWithLabelValues(o.Version, o.Revision, runtime.Version())
	if err != nil {
		return nil, fmt.Errorf("metrics: version %q, revision %q: %w", o.Version, o.Revision, err)
	}
	build.Set(1)
	if err := reg.Register(m.series); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// Model puts a policy, as policy.Parse returns it, and its plan in force: it
// creates all series of the model.
//
// If the model had a policy before, counters go on where their labels stay. The
// info series of the old policy goes, and so do the series of classes, pairs and
// expectations that are no more. A Model got before stays usable, for the inputs
// that were opened under it: it counts into the same series, and into nothing
// where its series are gone.
func (m *Metrics) Model(p *policy.Policy, plan *decomp.Plan) *Model {
	m.series.mu.Lock()
	defer m.series.mu.Unlock()
	next := newModel(m.series, p, plan, m.options)
	if before := m.models[p.Name]; before != nil {
		before.dropStale(next)
	}
	m.models[p.Name] = next
	return next
}

// Remove drops all series of a model. It may come back, at zero.
func (m *Metrics) Remove(name string) {
	m.series.mu.Lock()
	defer m.series.mu.Unlock()
	if m.models[name] == nil {
		return
	}
	delete(m.models, name)
	if w := m.series.watches[name]; w != nil {
		w.retire()
		delete(m.series.watches, name)
	}
	delete(m.series.settled, name)
	for _, f := range m.series.families {
		f.vec.DeletePartialMatch(prometheus.Labels{"model": name})
	}
}

// RejectedUnknownModel counts n inputs refused that named no model that is
// served. The name is not told: a client sent it.
func (m *Metrics) RejectedUnknownModel(reason string, n int) { m.rejected.add(reason, n) }

// Panicked counts a panic that was turned into an error of one call.
func (m *Metrics) Panicked() { m.series.panics.Inc() }

// WatchRefused counts a watch of the health for which there was no room.
func (m *Metrics) WatchRefused() { m.series.watchesRefused.Inc() }

// ConnectionStalled counts a connection that was closed as its client did not read.
func (m *Metrics) ConnectionStalled() { m.series.connectionsStalled.Inc() }

// HTTPRefused counts an HTTP request that was answered with an error, of this
// status, before it became a call.
func (m *Metrics) HTTPRefused(code int) {
	m.series.httpRefused.WithLabelValues(strconv.Itoa(code)).Inc()
}

// AccessRefused counts a call that was refused for who made it, for one of
// Options.AccessReasons.
func (m *Metrics) AccessRefused(reason string) {
	m.series.accessRefused.WithLabelValues(reason).Inc()
}

// SecurityReloadFailed counts an attempt to read certificates or identities that
// failed.
func (m *Metrics) SecurityReloadFailed(files string) {
	m.series.securityReloadsFailed.WithLabelValues(files).Inc()
}

// CertificateNotAfter tells when the certificate in force ends.
func (m *Metrics) CertificateNotAfter(t time.Time) {
	m.series.certificateNotAfter.Set(float64(t.Unix()))
}

// Reloaded records an attempt to load the policies; at is when it succeeded.
func (m *Metrics) Reloaded(ok bool, at time.Time) {
	if !ok {
		m.series.reloadSuccessful.Set(0)
		return
	}
	m.series.reloadSuccessful.Set(1)
	m.series.reloadSuccessTime.Set(float64(at.UnixNano()) / 1e9)
}
