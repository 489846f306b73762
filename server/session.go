package server

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/engine"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// session is the state of one stream: its open groups and their inputs. What
// blocks do to it is in block.go.
type session struct {
	server *Server
	stream ckdv1.UncertaintyService_DecomposeStreamServer
	header *ckdv1.StreamHeader
	bound  *model // in force when the stream opened; its shape binds the stream
	begun  time.Time

	// A send may block for as long as the client does not read.
	sending      sync.Mutex
	sendingSince atomic.Int64 // see sinceBegun; 0 while nothing is being sent

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
	building  int64        // bytes of the budget that the results at hand take
	now       int64        // sinceBegun, when the message at hand came

	// What the message at hand gave.
	results  []*ckdv1.Result
	policies []*ckdv1.PolicyRef
	faults   []*rpcstatus.Status

	// Scratch.
	values  []float32
	all     []uint32
	usable  []bool
	outcome *engine.Outcome // of the model last
	last    *model
}

// group is inputs that were opened together.
type group struct {
	number uint64
	model  *model
	passes int          // that finish an input; 0: none does
	told   *differences // that were logged of its model; shared by the groups of that
	rows   []row
	open   int
}

// row is one input of a group; input is nil once it is finished or failed.
type row struct {
	id      string
	input   *engine.Input
	touched int64 // when it last had a pass
}

func newSession(s *Server, m *model, h *ckdv1.StreamHeader, stream ckdv1.UncertaintyService_DecomposeStreamServer) *session {
	s.retain(m)
	m.metrics.StreamsOpen(1)
	return &session{
		server: s, stream: stream, header: h, bound: m, begun: time.Now(),
		groups: map[uint64]*group{},
		ids:    map[string]struct{}{},
		logged: map[ckdv1.ErrorReason]bool{},
	}
}

// sinceBegun is the session's clock; it is never 0.
func (s *session) sinceBegun() int64 { return int64(time.Since(s.begun)) | 1 }

// welcome is the first answer of the stream.
func (s *session) welcome() *reply {
	p := s.bound.Policy()
	s.unsent++ // nobody else knows the session yet
	return &reply{DecomposeStreamResponse: &ckdv1.DecomposeStreamResponse{Info: &ckdv1.StreamInfo{
		Classes:        p.Classes,
		Kind:           kindMessage(p.Kind),
		ExpectedPasses: uint32(s.expected(s.bound)),
		FewestPasses:   uint32(p.FewestPasses),
		Limits:         s.server.limits.message(),
	}}}
}

// expected is the number of passes that finishes an input.
func (s *session) expected(m *model) int {
	if n := int(s.header.GetPasses()); n > 0 {
		return n
	}
	return m.Policy().ExpectedPasses
}

// reply is a message to send, and what it takes of the budget until it is sent.
type reply struct {
	*ckdv1.DecomposeStreamResponse
	cost int64
}

// receive deals with a message after the header and returns the reply to it, or
// nil for none.
func (s *session) receive(m *ckdv1.DecomposeStreamRequest) *reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.now = s.sinceBegun()
	switch {
	case m.GetBlock() != nil:
		s.block(m.GetBlock())
	case m.GetHeader() == nil:
		s.refuse(location{}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_EMPTY_MESSAGE, message: "a message without header or block",
			value: "neither", expected: "a block",
		})
	case !proto.Equal(m.GetHeader(), s.header):
		s.refuse(location{}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_HEADER_CHANGED, field: "header",
			message: "a later header differs from the first, which stays in force",
			value:   "another header", expected: "the first header again, or none",
		})
	}
	return s.take()
}

// take is what the message at hand gave; nil for nothing. It is to be sent.
func (s *session) take() *reply {
	if len(s.results) == 0 && len(s.faults) == 0 {
		return nil
	}
	r := &reply{&ckdv1.DecomposeStreamResponse{Results: s.results, Policies: s.policies, Faults: s.faults}, s.building}
	s.results, s.policies, s.faults, s.building = nil, nil, nil, 0
	s.unsent++
	return r
}

// send sends a reply, and says for how long it has been at it.
func (s *session) send(r *reply) error {
	s.sending.Lock()
	s.sendingSince.Store(s.sinceBegun())
	err := s.stream.Send(r.DecomposeStreamResponse)
	s.sendingSince.Store(0)
	s.sending.Unlock()
	s.server.openBytes.Add(-r.cost)
	s.mu.Lock()
	s.unsent--
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
	return statusOf(&fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_SEND_STALLED, value: "no room to send",
		message: fmt.Sprintf("the client has not read its results for %v", limit), expected: "a client that reads while it writes",
	}, location{}).Err()
}

