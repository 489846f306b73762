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

// client is the gRPC client that the generated handlers call.
type client struct{ ckdv1.UncertaintyServiceClient }

// Decompose refuses a body that names another model than the path. The generated handler has
// replaced the body's model by the path's.
func (c client) Decompose(ctx context.Context, in *ckdv1.DecomposeRequest, options ...grpc.CallOption) (*ckdv1.DecomposeResponse, error) {
	if named := callOf(ctx).model; named != "" && named != in.GetModel() {
		return nil, status.Errorf(codes.InvalidArgument, "model: the body says %s, the path %s; expected the same, or none in the body",
			strconv.Quote(httperror.Clip(named)), strconv.Quote(httperror.Clip(in.GetModel())))
	}
	if in.ClassNames == nil {
		in.ClassNames = proto.Bool(true) // people read JSON
	}
	return c.UncertaintyServiceClient.Decompose(ctx, in, options...)
}

// DecomposeStream returns the stream of the call. It keeps an error of the call for Recv.
func (c client) DecomposeStream(ctx context.Context, options ...grpc.CallOption) (ckdv1.UncertaintyService_DecomposeStreamClient, error) {
	s := callOf(ctx).stream
	s.sending = true
	s.call.body.setDeadline(time.Time{}) // the first line may come late
	s.UncertaintyService_DecomposeStreamClient, s.refused = c.UncertaintyServiceClient.DecomposeStream(ctx, options...)
	s.ended = s.refused != nil
	return s, nil
}

// stream is a call of DecomposeStream. It corrects the generated handler, which reads the body in
// its own goroutine, takes every error of the body for its end, logs what clients do wrong, and
// waits for nothing. So stream keeps what is wrong with the body and returns it in place of the
// call's end. CloseSend, the goroutine's last step, does nothing after such an error.
type stream struct {
	ckdv1.UncertaintyService_DecomposeStreamClient
	call    *call
	lines   lines
	refused error         // why the call was refused; there is no stream then
	sending bool          // the goroutine has started
	sent    chan struct{} // closed when it ends

	mu      sync.Mutex
	refusal *httperror.Error // refusal of the body, or of access that was withdrawn
	ended   bool             // the server takes no more
}

// openStream lets the call read and write at the same time.
func (c *call) openStream(r *http.Request) *httperror.Error {
	if err := c.control.EnableFullDuplex(); err != nil && r.ProtoAtLeast(1, 1) {
		return httperror.New(http.StatusInternalServerError, codes.Internal, "the connection cannot be read and written at the same time")
	}
	if !r.ProtoAtLeast(2, 0) {
		// The rest of a body that was not read must not be taken for the next request.
		c.writer.Header().Set("Connection", "close")
	}
	c.stream = &stream{call: c, lines: lines{from: c.body}, sent: make(chan struct{})}
	return nil
}

// decode decodes the next message. It returns io.EOF for errors too, which stream keeps.
func (s *stream) decode(m proto.Message) error {
	if s.isOver() {
		_, _ = io.Copy(io.Discard, s.call.body.from) // until the deadline of linger
		return io.EOF
	}
	line, err := s.lines.next()
	if err == nil {
		limit := s.call.gateway.options.MessageBytes()
		refusal := decode(line, m, s.lines.number, limit)
		if refusal == nil {
			refusal = checkSize(fmt.Sprintf("line %d", s.lines.number), m, limit)
		}
		if refusal != nil {
			err = s.call.body.fail(refusal)
		}
	}
	var f *httperror.Error
	if errors.As(err, &f) {
		s.fail(f)
		s.call.cancel()
		return s.decode(m)
	}
	return err
}

// fail ends the stream with a refusal, unless it has one.
func (s *stream) fail(f *httperror.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal == nil {
		s.refusal = f
	}
}

// isOver reports whether the rest of the body is of no use.
func (s *stream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended || s.refusal != nil
}

// Send sends a message. Recv returns the error if the server has ended the stream.
func (s *stream) Send(m *ckdv1.DecomposeStreamRequest) error {
	if err := s.UncertaintyService_DecomposeStreamClient.Send(m); err != nil {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
	}
	return nil
}

// CloseSend tells the server that the body is complete. It must not be sent after an error, since
// the server then decides the open inputs.
func (s *stream) CloseSend() error {
	defer close(s.sent)
	if s.isOver() {
		return nil
	}
	return s.UncertaintyService_DecomposeStreamClient.CloseSend()
}

// Header returns the metadata. Recv returns the error if there is one.
func (s *stream) Header() (metadata.MD, error) {
	if s.refused != nil {
		return nil, nil
	}
	md, _ := s.UncertaintyService_DecomposeStreamClient.Header()
	return md, nil
}

// Recv returns the next reply, or why the stream has ended.
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
		// net/http cancels the context for an error of the body before Read returns it.
		s.stop()
	}
	if refusal := s.endedBy(); refusal != nil {
		return nil, refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return nil, err
}

// endedBy returns the refusal that has ended the stream, or nil.
func (s *stream) endedBy() *httperror.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal
}

// end waits for the goroutine that reads the body. The answer is complete by then.
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

// stop ends the goroutine that reads the body, and waits for it.
func (s *stream) stop() {
	s.call.cancel()
	s.call.body.linger()
	<-s.sent
}
