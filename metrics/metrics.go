package metrics

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// DefaultClassLabels is how many classes of a model have series of their own by default.
const DefaultClassLabels = 32

// Options configures New.
type Options struct {
	// ClassLabels is how many classes of a model have series of their own; 0 means
	// DefaultClassLabels. Critical classes come first, then the others, both in the policy's order.
	// The remaining classes share one further label. A model has at most
	// ClassLabels*(ClassLabels-1)/2 pairs.
	ClassLabels int
	// RejectReasons lists all reasons that an input can be refused for.
	RejectReasons []string
	// MessageReasons lists all reasons that a message of a stream can be refused for.
	MessageReasons []string
	// AccessReasons lists all reasons that a call can be refused for who made it.
	AccessReasons []string
	// BytesReasons lists all reasons that bytes can be refused for.
	BytesReasons []string
	// Receipts says that clients can take receipts.
	Receipts bool
	// Version and Revision of the build.
	Version, Revision string
}

// Metrics holds the series of the daemon. It may be shared.
type Metrics struct {
	collector *collector
	options   Options
	models    map[string]*Model // under the collector's lock
	rejected  *reasonCounters   // without a model
}

// Model holds the series of one model under one policy. It may be shared.
type Model struct {
	name, version, hash string
	recorders           []Recorder // by shard

	inputs  *modelInputs
	risks   *modelRisks   // nil without a risk model
	reviews *modelReviews // nil without receipts
	classes *modelClasses
	drift   *modelDrift // nil without a reference
	modelTraffic
	earlyStop *modelEarlyStop // nil without a rule in force
}

// New registers the series. An error names the option that is wrong, or says why they cannot be
// registered; then nothing is registered.
func New(reg prometheus.Registerer, o Options) (*Metrics, error) {
	if o.ClassLabels < 0 {
		return nil, fmt.Errorf("metrics: %d class labels: expected at least 1, or 0 for the default of %d",
			o.ClassLabels, DefaultClassLabels)
	}
	if o.ClassLabels == 0 {
		o.ClassLabels = DefaultClassLabels
	}
	o.RejectReasons, o.MessageReasons = slices.Clone(o.RejectReasons), slices.Clone(o.MessageReasons)

	m := &Metrics{options: o, collector: newCollector(), models: make(map[string]*Model)}
	for _, reason := range o.RejectReasons {
		if _, err := m.collector.traffic.rejected.GetMetricWithLabelValues("", reason); err != nil {
			return nil, fmt.Errorf("metrics: reject reason %q: %w", reason, err)
		}
	}
	m.rejected = newReasonCounters(m.collector.traffic.rejected, "", o.RejectReasons)
	if err := m.collector.daemon.create(o); err != nil {
		return nil, err
	}
	if err := reg.Register(m.collector); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// Model creates all series of a policy, as policy.Parse returns it, and of its plan.
//
// If the model had a policy before, counters go on where their labels stay. The info series of the
// old policy goes, and so do the series of classes, pairs and expectations that it alone had. A
// Model returned before stays usable, for inputs that were opened under it: it counts into the same
// series, and into nothing where its series are gone.
func (m *Metrics) Model(p *policy.Policy, plan *decomp.Plan) *Model {
	m.collector.mu.Lock()
	defer m.collector.mu.Unlock()
	next := m.collector.newModel(p, plan, m.options)
	if before := m.models[p.Name]; before != nil {
		m.collector.dropStale(before, next)
	}
	m.models[p.Name] = next
	return next
}

// Remove deletes all series of a model. If it comes back, it starts at zero.
func (m *Metrics) Remove(name string) {
	m.collector.mu.Lock()
	defer m.collector.mu.Unlock()
	if m.models[name] != nil {
		delete(m.models, name)
		m.collector.remove(name)
	}
}

// RejectedUnknownModel counts n refused inputs that named no served model. The series have no model
// label: the name came from a client.
func (m *Metrics) RejectedUnknownModel(reason string, n int) { m.rejected.add(reason, n) }
