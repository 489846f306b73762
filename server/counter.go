package server

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/policy"
)

// counter counts outcomes, a few at a time: taking a shard of the metrics for each costs as much as
// counting it, but others must not wait for the shard while much is computed.
type counter struct {
	model  *model
	hint   uint32            // selects the shard
	trace  string            // trace for the exemplars of deferred inputs; empty for none
	record *metrics.Recorder // nil: the shard is not taken
	left   int               // classes until it is given back

	log     *zap.Logger
	looks   looks
	counts  *issuedCounts // nil: what is issued is not counted
	version string        // of the model, if the client states one
	now     int64         // time of the inputs that are counted now, in microseconds since 1970; 0: none is
	issued  byStratum

	traced           *traced // nil: no span is recorded
	inputs, deferred int     // since traced was told
}

// newCounter returns a counter for a stream or call whose client states a version of the model.
func (d *decider) newCounter(ctx context.Context, version string) counter {
	c := counter{hint: d.hints.Add(1), trace: sampledTrace(ctx), traced: tracedOf(ctx), log: d.log, version: version}
	if d.receipts.available() {
		c.counts = &d.receipts.issued
	}
	return c
}

// time returns the time of the input that is counted next. Inputs that are counted together share it.
func (c *counter) time() int64 {
	if c.now == 0 {
		c.now = time.Now().UnixMicro()
	}
	return c.now
}

// countedClasses bounds the classes that are computed while a shard is taken: some tens of
// microseconds.
const countedClasses = 256

// count counts an outcome under a model, and what was issued for it. An input whose passes had a say in
// when it ended is not sampled.
func (c *counter) count(m *model, o *engine.Outcome, sampled bool, drawn *issued) {
	if c.record != nil && c.model != m {
		c.done()
	}
	if c.record == nil {
		c.model, c.record, c.left = m, m.metrics.Record(c.hint), countedClasses
	}
	if sampled {
		c.record.Observe(o.Result, &o.Decision)
	} else {
		c.record.ObserveUnsampled(o.Result, &o.Decision)
	}
	c.looks.count(o)
	c.record.ObserveRisk(o.Risk, o.Decision.Action)
	c.issued.count(drawn)
	if drawn.eligible {
		propensity := float64(drawn.Propensity)
		if drawn.Free {
			propensity = 0 // nothing is drawn
		}
		c.record.ObserveReview(drawn.Stratum, drawn.Review, drawn.Exceeded, propensity)
	}
	c.inputs++
	if o.Decision.Action == policy.Defer {
		c.deferred++
		if c.trace != "" {
			c.record.Exemplify(c.trace, o.Result, &o.Decision)
		}
	}
	if c.left -= len(o.C); c.left <= 0 {
		c.done()
	}
}

// end gives the shard back, when no more inputs are counted, and tells the span of the call.
func (c *counter) end() {
	c.done()
	if c.inputs > 0 {
		c.traced.add(c.model, c.inputs, c.deferred)
		c.inputs, c.deferred = 0, 0
	}
}

// done gives the shard back.
func (c *counter) done() {
	if c.record != nil {
		c.record.Done()
		c.record = nil
		if c.counts != nil {
			c.counts.add(c.hint, c.model, c.version, c.time(), &c.issued)
		}
		c.issued = byStratum{}
		c.model.look(c.log, c.looks)
		c.looks = looks{}
	}
	c.now = 0
}