// end lets the session open no more inputs; over says when the rest is done.
func (s *session) end(why *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == nil {
		s.ending = why
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
	limit := s.server.limits.InputIdle
	now := s.sinceBegun()
	for _, g := range s.inOrder() {
		for i := range g.rows {
			if r := &g.rows[i]; r.input != nil && time.Duration(now-r.touched) >= limit {
				s.failRow(g, i, &fault{
					reason: ckdv1.ErrorReason_ERROR_REASON_INPUT_IDLE, value: fmt.Sprintf("%d passes", r.input.Passes()),
					message: fmt.Sprintf("no pass came for %v", limit), expected: "passes, or a final block",
				})
			}
		}
		if g.open == 0 {
			delete(s.groups, g.number)
		}
	}
	if reply := s.take(); reply != nil {
		go func() { _ = s.send(reply) }() // an error ends the stream's exchange too
	}
}

// finish answers an open input with what its passes say.
func (s *session) finish(g *group, number int) {
	m, r := g.model, &g.rows[number]
	if m != s.last {
		s.outcome, s.last = m.NewOutcome(), m
	}
	cost, limit := resultCost(m, s.header.GetDetail()), s.server.limits.OpenInputBytes
	if total := s.server.openBytes.Add(cost); total > limit {
		s.server.openBytes.Add(-cost)
		s.failRow(g, number, overLimit(ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET, "detail", "bytes of open inputs and replies", total, limit))
		return
	}
	s.building += cost
	if err := r.input.Finish(s.outcome); err != nil {
		s.failRow(g, number, err)
		return
	}
	m.metrics.Observe(s.outcome.Result, s.outcome.Decision)
	s.compare(g, s.outcome.Passes)
	s.results = append(s.results, &ckdv1.Result{
		InputId: r.id, Group: g.number, Row: uint32(number), Policy: s.policyIndex(m),
		Outcome: &ckdv1.Result_Decomposition{Decomposition: decompositionMessage(m, s.outcome, s.header.GetDetail())},
	})
	s.closeRow(g, number)
}

// failRow answers an open input with an error.
func (s *session) failRow(g *group, number int, err error) {
	id := g.rows[number].id
	at := position(g.number, number, id)
	at.classes = g.model.Policy().Classes
	s.fail(g.model, at, id, err)
	s.closeRow(g, number)
}

// fail adds an input's error to the results.
func (s *session) fail(m *model, at location, id string, err error) {
	m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
	s.log(m, at, err)
	s.results = append(s.results, &ckdv1.Result{
		InputId: s.server.echo(id), Group: at.group, Row: uint32(at.row), Policy: s.policyIndex(m),
		Outcome: &ckdv1.Result_Error{Error: statusOf(err, at).Proto()},
	})
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

// position is the location of a row of a group.
func position(group uint64, number int, id string) location {
	return location{input: id, group: group, hasGroup: true, row: number, hasPosition: true}
}

// policyIndex is the place of a model's policy in the reply.
func (s *session) policyIndex(m *model) uint32 {
	for i, ref := range s.policies {
		if ref == m.ref {
			return uint32(i)
		}
	}
	s.policies = append(s.policies, m.ref)
	return uint32(len(s.policies) - 1)
}

// closeRow gives back what an open input holds.
func (s *session) closeRow(g *group, number int) {
	r := &g.rows[number]
	r.input.Release()
	r.input = nil
	g.open--
	s.inputs--
	delete(s.ids, r.id)
	cost := inputCost(g.model.Model, r.id)
	s.held -= cost
	s.server.openBytes.Add(-cost)
	g.model.metrics.InputsOpen(-1)
	s.server.release(g.model)
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
		if reply == nil {
			return nil
		}
		if err := s.send(reply); err != nil {
			return err
		}
	}
}

// finishSome finishes up to so many inputs, and is the reply with them.
func (s *session) finishSome(most int) *reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	for _, g := range s.inOrder() {
		for i := range g.rows {
			if g.rows[i].input == nil {
				continue
			}
			if len(s.results) >= most {
				return s.take()
			}
			s.finish(g, i)
		}
		delete(s.groups, g.number)
	}
	return s.take()
}

// close gives up what is open, and counts it; after finishAll, nothing is.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		for i := range g.rows {
			if g.rows[i].input != nil {
				s.closeRow(g, i)
				g.model.metrics.Abandoned(1)
			}
		}
	}
	clear(s.groups)
	s.server.openBytes.Add(-s.held - s.building) // nothing, but after a panic
	s.held, s.building = 0, 0
	s.closed = true
	s.bound.metrics.StreamsOpen(-1)
	s.server.release(s.bound)
}
