package server

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// answers has the engine decide on the inputs of one group after another, and writes what becomes of
// them into the reply of their stream. It implements engine.Answers.
type answers struct {
	stream  *stream
	group   *group
	scratch *scratch       // of the current message; nil unless something is computed
	out     *wire.Outgoing // the reply, from Begin to End
	policy  uint32         // position of the group's policy in it
	counted counter
}

// to returns the answers of a group, with scratch memory of its model for the current message.
func (a *answers) to(g *group) *answers {
	pool := g.model.pool(a.stream.header.GetDetail())
	if a.scratch != nil && a.scratch.from != pool {
		a.release()
	}
	if a.scratch == nil {
		a.scratch = pool.get(a.stream.run)
	}
	a.group, a.counted.model, a.counted.version = g, g.model, a.stream.issuer.version
	return a
}

// release gives the scratch memory of the current message back.
func (a *answers) release() {
	if a.scratch != nil {
		a.scratch.release()
	}
	a.group, a.scratch = nil, nil
}

// feed gives a block of a group to the engine.
func (a *answers) feed(g *group, block *engine.Block) {
	if late := g.inputs.Feed(a.to(g).scratch.batch, block, a); late > 0 {
		g.model.metrics.Late(late)
	}
}

// finish decides an open input on the passes that it has.
func (a *answers) finish(g *group, r *row) {
	g.inputs.Finish(a.to(g).scratch.batch, int(r.slot), 1, a)
}

// fail fails an open input.
func (a *answers) fail(g *group, r *row, err error) {
	g.inputs.Fail(int(r.slot), err, a.to(g))
}

// Begin implements engine.Answers: it takes what n results occupy until they are sent out of the
// budget.
func (a *answers) Begin(n int) error {
	s := a.stream
	cost := int64(n) * resultCost(a.group.model, s.header.GetDetail(), &s.issuer)
	if account := s.groups.account; !account.reserveReply(cost) {
		return account.refuse("detail", cost)
	}
	s.reply.cost += cost
	a.out, a.policy = s.reply.forModel(a.group.model)
	return nil
}

func (a *answers) End() {
	a.counted.done()
	a.out = nil
}

func (a *answers) Close(input int, c *engine.Closing) {
	s, g := a.stream, a.group
	number := g.bySlot[input]
	r := &g.rows[number]
	if c.Err != nil {
		a.counted.done() // nobody waits for a shard of the metrics while the log is written
		at := position(g.number, int(number), r.id)
		at.classes = g.model.Policy().Classes
		s.reply.fail(g.model, at, wireError(c.Err))
	} else {
		a.decided(number, r, c)
	}
	a.observeCheck(c)
	s.groups.ended(g, r)
}

// wireError returns an error of the engine in the words of the wire.
func wireError(err error) error {
	if limit := (*engine.PassLimitError)(nil); errors.As(err, &limit) {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", "passes", int64(limit.Passes), int64(limit.Limit))
	}
	return err
}

// decided counts the outcome of an input and adds it to the reply.
func (a *answers) decided(number uint32, r *row, c *engine.Closing) {
	s, g, o := a.stream, a.group, c.Outcome
	id := unsafe.Slice(unsafe.StringData(r.id), len(r.id))
	is := s.issuer.issue(g.model, a.counted.time(), id, o, c.Early, g.context(int(number)))
	a.counted.count(o, c.Sampled, &is)
	s.decider.referred.report(&a.counted, id, o, &is)
	passes := o.Passes
	if c.Early {
		passes = c.Planned // fewer are no difference from what the policy was calibrated on
	}
	s.notes.compare(g, passes)
	answer := a.scratch.encode(o, s.header.GetDetail())
	answer.Settled, answer.Review, answer.Receipt = c.Early, is.Review, is.receipt
	a.out.Result(id, g.number, number, a.policy, answer)
}

// observeCheck counts the passes that early stopping saved, and what came of a full-pass check.
func (a *answers) observeCheck(c *engine.Closing) {
	m := a.group.model
	switch {
	case c.Check.State == engine.Judged:
		a.counted.done() // nobody waits for a shard of the metrics while the log is written
		m.metrics.FullPassChecked(c.Check.Verdict, c.Planned)
		if c.Check.Stops {
			m.logStopped(a.stream.decider.log)
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

// report calls the hook, if there is one, with an input that goes to a person. It releases the shard
// of the metrics first, so that no other call waits for it meanwhile.
func (r Referred) report(counted *counter, id []byte, o *engine.Outcome, is *issued) {
	if r == nil || !is.Review && o.Decision.Action != policy.Defer {
		return
	}
	counted.done()
	receipt := is.receipt
	if !is.Review {
		receipt = nil
	}
	r(counted.model.Policy(), id, o, receipt)
}

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

// newCounter returns a counter for a stream or call.
func (d *decider) newCounter(ctx context.Context) counter {
	c := counter{hint: d.hints.Add(1), trace: sampledTrace(ctx), traced: tracedOf(ctx), log: d.log}
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

// count counts an outcome, and what was issued for it. An input whose passes had a say in when it
// ended is not sampled.
func (c *counter) count(o *engine.Outcome, sampled bool, is *issued) {
	if c.record == nil {
		c.record, c.left = c.model.metrics.Record(c.hint), countedClasses
	}
	if sampled {
		c.record.Observe(o.Result, &o.Decision)
	} else {
		c.record.ObserveUnsampled(o.Result, &o.Decision)
	}
	c.looks.count(o)
	c.record.ObserveRisk(o.Risk, o.Decision.Action)
	c.issued.count(is)
	if is.eligible {
		propensity := float64(is.Propensity)
		if is.Free {
			propensity = 0 // nothing is drawn
		}
		c.record.ObserveReview(is.Stratum, is.Review, is.Exceeded, propensity)
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
