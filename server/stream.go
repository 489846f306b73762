package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/auth"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// stream is a stream of ckd.v1 whose header was accepted. Two goroutines work on it: its exchange
// handles the messages, and its supervisor ends what takes too long.
type stream struct {
	server *Server
	header *ckdv1.StreamHeader
	bound  *model                // in force when the stream opened; its shape binds the stream
	ending atomic.Pointer[fault] // why the stream opens no more inputs; nil while it does
	sender sender
	issuer issuer

	mu      sync.Mutex // guards the fields below
	closed  bool
	groups  openGroups
	reply   replyBuilder
	notes   notes
	answers answers
	blocks  blockReader
	now     int64 // arrival of the current message, by the sender's stopwatch
}

func newStream(s *Server, m *model, h *ckdv1.StreamHeader, of grpc.ServerStream, i issuer) *stream {
	s.catalog.retain(m)
	m.metrics.StreamsOpen(1)
	st := &stream{
		server: s, header: h, bound: m, issuer: i,
		groups: newOpenGroups(&s.limits, &s.budget),
		notes:  newNotes(s.log, of.Context(), h.GetPosterior()),
	}
	st.sender.stream, st.sender.budget, st.sender.watch.begun = of, &s.budget, time.Now()
	st.reply = replyBuilder{sender: &st.sender, limits: &s.limits, bound: m, notes: &st.notes}
	st.blocks = blockReader{reply: &st.reply, answers: &st.answers}
	st.answers = answers{stream: st, counted: s.newCounter(of.Context())}
	return st
}

// decomposeStream implements the RPC. Its exchange receives, handles and sends in a goroutine of
// its own; this one, which gRPC waits for, supervises. Only returning from here frees an exchange
// that is stuck in a receive or a send.
func (s *Server) decomposeStream(of grpc.ServerStream) error {
	who := auth.FromContext(of.Context())
	if err := s.admission.openStream(who); err != nil {
		return err
	}
	defer s.admission.closeStream(who)

	exchanged := make(chan error, 1)
	opened := make(chan *stream, 1)
	go func() {
		exchanged <- s.exchange(newMessages(of, s.rpc.Method(ckdv1.UncertaintyService_DecomposeStream_FullMethodName)), opened)
	}()
	return s.superviseStream(of.Context(), opened, exchanged)
}

// superviseStream waits for the header and then supervises the stream. It gives up the stream's
// open inputs, whatever ended the stream.
func (s *Server) superviseStream(ctx context.Context, opened <-chan *stream, exchanged <-chan error) error {
	late := time.NewTimer(s.limits.CallTime)
	defer late.Stop()
	select {
	case st := <-opened:
		defer st.close()
		return s.supervise(ctx, st, exchanged)
	case err := <-exchanged:
		select {
		case st := <-opened: // both were ready
			st.close()
		default:
		}
		return err
	case <-late.C:
		return status.Errorf(codes.DeadlineExceeded, "no header came for %v", s.limits.CallTime)
	case <-auth.Gone(ctx):
		return auth.Ended(ctx)
	case <-s.lifecycle.killed:
		return statusOf(draining("the daemon is stopping"), location{}).Err()
	}
}

// exchange receives, handles and answers the messages of a stream, from the header to the
// half-close. Only expire sends, too.
func (s *Server) exchange(of grpc.ServerStream, opened chan<- *stream) (err error) {
	r := requests{from: of}
	defer r.in.Free()
	defer func() {
		if p := recover(); p != nil {
			err = s.ends.recovered(of.Context(), p)
		}
	}()
	if err := r.next(); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return err
	}
	st, err := s.acceptHeader(of, r.message.Header)
	if err != nil {
		return err
	}
	welcome := st.welcome()
	opened <- st
	if err := st.sender.send(welcome); err != nil {
		return err
	}
	for {
		if err := r.next(); errors.Is(err, io.EOF) {
			return st.finishAll()
		} else if err != nil {
			return err
		}
		if reply := st.receive(&r.message); reply.message != nil {
			if err := st.sender.send(reply); err != nil {
				return err
			}
		}
		if st.ending.Load() != nil {
			if err := st.over(); err != nil {
				return err
			}
		}
	}
}

