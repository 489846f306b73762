package server

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/wire"
	"google.golang.org/grpc/mem"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

type (
	question = wrapperspb.StringValue
	reaction = wrapperspb.BytesValue
)

// talk is a stream of another protocol, whose client takes an answer when it is
// taken out of the channel.
type talk struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *question
	out chan *reaction
}

func (s *talk) Context() context.Context { return s.ctx }

func (s *talk) Recv() (*question, error) {
	if q, open := <-s.in; open {
		return q, nil
	}
	return nil, io.EOF
}

// RecvMsg is a message as the transport's bytes.
func (s *talk) RecvMsg(to any) error {
	q, err := s.Recv()
	if err != nil {
		return err
	}
	data, err := proto.Marshal(q)
	if err != nil {
		return err
	}
	return wire.Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, to)
}

func (s *talk) Send(r *reaction) error {
	s.out <- r
	return nil
}

// converse serves a talk, and is where its end will be told.
func converse(t *testing.T, s *Server, answer func(context.Context, *question) *reaction) (*talk, chan error) {
	st := &talk{ctx: t.Context(), in: make(chan *question), out: make(chan *reaction)}
	ended := make(chan error, 1)
	go func() { ended <- Converse(s, st, answer) }()
	return st, ended
}

// TestConverse: the message at hand is answered although the daemon is stopping,
// and what is sent counts into the budget until it is.
func TestConverse(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	asked, proceed := make(chan string), make(chan struct{})
	reply := &reaction{Value: make([]byte, 1000)}
	st, ended := converse(t, h.server, func(_ context.Context, q *question) *reaction {
		asked <- q.GetValue()
		<-proceed
		return reply
	})
	st.in <- &question{Value: "first"}
	if got := <-asked; got != "first" {
		t.Errorf("asked %q", got)
	}
	h.server.Drain()
	select {
	case err := <-ended:
		t.Fatalf("ended before the answer: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(proceed)
	want := int64(proto.Size(reply))
	for deadline := time.Now().Add(time.Minute); h.server.openBytes.Load() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held, want %d", h.server.openBytes.Load(), want)
		}
	}
	if got := <-st.out; got != reply {
		t.Errorf("answered %v", got)
	}
	err := <-ended
	if reason, _ := reasonIn(t, status.Convert(err).Proto()); status.Code(err) != codes.Unavailable || reason != ckdv1.ErrorReason_ERROR_REASON_DRAINING {
		t.Errorf("ended with %v", err)
	}
	if !h.server.Idle() || h.server.openBytes.Load() != 0 {
		t.Errorf("idle %v, %d bytes", h.server.Idle(), h.server.openBytes.Load())
	}
}

// TestConverseEnds: a half-close ends it without an error, a panic with one that
// says nothing.
func TestConverseEnds(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	st, ended := converse(t, h.server, nil)
	close(st.in)
	if err := <-ended; err != nil {
		t.Errorf("a half-close: %v", err)
	}
	st, ended = converse(t, h.server, func(context.Context, *question) *reaction { panic("a secret") })
	st.in <- &question{}
	if err := <-ended; status.Code(err) != codes.Internal || contains(err.Error(), "secret") {
		t.Errorf("a panic: %v", err)
	}
	h.eventually(t, 1, "ckd_panics_total")
}
