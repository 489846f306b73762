package server

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/clock"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/policy"
)

// answerer settles what became of the inputs of one stream or call, of any protocol: it draws who
// reviews an input, counts the input, and logs what is worth a line. What it returns is only encoded.
type answerer struct {
	ctx       context.Context // of the stream or call
	decider   *decider
	issuer    issuer
	posterior string        // stated by the client
	hint      uint32        // chooses the shard of the metrics
	trace     trace.TraceID // of the call, for the decision log

	// Inputs are counted a few at a time: taking a shard of the metrics for each costs as much as
	// counting it, but others must not wait for the shard while much is computed.
	model  *model
	record *metrics.Recorder // nil: the shard is not taken
	left   int               // classes until it is given back
	now    int64             // time of the inputs counted with it, in microseconds since 1970; 0: none is
	looks  looks
	issued byStratum

	inputs, deferred int // decided, for the span of the call
}

// newAnswerer returns the answerer of a stream or call whose client states a posterior.
func (d *decider) newAnswerer(ctx context.Context, i issuer, posterior string) answerer {
	a := answerer{ctx: ctx, decider: d, issuer: i, posterior: posterior, hint: d.hints.Add(1)}
	if c := callOf(ctx); c != nil && d.decisions != nil {
		a.trace = c.trace.TraceID()
	}
	return a
}

// decided settles an input that was decided; x is what its client says of it. The result is valid until
// the next.
func (a *answerer) decided(m *model, id []byte, x *inputContext, c *engine.Closing) *issued {
	o := c.Outcome
	if a.now == 0 {
		a.now = clock.Now().UnixMicro()
	}
	drawn := a.issuer.issue(m, a.now, id, o, c.Early, x)
	if a.decider.decisions != nil {
		a.keep(m, id, c, drawn)
	}
	a.count(m, o, c.Sampled, drawn)
	a.report(m, id, o, drawn)
	passes := o.Passes
	if c.Early {
		passes = c.Planned // fewer are no difference from what the policy was calibrated on
	}
	m.compare(a.ctx, a.decider.log, passes, a.posterior)
	a.checked(m, c)
	return drawn
}

// countedClasses bounds the classes that are computed while a shard is taken: some tens of
// microseconds.
const countedClasses = 256

// count counts an outcome under a model, and what was issued for it. An input whose passes had a say in
// when it ended is not sampled.
func (a *answerer) count(m *model, o *engine.Outcome, sampled bool, drawn *issued) {
	if a.record != nil && a.model != m {
		a.done()
	}
	if a.record == nil {
		a.model, a.record, a.left = m, m.metrics.Record(a.hint), countedClasses
	}
	if sampled {
		a.record.Observe(o.Result, &o.Decision)
		if o.Trusted {
			a.record.ObservePriority(o.Priority)
		}
	} else {
		a.record.ObserveUnsampled(o.Result, &o.Decision)
	}
	a.looks.count(o)
	a.record.ObserveRisk(o.Risk, o.Decision.Action)
	a.issued.count(drawn)
	if drawn.eligible {
		propensity := float64(drawn.Propensity)
		if drawn.Free {
			propensity = 0 // nothing is drawn
		}
		a.record.ObserveReview(drawn.Stratum, drawn.Review, drawn.Exceeded, propensity)
	}
	a.inputs++
	if o.Decision.Action == policy.Defer {
		a.deferred++
	}
	if a.left -= len(o.C); a.left <= 0 {
		a.done()
	}
}

// done gives the shard of the metrics back, so that no other call waits for it.
func (a *answerer) done() {
	if a.record != nil {
		a.record.Done()
		a.record = nil
		if r := a.decider.receipts; r.available() {
			r.issued.add(a.model, a.issuer.version, a.now, &a.issued)
		}
		a.issued = byStratum{}
		a.model.look(a.decider.log, a.looks)
		a.looks = looks{}
	}
	a.now = 0
}

// end gives the shard back when no more inputs are counted, and tells the span of the call.
func (a *answerer) end() {
	a.done()
	if a.inputs > 0 {
		tracedOf(a.ctx).add(a.model, a.inputs, a.deferred)
		a.inputs, a.deferred = 0, 0
	}
}

// refused settles an input, or a message, that was refused, and returns what the client is told.
func (a *answerer) refused(m *model, place location, err error) *status.Status {
	a.done() // before the log is written
	m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
	a.decider.refusals.input(a.ctx, m, place, err)
	return statusOf(err, place)
}

// report calls the hook, if there is one, with an input that goes to a person.
func (a *answerer) report(m *model, id []byte, o *engine.Outcome, drawn *issued) {
	if a.decider.referred == nil || !drawn.Review && o.Decision.Action != policy.Defer {
		return
	}
	a.done()
	receipt := drawn.receipt
	if !drawn.Review {
		receipt = nil
	}
	a.decider.referred(m.Policy(), id, o, receipt)
}

// checked counts the passes that early stopping saved, and the result of a full-pass check.
func (a *answerer) checked(m *model, c *engine.Closing) {
	switch {
	case c.Check.State == engine.Judged:
		a.done() // before the log is written
		m.metrics.FullPassChecked(c.Check.Verdict, c.Planned)
		if c.Check.Stops {
			m.logStopped(a.decider.log)
		}
	case c.Check.State == engine.Lost:
		m.metrics.FullPassCheckLost()
	case c.Planned > 0:
		m.metrics.PassesUsed(c.Outcome.Passes, c.Planned)
	}
}

// logStopped logs why inputs of a policy no longer stop early.
func (m *model) logStopped(log *zap.Logger) {
	checks := m.lean.Stopper().Checks()
	what, rate := "disagreement", checks.All
	if checks.Stop.Retained {
		what, rate = "released", checks.Deferred
	}
	log.Warn("early stopping has ended: full-pass checks show that more inputs are decided otherwise than was certified; all passes decide "+
		"until there is another policy",
		zap.String("model", m.ref.GetModel()), zap.String("policy_hash", m.ref.GetHash()), zap.String("what", what),
		zap.Float64("certified", rate.Certified), zap.Uint64("checked", rate.Checked), zap.Uint64("disagreements", rate.Disagreements),
		zap.Float64("low", rate.Low), zap.Float64("high", rate.High),
		zap.Uint64("recently_checked", checks.Stop.Recent.Checked), zap.Uint64("recent_disagreements", checks.Stop.Recent.Disagreements))
}