// requests receives the messages of a stream into memory that it uses again.
type requests struct {
	from    grpc.ServerStream
	in      wire.Incoming
	message wire.StreamRequest // valid until next
}

// next receives and decodes a message.
func (r *requests) next() error {
	r.in.Free()
	r.message.Free()
	if err := r.from.RecvMsg(&r.in); err != nil {
		return err
	}
	if err := r.message.Decode(&r.in); err != nil {
		return undecodable(err)
	}
	return nil
}

// acceptHeader returns the stream that a header opens, or the status that refuses it.
func (s *Server) acceptHeader(of grpc.ServerStream, h *ckdv1.StreamHeader) (*stream, error) {
	m, err := s.readHeader(of.Context(), h)
	if err == nil {
		var i issuer
		if i, err = s.newIssuer(m, h.GetReceipts(), h.GetModelVersion()); err == nil {
			return newStream(s, m, h, of, i), nil
		}
	}
	if m == nil {
		s.metrics.RejectedUnknownModel(reasonWord(reasonOf(err)), 1)
	} else {
		m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
	}
	return nil, statusOf(err, location{}).Err()
}

// welcome returns the first answer of the stream.
func (s *stream) welcome() reply {
	p := s.bound.Policy()
	s.sender.made()
	return reply{made: s.sender.watch.now(), message: &ckdv1.DecomposeStreamResponse{Info: &ckdv1.StreamInfo{
		Classes:        p.Classes,
		Kind:           kindMessage(p.Kind),
		ExpectedPasses: uint32(s.expected(s.bound)),
		FewestPasses:   uint32(p.FewestPasses),
		Limits:         s.server.limits.message(),
		Acknowledges:   s.header.GetAcceptSettled(),
		Settles:        s.header.GetAcceptSettled() && s.bound.lean.StopsEarly(s.expected(s.bound)),
		Audits:         s.issuer.takes() && p.Audit != nil,
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
	s.now = s.sender.watch.now()
	switch {
	case m.Block != nil:
		s.handle(m.Block)
		s.reply.blockHandled(s.header.GetAcceptSettled())
	case m.Header == nil:
		s.reply.refuse(location{}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_EMPTY_MESSAGE, message: "a message without header or block",
			value: "neither", expected: "a block",
		})
	case !proto.Equal(m.Header, s.header):
		s.reply.refuse(location{}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_HEADER_CHANGED, field: "header",
			message: "a later header differs from the first, which stays in force",
			value:   "another header", expected: "the first header again, or none",
		})
	}
	return s.flush()
}

// flush returns the reply to the current message and releases its scratch memory.
func (s *stream) flush() reply {
	s.answers.release()
	s.blocks.release()
	s.groups.dropLargeScratch()
	return s.reply.flush(s.now)
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
		s.server.catalog.release(g.model)
	}
	s.groups.remove(g)
}

// expire fails the inputs that have had no pass for too long. It implements supervised.
func (s *stream) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.groups.inputs == 0 {
		return
	}
	limit := s.server.limits.InputIdle
	s.now = s.sender.watch.now()
	for _, g := range s.groups.sorted() {
		for r := range g.openRows() {
			if time.Duration(s.now-max(r.touched, g.touched)) >= limit {
				s.answers.fail(g, r, &fault{
					reason: ckdv1.ErrorReason_ERROR_REASON_INPUT_IDLE, value: fmt.Sprintf("%d passes", g.inputs.Passes(int(r.slot))),
					message: fmt.Sprintf("no pass came for %v", limit), expected: "passes, or a final block",
				})
			}
		}
		s.removeIfDone(g)
	}
	if reply := s.flush(); reply.message != nil {
		// A send may block, which the supervisor must not. An error ends the exchange too.
		go func() { _ = s.sender.send(reply) }()
	}
}

