package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/auth"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// streams runs the streams of all protocols. A stream holds a place of the admission from its start
// to its end, and its supervisor can end it even if its exchange is stuck. streams is safe for
// concurrent use.
type streams struct {
	decider   *decider
	admission *admission
	lifecycle *lifecycle
	ends      *callEnds
}

// decompose implements the RPC DecomposeStream. The exchange receives, handles and sends in a
// goroutine of its own; this one, which gRPC waits for, supervises. Only returning from here frees an
// exchange that is stuck in a receive or a send.
func (s *streams) decompose(of grpc.ServerStream) error {
	who := auth.FromContext(of.Context())
	if err := s.admission.openStream(who); err != nil {
		return err
	}
	defer s.admission.closeStream(who)

	exchanged := make(chan error, 1)
	opened := make(chan *stream, 1)
	go func() {
		exchanged <- s.exchange(of, opened)
	}()
	return s.superviseStream(of.Context(), opened, exchanged)
}

// superviseStream waits for the header and then supervises the stream. It gives up the stream's
// open inputs, whatever ended the stream.
func (s *streams) superviseStream(ctx context.Context, opened <-chan *stream, exchanged <-chan error) error {
	late := time.NewTimer(s.decider.limits.firstMessage())
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
		return status.Errorf(codes.DeadlineExceeded, "no header came for %v", s.decider.limits.firstMessage())
	case <-auth.Gone(ctx):
		return auth.Ended(ctx)
	case <-s.lifecycle.killed:
		return stoppingStatus()
	}
}

// exchange receives, handles and answers the messages of a stream, from the header to the
// half-close. Only expire sends, too.
func (s *streams) exchange(of grpc.ServerStream, opened chan<- *stream) (err error) {
	r := requests{from: of, account: s.decider.budget.accountOf(of.Context())}
	defer r.free()
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
	account *account
	charged int64 // bytes of the message
}

// freeMessage is the size up to which a message at hand is not charged: what every open stream takes
// anyway is about as much.
const freeMessage = 16 << 10

// next receives and decodes a message.
func (r *requests) next() error {
	r.free()
	if err := take(r.from.Context(), r.from.RecvMsg, &r.in); err != nil {
		return err
	}
	if bytes := int64(r.in.Size()); bytes > freeMessage {
		r.charged = bytes
		r.account.Add(bytes)
	}
	if err := r.message.Decode(&r.in); err != nil {
		return undecodable(err)
	}
	return nil
}

// free gives back what the message holds.
func (r *requests) free() {
	r.in.Free()
	r.message.Free()
	if r.charged > 0 {
		r.account.release(r.charged)
		r.charged = 0
	}
}

// acceptHeader returns the stream that a header opens, or the status that refuses it.
func (s *streams) acceptHeader(of grpc.ServerStream, h *ckdv1.StreamHeader) (*stream, error) {
	m, err := s.readHeader(of.Context(), h)
	if err == nil {
		var i issuer
		if i, err = s.decider.receipts.newIssuer(m, h.GetReceipts(), h.GetModelVersion()); err == nil {
			callOf(of.Context()).open()
			return newStream(s.decider, m, h, of, i), nil
		}
	}
	if m == nil {
		s.decider.metrics.RejectedUnknownModel(reasonWord(reasonOf(err)), 1)
	} else {
		m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
	}
	return nil, statusOf(err, location{}).Err()
}

// readHeader finds the model of a stream and checks the rest of its header. It returns the model
// even if it refuses the header.
func (s *streams) readHeader(ctx context.Context, h *ckdv1.StreamHeader) (*model, error) {
	if h == nil {
		return nil, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_HEADER_MISSING, field: "header",
			message: "the first message has no header", value: "no header", expected: "a header that names the model",
		}
	}
	m, err := s.decider.catalog.find(ctx, h.GetModel())
	if err != nil {
		return nil, err
	}
	if err := checkTerms(m, terms{h.GetClasses(), h.GetKind(), h.GetDetail(), h.GetPosterior()}); err != nil {
		return m, err
	}
	return m, s.decider.limits.checkHeaderPasses(m, int64(h.GetPasses()))
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
