package server

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"go.uber.org/zap"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/wire"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// session is the state of one stream: its open groups. What blocks do to it is
// in block.go, and what becomes of the inputs of a group in group.go.
type session struct {
	server *Server
	stream grpc.ServerStream
	header *ckdv1.StreamHeader
	bound  *model // in force when the stream opened; its shape binds the stream
	begun  time.Time
	hint   uint32 // for the shards of metrics
	trace  string // that the stream is part of, if it is sampled

	// A send may block for as long as the client does not read.
	sending      sync.Mutex
	sendingSince atomic.Int64 // see sinceBegun; 0 while nothing is being sent
	isEnding     atomic.Bool  // ending is set

	// mu guards what follows. The stream's exchange takes it once a message; its
	// supervisor, now and then.
	mu        sync.Mutex
	closed    bool
	ending    *fault // why no more inputs are opened; nil while they are
	unsent    int    // replies that were made and are not sent yet
	groups    map[uint64]*group
	anyOpened bool
	highest   uint64 // number of any group opened
	ids       map[string]struct{}
	inputs    int   // open
	held      int64 // bytes of the process-wide budget
	logged    map[ckdv1.ErrorReason]bool
	latest    *model       // of the group opened last
	told      *differences // of latest's inputs, that were logged
	blocks    uint64       // that were dealt with
	identical identical    // whether the inputs of the stream say anything
	building  int64        // bytes of the budget that the results at hand take
	now       int64        // sinceBegun, when what is being dealt with came

	// What the message at hand gave; see take.
	reply       *wire.Outgoing
	policies    []*model // that the reply names, in order
	faults      []*rpcstatus.Status
	acknowledge bool    // it is answered, and with the number of blocks
	worker      *worker // nil unless something is being computed

	// Scratch.
	sent   *wire.Outgoing // to be the next reply
	spare  *group
	all    []uint32
	usable []bool
	seen   idSet
}

func newSession(s *Server, m *model, h *ckdv1.StreamHeader, stream grpc.ServerStream) *session {
	s.retain(m)
	m.metrics.StreamsOpen(1)
	return &session{
		server: s, stream: stream, header: h, bound: m, begun: time.Now(), hint: s.hints.Add(1), trace: sampledTrace(stream.Context()),
		groups: map[uint64]*group{},
		ids:    map[string]struct{}{},
		logged: map[ckdv1.ErrorReason]bool{},
	}
}

// sinceBegun is the session's clock; it is never 0.
func (s *session) sinceBegun() int64 { return int64(time.Since(s.begun)) | 1 }

// reply is a message to send, what it takes of the budget until it is sent, and
// when it was made.
type reply struct {
	message any // nil for none
	cost    int64
	made    int64 // see sinceBegun
}

// welcome is the first answer of the stream.
func (s *session) welcome() reply {
	p := s.bound.Policy()
	s.unsent++ // nobody else knows the session yet
	return reply{made: s.sinceBegun(), message: &ckdv1.DecomposeStreamResponse{Info: &ckdv1.StreamInfo{
		Classes:        p.Classes,
		Kind:           kindMessage(p.Kind),
		ExpectedPasses: uint32(s.expected(s.bound)),
		FewestPasses:   uint32(p.FewestPasses),
		Limits:         s.server.limits.message(),
		Acknowledges:   s.header.GetAcceptSettled(),
		Settles:        s.header.GetAcceptSettled() && s.bound.settling.settles(s.expected(s.bound)),
	}}}
}

// expected is the number of passes that finishes an input.
func (s *session) expected(m *model) int {
	if n := int(s.header.GetPasses()); n > 0 {
		return n
	}
	return m.Policy().ExpectedPasses
}

// receive deals with a message after the header and returns the reply to it.
func (s *session) receive(m *wire.StreamRequest) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return reply{}
	}
	s.now = s.sinceBegun()
	switch {
	case m.Block != nil:
		s.block(m.Block)
		s.blocks++
		s.acknowledge = s.header.GetAcceptSettled()
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
	return s.take()
}

