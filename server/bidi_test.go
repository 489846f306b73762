package server

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ckd-project/ckd/server/internal/wire"
)

type (
	question = wrapperspb.StringValue
	reaction = wrapperspb.BytesValue
)

// talk is a stream of another protocol. Its client reads an answer when a test takes it out of the
// channel.
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

// RecvMsg receives a message as the bytes of the transport.
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

// serve serves a talk and returns a channel that gets its status.
func serve(t *testing.T, s *Server, answer func(context.Context, *question) *reaction) (*talk, chan error) {
	st := &talk{ctx: t.Context(), in: make(chan *question), out: make(chan *reaction)}
	ended := make(chan error, 1)
	go func() { ended <- Bidi(s, st, answer) }()
	return st, ended
}

// TestBidi checks that the message at hand is answered although the daemon is stopping, and that an
// answer counts into the budget until it is sent.
func TestBidi(t *testing.T) {
	h := newHarness(t)
	asked, proceed := make(chan string), make(chan struct{})
	reply := &reaction{Value: make([]byte, 1000)}
	st, ended := serve(t, h.server, func(_ context.Context, q *question) *reaction {
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
	if !within(func() bool { return h.server.budget.total() == want }) {
		t.Fatalf("%d bytes are held, want %d", h.server.budget.total(), want)
	}
	if got := <-st.out; got != reply {
		t.Errorf("answered %v", got)
	}
	expectFault(t, <-ended, "DRAINING")
	if !h.server.Idle() || h.server.budget.total() != 0 {
		t.Errorf("idle %v, %d bytes", h.server.Idle(), h.server.budget.total())
	}
}

// TestBidiPanics checks that a panic ends the stream with an error that has no details.
func TestBidiPanics(t *testing.T) {
	h := newHarness(t)
	st, ended := serve(t, h.server, func(context.Context, *question) *reaction { panic("a secret") })
	st.in <- &question{}
	err := <-ended
	if expectFault(t, err, "INTERNAL"); strings.Contains(err.Error(), "secret") {
		t.Errorf("a panic: %v", err)
	}
	h.eventually(t, 1, "ckd_panics_total")
}
