package server

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/passcheck"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// stream is a stream of ckd.v1 whose header was accepted. Two goroutines work on it: its exchange
// handles the messages, and its supervisor ends what takes too long.
type stream struct {
	supervision
	decider *decider
	header  *ckdv1.StreamHeader
	bound   *model // in force when the stream opened; its shape binds the stream
	sender  sender

	mu       sync.Mutex // guards the fields below
	closed   bool
	groups   openGroups
	memory   blockMemory
	answerer answerer
	reply    replyBuilder
	run      *passcheck.Run // of the stream's inputs
	now      int64          // arrival of the current message, by the sender's stopwatch
	current  *group         // whose inputs are answered
	scratch  *scratch       // of the current message; nil unless something is computed
}

func newStream(d *decider, m *model, h *ckdv1.StreamHeader, of grpc.ServerStream, i issuer) *stream {
	d.catalog.retain(m)
	tracedOf(of.Context()).add(m, 0, 0)
	account := d.budget.accountOf(of.Context())
	st := &stream{
		decider: d, header: h, bound: m,
		groups:   newOpenGroups(&d.limits, account),
		answerer: d.newAnswerer(of.Context(), i, h.GetPosterior()),
		run:      passcheck.NewRun(len(m.Policy().Classes), m.run),
	}
	st.watch.begun = time.Now()
	st.sender.stream, st.sender.account, st.sender.watch = of, account, &st.watch
	st.reply.spare = &st.sender.spare
	return st
}

// welcome returns the first answer of the stream.
func (s *stream) welcome() reply {
	p := s.bound.Policy()
	s.sender.made()
	return reply{made: s.watch.now(), message: &ckdv1.DecomposeStreamResponse{Info: &ckdv1.StreamInfo{
		Classes:        p.Classes,
		Kind:           kindMessage(p.Kind),
		ExpectedPasses: uint32(s.expected(s.bound)),
		FewestPasses:   uint32(p.FewestPasses),
		Limits:         s.decider.limits.message(s.decider.catalog.messageBytes()),
		Acknowledges:   s.header.GetAcceptSettled(),
		Settles:        s.header.GetAcceptSettled() && s.bound.lean.StopsEarly(s.expected(s.bound)),
		Audits:         s.answerer.issuer.takes() && p.Audit != nil,
	}}}
}

// expected returns the number of passes that completes an input; 0 means that none does.
func (s *stream) expected(m *model) int {
	if n := int(s.header.GetPasses()); n > 0 {
		return n
	}
	return m.Policy().ExpectedPasses
}

// receive handles a message after the header and returns the reply to it.
func (s *stream) receive(m *wire.StreamRequest) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return reply{}
	}
	s.now = s.watch.now()
	switch {
	case m.Block != nil:
		s.handle(m.Block)
		s.reply.blockHandled(s.header.GetAcceptSettled())
	case m.Header == nil:
		s.refuse(location{}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_EMPTY_MESSAGE, message: "a message without header or block",
			value: "neither", expected: "a block",
		})
	case !proto.Equal(m.Header, s.header):
		s.refuse(location{}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_HEADER_CHANGED, field: "header",
			message: "a later header differs from the first, which stays in force",
			value:   "another header", expected: "the first header again, or none",
		})
	}
	return s.flush()
}

// flush returns the reply to the current message and releases its scratch memory.
func (s *stream) flush() reply {
	s.current = nil
	s.releaseScratch()
	s.memory.release()
	s.groups.endMessage()
	r := s.reply.flush(s.now)
	if r.message == nil {
		s.groups.account.release(s.reply.cost)
		s.reply.cost = 0
		return r
	}
	s.sender.made()
	return r
}

// position returns the location of a row of a group.
func position(group uint64, number int, id string) location {
	return location{input: id, group: group, hasGroup: true, row: number, hasPosition: true}
}

// removeIfDone gives back what a group without open inputs holds.
func (s *stream) removeIfDone(g *group) {
	if g.open() > 0 {
		return
	}
	if g.inputs != nil {
		s.decider.catalog.release(g.model)
	}
	s.groups.remove(g)
}

// expire fails the inputs that have had no pass for too long. It implements supervised.
func (s *stream) expire() {
	if reply := s.expired(); reply.message != nil {
		// A send may block, which the supervisor must not. An error ends the exchange too.
		go func() { _ = s.sender.send(reply) }()
	}
}

// expired fails the inputs that have had no pass for too long and returns the reply with them.
func (s *stream) expired() reply {
	limit := s.decider.limits.InputIdle
	return s.endInputs(func(g *group, r *row) bool {
		if time.Duration(s.now-max(r.touched, g.touched)) >= limit {
			s.failOpen(g, r, &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_INPUT_IDLE, value: fmt.Sprintf("%d passes", g.inputs.Passes(int(r.slot))),
				message: fmt.Sprintf("no pass came for %v", limit), expected: "passes, or a final block",
			})
		}
		return true
	})
}

// endInputs calls end for the open inputs, in the order of groups and rows, for as long as it returns
// true. It returns the reply with the inputs that have ended.
func (s *stream) endInputs(end func(g *group, r *row) bool) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return reply{}
	}
	s.now = s.watch.now()
	for _, g := range s.groups.sorted() {
		for r := range g.openRows() {
			if !end(g, r) {
				return s.flush()
			}
		}
		s.removeIfDone(g)
	}
	return s.flush()
}

// over returns nil while the stream goes on. Once it opens no more inputs and has answered all it
// had, over returns the status to end it with. It implements supervised.
func (s *stream) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := s.ending.Load()
	if why == nil || s.groups.inputs > 0 || s.sender.unsent.Load() > 0 {
		return nil
	}
	return statusOf(why, location{}).Err()
}

// policiesReplaced ends a stream whose policy is gone, or has another shape. It implements
// supervised.
func (s *stream) policiesReplaced() {
	if _, changed := s.decider.catalog.successor(s.bound); changed != nil {
		s.end(changed)
	}
}

// replyBytes bounds, roughly, each reply to a half-close.
const replyBytes = 1 << 20

// finishAll finishes what is open, because the client has half-closed. There is no block to answer, so
// it may take several messages.
func (s *stream) finishAll() error {
	most := max(1, replyBytes/int(resultBytes(s.bound, s.header.GetDetail(), &s.answerer.issuer)))
	for {
		reply := s.endInputs(func(g *group, r *row) bool {
			if s.reply.results() >= most {
				return false
			}
			s.finish(g, r)
			return true
		})
		if reply.message == nil {
			return nil
		}
		if err := s.sender.send(reply); err != nil {
			return err
		}
	}
}

// close gives up the open inputs and counts them as abandoned. After finishAll there are none.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answerer.end()
	for _, g := range s.groups.byNumber {
		g.model.metrics.Abandoned(g.open())
		s.groups.abandon(g)
		s.removeIfDone(g)
	}
	s.groups.account.release(s.groups.held + s.reply.cost) // they are nothing, but after a panic
	s.groups.held, s.reply.cost = 0, 0
	s.closed = true
	s.decider.catalog.release(s.bound)
}
