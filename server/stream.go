package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/wire"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// decomposeStream implements the RPC. Two goroutines serve a stream: exchange
// receives, lets the session deal with each message, and sends; this one, which
// gRPC waits for, watches over it. Only returning from here frees an exchange
// that is stuck in a receive or a send.
func (s *Server) decomposeStream(stream grpc.ServerStream) error {
	who := access.FromContext(stream.Context())
	if err := s.openStream(who); err != nil {
		return err
	}
	defer s.closeStream(who)

	exchanged := make(chan error, 1)
	opened := make(chan *session, 1)
	go func() { exchanged <- s.exchange(s.messages(stream), opened) }()
	return s.supervise(stream.Context(), opened, exchanged)
}

// exchange is the stream's traffic, from the header to the half-close. Nothing
// of a stream is sent or received elsewhere, but for what supervise expires.
func (s *Server) exchange(stream grpc.ServerStream, opened chan<- *session) (err error) {
	var in wire.Incoming
	defer in.Free()
	defer func() {
		if p := recover(); p != nil {
			err = s.recovered(stream.Context(), p)
		}
	}()
	var message wire.StreamRequest
	receive := func() error {
		in.Free()
		message.Free()
		if err := stream.RecvMsg(&in); err != nil {
			return err
		}
		if err := message.Decode(&in); err != nil {
			return undecodable(err)
		}
		return nil
	}
	if err := receive(); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return err
	}
	m, err := s.readHeader(stream.Context(), message.Header)
	if err != nil {
		if m == nil {
			s.metrics.RejectedUnknownModel(reasonWord(reasonOf(err)), 1)
		} else {
			m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
		}
		return statusOf(err, location{}).Err()
	}
	session := newSession(s, m, message.Header, stream)
	welcome := session.welcome()
	opened <- session
	if err := session.send(welcome); err != nil {
		return err
	}
	for {
		if err := receive(); errors.Is(err, io.EOF) {
			return session.finishAll()
		} else if err != nil {
			return err
		}
		if reply := session.receive(&message); reply.message != nil {
			if err := session.send(reply); err != nil {
				return err
			}
		}
		if session.isEnding.Load() {
			if err := session.over(); err != nil {
				return err
			}
		}
	}
}

// supervise ends a stream whose exchange cannot end it itself: a send that the
// client does not take, inputs that have no passes for too long, the stream's
// age, the daemon's end, a policy that has gone, a right that was withdrawn. The session's inputs are given
// up whatever ended it.
func (s *Server) supervise(ctx context.Context, opened <-chan *session, exchanged <-chan error) error {
	var session *session
	gone := access.Gone(ctx)
	late := time.NewTimer(s.limits.CallTime)
	defer late.Stop()
	select {
	case session = <-opened:
	case err := <-exchanged:
		// Both may be ready; what was opened has to be closed.
		select {
		case session := <-opened:
			session.close()
		default:
		}
		return err
	case <-late.C:
		return status.Errorf(codes.DeadlineExceeded, "no header came for %v", s.limits.CallTime)
	case <-gone:
		return access.Ended(ctx)
	case <-s.killed:
		return statusOf(draining("the daemon is stopping"), location{}).Err()
	}
	defer session.close()

	tick := time.NewTicker(s.limits.tick())
	defer tick.Stop()
	aged, stopAge := s.limits.age()
	defer stopAge()
	drained, changed := s.drained, s.changed()
	session.checkPolicy()         // the policies may have been replaced since the stream opened
	var deadline <-chan time.Time // of a stream that opens no more inputs by itself
	for {
		select {
		case err := <-exchanged:
			return err
		case <-gone:
			return access.Ended(ctx)
		case <-s.killed:
			return statusOf(draining("the daemon is stopping"), location{}).Err()
		case <-drained:
			drained = nil
			session.end(draining("the daemon is stopping"))
		case <-aged:
			session.end(draining("the stream has reached its age"))
			deadline = time.After(s.limits.DrainGrace)
		case <-deadline:
			return statusOf(draining("the stream has reached its age"), location{}).Err()
		case <-changed:
			changed = s.changed()
			session.checkPolicy()
		case <-tick.C:
			if stalled := session.stalled(); stalled != nil {
				return stalled
			}
			session.expire()
		}
		if err := session.over(); err != nil {
			return err
		}
	}
}

// draining is the fault of an input, or a stream, that came too late.
func draining(why string) *fault {
	return &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_DRAINING, message: why + "; open another stream",
		value: "this stream", expected: "a new stream, which may be elsewhere",
	}
}

// tick is how often a stream is looked after: often enough for its timeouts.
func (l Limits) tick() time.Duration {
	return min(max(min(l.SendStall, l.InputIdle)/8, time.Millisecond), time.Second)
}

// age is a timer of the stream's greatest age, spread by a tenth so that streams
// that were opened together do not end together. Without an age it never fires.
func (l Limits) age() (<-chan time.Time, func() bool) {
	if l.StreamAge == 0 {
		return nil, func() bool { return false }
	}
	spread := 0.95 + 0.1*rand.Float64()
	timer := time.NewTimer(time.Duration(spread * float64(l.StreamAge)))
	return timer.C, timer.Stop
}

// readHeader finds the model of a stream and checks the rest of its header. The
// model is returned also where its header is refused.
func (s *Server) readHeader(ctx context.Context, h *ckdv1.StreamHeader) (*model, error) {
	if h == nil {
		return nil, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_HEADER_MISSING, field: "header",
			message: "the first message has no header", value: "no header", expected: "a header that names the model",
		}
	}
	m, err := s.model(ctx, h.GetModel())
	if err != nil {
		return nil, err
	}
	if err := checkTerms(m, terms{h.GetClasses(), h.GetKind(), h.GetDetail(), h.GetPosterior()}); err != nil {
		return m, err
	}
	return m, s.checkHeaderPasses(m, int64(h.GetPasses()))
}

// checkHeaderPasses holds the passes that a header asks for against the limit
// and the policy; 0 takes the policy's.
func (s *Server) checkHeaderPasses(m *model, n int64) error {
	if limit := int64(s.limits.PassesPerInput); n > limit {
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

// recovered is what becomes of a panic: Internal for the call that it happened
// in, with a line in the log and a count, and nothing else.
func (s *Server) recovered(ctx context.Context, p any) error {
	s.metrics.Panicked()
	logPanic(ctx, s.log, p)
	return statusOf(&fault{reason: ckdv1.ErrorReason_ERROR_REASON_INTERNAL}, location{}).Err()
}