// end lets the stream open no more inputs. It implements supervised.
func (s *stream) end(why *fault) { s.ending.CompareAndSwap(nil, why) }

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

func (s *stream) sending() *stopwatch { return &s.sender.watch }

// policiesReplaced ends a stream whose policy is gone, or has another shape. It implements
// supervised.
func (s *stream) policiesReplaced() {
	if _, changed := s.server.catalog.successor(s.bound); changed != nil {
		s.end(changed)
	}
}

// replyBytes bounds, roughly, each reply to a half-close.
const replyBytes = 1 << 20

// finishAll finishes what is open, in the order of groups and rows, because the client has
// half-closed. There is no block to answer, so it may take several messages.
func (s *stream) finishAll() error {
	for {
		reply := s.finishSome(max(1, replyBytes/int(resultBytes(s.bound, s.header.GetDetail(), &s.issuer))))
		if reply.message == nil {
			return nil
		}
		if err := s.sender.send(reply); err != nil {
			return err
		}
	}
}

// finishSome finishes up to most inputs and returns the reply with them.
func (s *stream) finishSome(most int) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return reply{}
	}
	s.now = s.sender.watch.now()
	for _, g := range s.groups.sorted() {
		for r := range g.openRows() {
			if s.reply.results() >= most {
				return s.flush()
			}
			s.answers.finish(g, r)
		}
		s.removeIfDone(g)
	}
	return s.flush()
}

// close gives up the open inputs and counts them as abandoned. After finishAll there are none.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers.counted.done() // after a panic
	for _, g := range s.groups.byNumber {
		g.model.metrics.Abandoned(g.open())
		s.groups.abandon(g)
		s.removeIfDone(g)
	}
	s.notes.logIdentical(s.bound)
	s.server.budget.release(s.groups.held + s.reply.cost) // nothing, but after a panic
	s.groups.held, s.reply.cost = 0, 0
	s.closed = true
	s.bound.metrics.StreamsOpen(-1)
	s.server.catalog.release(s.bound)
}

// readHeader finds the model of a stream and checks the rest of its header. It returns the model
// even if it refuses the header.
func (s *Server) readHeader(ctx context.Context, h *ckdv1.StreamHeader) (*model, error) {
	if h == nil {
		return nil, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_HEADER_MISSING, field: "header",
			message: "the first message has no header", value: "no header", expected: "a header that names the model",
		}
	}
	m, err := s.catalog.find(ctx, h.GetModel())
	if err != nil {
		return nil, err
	}
	if err := checkTerms(m, terms{h.GetClasses(), h.GetKind(), h.GetDetail(), h.GetPosterior()}); err != nil {
		return m, err
	}
	return m, s.limits.checkHeaderPasses(m, int64(h.GetPasses()))
}

// checkHeaderPasses checks the passes that a header asks for against the limit and the policy. With
// 0 the header leaves them to the policy.
func (l *Limits) checkHeaderPasses(m *model, n int64) error {
	if limit := int64(l.PassesPerInput); n > limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", "passes", n, limit)
	}
	p := m.Policy()
	if fewest := int64(p.FewestPasses); n != 0 && n < fewest {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES, field: "passes", value: fmt.Sprint(n),
			message:  fmt.Sprintf("passes: %d, the policy of model %q accepts no fewer than %d", n, p.Name, fewest),
			expected: fmt.Sprintf("0, or at least %d", fewest),
		}
	}
	if n > 1 && kindMessage(p.Kind) == ckdv1.Kind_KIND_DIRICHLET {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, field: "passes", value: fmt.Sprint(n),
			message:  fmt.Sprintf("passes: %d, expected 1: an input of model %q is one row of concentrations", n, p.Name),
			expected: "1",
		}
	}
	return nil
}