// out is the reply that is being built, with the position of a policy in it.
func (s *session) out(m *model) (*wire.Outgoing, uint32) {
	s.beginReply()
	at := slices.Index(s.policies, m)
	if at < 0 {
		at = len(s.policies)
		s.policies = append(s.policies, m)
		s.reply.Policy(m.encodedRef)
	}
	return s.reply, uint32(at)
}

func (s *session) beginReply() {
	if s.reply != nil {
		return
	}
	if s.reply, s.sent = s.sent, nil; s.reply == nil {
		s.reply = wire.NewOutgoing(wire.Stream)
	} else {
		s.reply.Begin(wire.Stream)
	}
}

// take is what the message at hand gave. It is to be sent.
func (s *session) take() reply {
	if s.worker != nil {
		s.worker.release()
		s.worker = nil
	}
	if cap(s.usable)+cap(s.all)+len(s.seen.slots) > 4*sparedRows {
		s.usable, s.all, s.seen = nil, nil, idSet{}
	}
	if s.reply == nil && len(s.faults) == 0 && !s.acknowledge {
		return reply{}
	}
	s.beginReply()
	for _, st := range s.faults {
		s.reply.Fault(st)
	}
	if s.acknowledge {
		s.reply.Blocks(s.blocks)
		s.acknowledge = false
	}
	r := reply{s.reply, s.building, s.now}
	s.reply, s.policies, s.faults, s.building = nil, s.policies[:0], nil, 0
	s.unsent++
	return r
}

// send sends a reply, and says for how long it has been at it.
func (s *session) send(r reply) error {
	s.sending.Lock()
	s.sendingSince.Store(r.made)
	err := s.stream.SendMsg(r.message)
	s.sendingSince.Store(0)
	s.sending.Unlock()
	s.server.openBytes.Add(-r.cost)
	s.mu.Lock()
	s.unsent--
	if out, ok := r.message.(*wire.Outgoing); ok {
		s.sent = out // what it held is the transport's now
	}
	s.mu.Unlock()
	return err
}

// stalled is the status of a stream whose client does not read; nil if it does.
func (s *session) stalled() error {
	since := s.sendingSince.Load()
	limit := s.server.limits.SendStall
	if since == 0 || time.Duration(s.sinceBegun()-since) < limit {
		return nil
	}
	return stalledSend(limit)
}

// end lets the session open no more inputs; over says when the rest is done.
func (s *session) end(why *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endFor(why)
}

func (s *session) endFor(why *fault) {
	if s.ending == nil {
		s.ending = why
		s.isEnding.Store(true)
	}
}

// over is the status that ends a session which opens no more inputs and has
// answered all it had; nil while it goes on.
func (s *session) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == nil || s.inputs > 0 || s.unsent > 0 {
		return nil
	}
	return statusOf(s.ending, location{}).Err()
}

// checkPolicy ends a session whose policy is gone, or has another shape.
func (s *session) checkPolicy() {
	if _, changed := s.server.successor(s.bound); changed != nil {
		s.end(changed)
	}
}

// expire fails the inputs that have had no pass for too long. What it sends may
// block, so that is done elsewhere: the supervisor must not.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.inputs == 0 {
		return
	}
	limit, now := s.server.limits.InputIdle, s.sinceBegun()
	s.now = now
	for _, g := range s.inOrder() {
		for i := range g.rows {
			if r := &g.rows[i]; r.open && time.Duration(now-max(r.touched, g.touched)) >= limit {
				s.failRow(g, i, &fault{
					reason: ckdv1.ErrorReason_ERROR_REASON_INPUT_IDLE, value: fmt.Sprintf("%d passes", g.inputs.Passes(r.slot)),
					message: fmt.Sprintf("no pass came for %v", limit), expected: "passes, or a final block",
				})
			}
		}
		s.closeIfDone(g)
	}
	if reply := s.take(); reply.message != nil {
		go func() { _ = s.send(reply) }() // an error ends the stream's exchange too
	}
}

