package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/httperror"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// client is what the generated handlers call.
type client struct{ ckdv1.UncertaintyServiceClient }

// Decompose implements ckdv1.UncertaintyServiceClient. The generated handler has put the path's model in the place of
// the body's.
func (c client) Decompose(ctx context.Context, in *ckdv1.DecomposeRequest, options ...grpc.CallOption) (*ckdv1.DecomposeResponse, error) {
	if named := callOf(ctx).model; named != "" && named != in.GetModel() {
		return nil, status.Errorf(codes.InvalidArgument, "model: the body says %s, the path %s; expected the same, or none in the body",
			strconv.Quote(httperror.Clip(named)), strconv.Quote(httperror.Clip(in.GetModel())))
	}
	if in.ClassNames == nil {
		in.ClassNames = proto.Bool(true) // JSON is read by people
	}
	return c.UncertaintyServiceClient.Decompose(ctx, in, options...)
}

// DecomposeStream implements ckdv1.UncertaintyServiceClient.
func (c client) DecomposeStream(ctx context.Context, options ...grpc.CallOption) (ckdv1.UncertaintyService_DecomposeStreamClient, error) {
	s := callOf(ctx).stream
	s.sending = true
	s.call.body.setDeadline(time.Time{}) // a stream may wait with its first line
	s.UncertaintyService_DecomposeStreamClient, s.refused = c.UncertaintyServiceClient.DecomposeStream(ctx, options...)
	s.ended = s.refused != nil
	return s, nil
}

// stream is a call of DecomposeStream. The generated handler reads the body in a goroutine of its own, takes any fault
// of it for its end, writes a line of log for what clients do, and waits for nothing. So faults are kept here, to be
// told in place of the call's end, and the goroutine's last step, CloseSend, ends nothing that a fault has ended.
type stream struct {
	ckdv1.UncertaintyService_DecomposeStreamClient
	call    *call
	lines   lines
	refused error         // in place of the client's stream
	sending bool          // the goroutine was started
	sent    chan struct{} // closed at its end

	mu    sync.Mutex
	fault *fault // of the body, or that the call is withdrawn
	ended bool   // the server takes no more
}

// openStream makes the call one that reads and writes at the same time.
func (c *call) openStream(r *http.Request) *fault {
	if err := c.control.EnableFullDuplex(); err != nil && r.ProtoAtLeast(1, 1) {
		return httperror.New(http.StatusInternalServerError, codes.Internal, "the connection cannot be read and written at the same time")
	}
	if !r.ProtoAtLeast(2, 0) {
		// What is left of a body that was not read to its end must not be taken for the next request.
		c.writer.Header().Set("Connection", "close")
	}
	c.stream = &stream{call: c, lines: lines{from: c.body}, sent: make(chan struct{})}
	return nil
}

// decode is the handler's next message. It says io.EOF of faults too, which are known here.
func (s *stream) decode(m proto.Message) error {
	if s.isOver() {
		_, _ = io.Copy(io.Discard, s.call.body.from) // until the deadline of linger
		return io.EOF
	}
	line, err := s.lines.next()
	if err == nil {
		limit := s.call.gateway.options.MessageBytes
		fault := decode(line, m, s.lines.number, limit)
		if fault == nil {
			fault = checkSize(fmt.Sprintf("line %d", s.lines.number), m, limit)
		}
		if fault != nil {
			err = s.call.body.fail(fault)
		}
	}
	var f *fault
	if errors.As(err, &f) {
		s.fail(f)
		s.call.cancel()
		return s.decode(m)
	}
	return err
}

// fail ends the stream with a fault, unless it has one.
func (s *stream) fail(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		s.fault = f
	}
}

// isOver reports whether what else comes is of no use.
func (s *stream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended || s.fault != nil
}

// Send implements the client's stream. That the server has ended it, Recv says.
func (s *stream) Send(m *ckdv1.DecomposeStreamRequest) error {
	if err := s.UncertaintyService_DecomposeStreamClient.Send(m); err != nil {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
	}
	return nil
}

// CloseSend implements the client's stream. It says that all has been sent, which must not be said otherwise: the server
// then decides what is open.
func (s *stream) CloseSend() error {
	defer close(s.sent)
	if s.isOver() {
		return nil
	}
	return s.UncertaintyService_DecomposeStreamClient.CloseSend()
}

// Header implements the client's stream. What went wrong, Recv says.
func (s *stream) Header() (metadata.MD, error) {
	if s.refused != nil {
		return nil, nil
	}
	md, _ := s.UncertaintyService_DecomposeStreamClient.Header()
	return md, nil
}

// Recv implements the client's stream.
func (s *stream) Recv() (*ckdv1.DecomposeStreamResponse, error) {
	if s.refused != nil {
		return nil, s.refused
	}
	m, err := s.UncertaintyService_DecomposeStreamClient.Recv()
	if err == nil {
		return m, nil
	}
	if withdrawn := s.call.withdrawn(err); withdrawn != nil {
		s.fail(withdrawn)
	}
	if s.call.context.Err() != nil && s.endedBy() == nil {
		// net/http ends the call for what it finds while it reads the body, before it tells the reader.
		s.stop()
	}
	if fault := s.endedBy(); fault != nil {
		return nil, fault
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return nil, err
}

func (s *stream) endedBy() *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// end waits for the goroutine that reads the body. The answer is complete.
func (s *stream) end() {
	if !s.sending {
		return
	}
	select {
	case <-s.sent:
	default:
		_ = s.call.writer.FlushError() // never fails
		s.stop()
	}
}

// stop ends the goroutine that reads the body.
func (s *stream) stop() {
	s.call.cancel()
	s.call.body.linger()
	<-s.sent
}
