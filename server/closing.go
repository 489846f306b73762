package server

import (
	"errors"
	"unsafe"

	"github.com/ckd-project/ckd/engine"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// feed gives a block of a group to the engine.
func (s *stream) feed(g *group, block *engine.Block) {
	batch := s.compute(g)
	if late := g.inputs.Feed(batch, block, s); late > 0 {
		g.model.metrics.Late(late)
	}
}

// finish decides an open input on the passes that it has.
func (s *stream) finish(g *group, r *row) {
	batch := s.compute(g)
	g.inputs.Finish(batch, int(r.slot), 1, s)
}

// failOpen fails an open input.
func (s *stream) failOpen(g *group, r *row, err error) {
	s.current = g
	g.inputs.Fail(int(r.slot), err, s)
}

// compute makes a group the current one and returns scratch memory of its model for the current
// message.
func (s *stream) compute(g *group) *engine.Batch {
	s.current = g
	pool := g.model.pool(s.header.GetDetail())
	if s.scratch != nil && s.scratch.from != pool {
		s.releaseScratch()
	}
	if s.scratch == nil {
		s.scratch = pool.get(s.run)
	}
	return s.scratch.batch
}

// releaseScratch gives back the scratch memory of the current message.
func (s *stream) releaseScratch() {
	if s.scratch != nil {
		s.scratch.release()
		s.scratch = nil
	}
}

// A stream implements engine.Answers: it takes what becomes of the inputs of the current group.

// Begin takes what n results occupy until they are sent out of the budget.
func (s *stream) Begin(n int) error {
	cost := replyCostFactor * int64(n) * resultBytes(s.current.model, s.header.GetDetail(), &s.answerer.issuer)
	if account := s.groups.account; !account.reserveReply(cost) {
		return account.refuse("detail", cost)
	}
	s.reply.cost += cost
	return nil
}

// End releases what the answerer holds while inputs are counted.
func (s *stream) End() { s.answerer.done() }

// Close adds how an input ended to the reply.
func (s *stream) Close(slot int, c *engine.Closing) {
	g := s.current
	number := g.bySlot[slot]
	r := &g.rows[number]
	if c.Err != nil {
		place := position(g.number, int(number), r.id)
		place.classes = g.model.Policy().Classes
		s.fail(g.model, place, wireError(c.Err))
		s.answerer.checked(g.model, c)
	} else {
		id := unsafe.Slice(unsafe.StringData(r.id), len(r.id))
		drawn := s.answerer.decided(g.model, id, g.context(int(number)), c)
		s.reply.result(g, number, id, s.scratch.encode(c.Outcome, s.header.GetDetail(), c.Early, drawn))
	}
	s.groups.ended(g, r)
}

// fail adds the error of an input to the reply.
func (s *stream) fail(m *model, place location, err error) {
	said := s.answerer.refused(m, place, err)
	place.input = echo(&s.decider.limits, place.input)
	s.reply.fail(m, place, said.Proto())
}

// refuse adds a fault of the message itself, which is no input's, to the reply.
func (s *stream) refuse(place location, err error) {
	s.reply.fault(s.answerer.refused(s.bound, place, err).Proto())
}

// wireError returns an error of the engine in the words of the wire.
func wireError(err error) error {
	if limit := (*engine.PassLimitError)(nil); errors.As(err, &limit) {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", "passes", int64(limit.Passes), int64(limit.Limit))
	}
	return err
}