// refuse adds what is wrong with the message itself, which is no input's fault.
func (s *session) refuse(at location, err error) {
	s.bound.metrics.MessageRefused(reasonWord(reasonOf(err)))
	s.log(s.bound, at, err)
	s.faults = append(s.faults, statusOf(err, at).Proto())
}

// log writes the first line for each reason.
func (s *session) log(m *model, at location, err error) {
	if reason := reasonOf(err); !s.logged[reason] {
		s.logged[reason] = true
		logFault(s.stream.Context(), s.server.log, m.ref.GetModel(), reason, at, err)
	}
}

// identical counts the inputs of a stream that were decided, to find the stream all of
// whose inputs have identical passes.
type identical struct {
	inputs, saturated int
	differ, told      bool // passes differ; the stream was told of
}

// Inputs that must be identical before a stream is told of, and, as confident inputs are
// saturated one by one, those that must be where all are saturated or the stream goes on.
const leastIdentical, manyIdentical = 2, 20

// note counts an input that was decided.
func (s *session) note(m *model, o *engine.Outcome) {
	i := &s.identical
	if i.differ || i.told {
		return
	}
	if !o.Degenerate {
		i.differ = true
		return
	}
	i.inputs++
	if o.Saturated {
		i.saturated++
	}
	if i.inputs >= manyIdentical {
		s.tellIdentical(m)
	}
}

// tellIdentical logs once that all inputs of the stream are degenerate.
func (s *session) tellIdentical(m *model) {
	i := &s.identical
	if i.differ || i.told || i.inputs < leastIdentical || i.inputs == i.saturated && i.inputs < manyIdentical {
		return
	}
	i.told = true
	s.server.log.Warn("all inputs of this stream so far are degenerate: the passes of each are identical, as where dropout is off; "+
		"expected passes that differ", append(zapFields(logging.ExtractFields(s.stream.Context())),
		zap.String("model", m.ref.GetModel()), zap.Int("inputs", i.inputs), zap.Int("saturated", i.saturated))...)
}

// inOrder is the open groups by number.
func (s *session) inOrder() []*group {
	groups := make([]*group, 0, len(s.groups))
	for _, number := range slices.Sorted(maps.Keys(s.groups)) {
		groups = append(groups, s.groups[number])
	}
	return groups
}

// replyBytes is about how large a reply to a half-close may grow.
const replyBytes = 1 << 20

// finishAll finishes what is open, in the order of groups and rows, because the
// client has half-closed. There is no block to answer, so it may take several
// messages.
func (s *session) finishAll() error {
	for {
		reply := s.finishSome(max(1, replyBytes/int(resultBytes(s.bound, s.header.GetDetail()))))
		if reply.message == nil {
			return nil
		}
		if err := s.send(reply); err != nil {
			return err
		}
	}
}

// finishSome finishes up to so many inputs, and is the reply with them.
func (s *session) finishSome(most int) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return reply{}
	}
	s.now = s.sinceBegun()
	for _, g := range s.inOrder() {
		for i := range g.rows {
			if !g.rows[i].open {
				continue
			}
			if s.reply != nil && s.reply.Results() >= most {
				return s.take()
			}
			s.finish(g, i, 1)
		}
		s.closeIfDone(g)
	}
	return s.take()
}

// close gives up what is open, and counts it; after finishAll, nothing is.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		g.model.metrics.Abandoned(g.open)
		for i := range g.rows {
			if g.rows[i].open {
				s.closeRow(g, i)
			}
		}
		s.closeIfDone(g)
	}
	s.tellIdentical(s.bound)
	s.server.openBytes.Add(-s.held - s.building) // nothing, but after a panic
	s.held, s.building = 0, 0
	s.closed = true
	s.bound.metrics.StreamsOpen(-1)
	s.server.release(s.bound)
}
