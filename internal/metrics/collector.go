package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/metrics/internal/sharded"
	"github.com/ckd-project/ckd/policy"
)

// collector joins all groups of series into one prometheus.Collector: they are registered together,
// and a change under its lock reaches scrapes as a whole. Every group declares, creates and updates
// series of its own.
type collector struct {
	mu     sync.RWMutex
	shards []sharded.Shard
	table

	inputs      inputs
	risks       risks
	reviews     reviews
	classes     classes
	drift       driftWatches
	prevalence  prevalenceWatches
	traffic     traffic
	earlyStop   earlyStops
	policies    policies
	promises    promises
	saturation  saturation
	decisionLog decisionLog
	daemon      daemonEvents

	readings []reading
}

// reading returns a function that sends a scrape what other parts of the daemon said just before. It is
// called without the collector's lock, which a change of policies may hold, and the function under it.
type reading func() (send func(to chan<- prometheus.Metric))

// atScrapes makes every scrape call r.
func (c *collector) atScrapes(r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readings = append(c.readings, r)
}

func newCollector(o Options) *collector {
	shards := sharded.NewShards()
	c := &collector{shards: shards, table: table{classBuckets: o.ClassBuckets}}
	t := &c.table
	c.inputs = declareInputs(t)
	c.risks = declareRisks(t)
	c.reviews = declareReviews(t)
	c.classes = declareClasses(t)
	c.drift = declareDrift(t, len(shards))
	c.prevalence = declarePrevalence(t, len(shards))
	c.traffic = declareTraffic(t, o.RejectReasons)
	c.earlyStop = declareEarlyStops(t)
	c.policies = declarePolicies(t)
	c.promises = declarePromises(t)
	c.saturation = declareSaturation(t)
	c.decisionLog = declareDecisionLog(t)
	c.daemon = declareDaemonEvents(t)
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range c.families {
		f.vec.Describe(to)
	}
}

// Collect implements prometheus.Collector. It adds up one shard after another, all series under one
// lock, so that a scrape has a message whole or not at all.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.mu.RLock()
	readings := slices.Clone(c.readings)
	c.mu.RUnlock()
	var sends []func(chan<- prometheus.Metric)
	for _, read := range readings {
		sends = append(sends, read())
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var scrapes []sharded.Scrape
	for _, f := range c.families {
		if v, ok := f.vec.(interface{ Scrape() sharded.Scrape }); ok {
			scrapes = append(scrapes, v.Scrape())
		}
	}
	for i := range c.shards {
		c.shards[i].Lock()
		for _, s := range scrapes {
			s.Add(i)
		}
		for _, w := range c.drift.watches {
			w.collectShard(i)
		}
		for _, w := range c.prevalence.watches {
			w.collectShard(i)
		}
		c.shards[i].Unlock()
	}
	for _, s := range scrapes {
		s.Collect(to)
	}
	for _, w := range c.drift.watches {
		w.collect(to)
	}
	for _, w := range c.prevalence.watches {
		w.collect(to)
	}
	for _, send := range sends {
		send(to)
	}
	for _, f := range c.families { // last: drift may just have counted alarms
		if v, ok := f.vec.(prometheus.Collector); ok {
			v.Collect(to)
		}
	}
}

// newModel creates the series of a model, or finds those that exist.
func (c *collector) newModel(p *policy.Policy, plan *decomp.Plan, o Options) *Model {
	labels, traffic := newClassLabels(p, o.ClassLabels), c.traffic.model(p.Name)
	m := &Model{
		name: p.Name, version: p.Version, hash: p.Hash,
		recorders: make([]Recorder, len(c.shards)),

		inputs:       c.inputs.model(p, traffic.onDemand),
		risks:        c.risks.model(p),
		reviews:      c.reviews.model(p, &o),
		classes:      c.classes.model(p, labels, plan.Pairs()),
		drift:        c.drift.model(p, &labels),
		prevalence:   c.prevalence.model(p),
		modelTraffic: traffic,
		earlyStop:    c.earlyStop.model(p),
	}
	for i := range m.recorders {
		m.recorders[i] = Recorder{model: m, shard: &c.shards[i], index: i}
	}
	c.policies.putInForce(p)
	return m
}

// dropStale deletes the series of a policy that the next one of the model lacks. Those of decisions
// stay, so that sums over them never fall.
func (c *collector) dropStale(before, next *Model) {
	c.classes.dropStale(before.name, before.classes, next.classes)
	c.risks.dropStale(before.name, next.risks)
	if before.version != next.version || before.hash != next.hash {
		c.policies.info.DeleteLabelValues(before.name, before.version, before.hash)
	}
}

// remove deletes all series of a model.
func (c *collector) remove(name string) {
	c.drift.remove(name)
	delete(c.prevalence.watches, name)
	c.traffic.remove(name)
	c.earlyStop.remove(name)
	c.deleteModel(name)
}
