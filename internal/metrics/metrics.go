package metrics

import (
	"cmp"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// defaultClassLabels is Options.ClassLabels unless they say otherwise.
const defaultClassLabels = 16

// Options configures New.
type Options struct {
	// ClassLabels is how many classes of a model have series of their own; 0 means 16. Critical
	// classes come first, then the others, both in the policy's order. The remaining classes share
	// one further label. A model has at most ClassLabels*(ClassLabels-1)/2 pairs.
	ClassLabels int
	// ClassBuckets gives histograms by class classic buckets beside the native ones.
	ClassBuckets bool
	// RejectReasons lists all reasons that an input or a message can be refused for.
	RejectReasons []string
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
	unknown   modelTraffic      // without a model
}

// Model holds the series of one model under one policy. It may be shared.
type Model struct {
	name, version, hash string
	recorders           []Recorder // by shard

	inputs  *modelInputs
	risks   *modelRisks   // nil without a risk model
	reviews *modelReviews // nil without receipts
	classes *modelClasses
	drift   *driftWatch // nil without a reference
	// prevalence is nil without a risk model, or where it is not known what that was fitted on.
	prevalence *prevalenceWatch
	modelTraffic
	earlyStop *modelEarlyStop // nil without a rule in force
}

// New registers the series. An error names the option that is wrong, or says why they cannot be
// registered; then nothing is registered.
func New(reg prometheus.Registerer, o Options) (*Metrics, error) {
	o.ClassLabels = cmp.Or(o.ClassLabels, defaultClassLabels)
	m := &Metrics{options: o, collector: newCollector(o), models: make(map[string]*Model)}
	m.collector.traffic.create("", withoutRoom)
	m.unknown = modelTraffic{families: &m.collector.traffic, onDemand: new(onDemand)}
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
func (m *Metrics) RejectedUnknownModel(reason string, n int) { m.unknown.Rejected(reason, n) }
