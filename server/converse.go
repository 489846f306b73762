package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/access"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Converse serves a stream of another protocol, whose messages are answered one
// by one and in order. Such streams count, drain, age, stall and end as those of
// ckd.v1 do; what they have open is the message at hand, which is answered before
// they end, if its answer does not take too long.
func Converse[Q, A any](s *Server, stream grpc.BidiStreamingServer[Q, A], answer func(context.Context, *Q) *A) error {
	who := access.FromContext(stream.Context())
	if err := s.openStream(who); err != nil {
		return err
	}
	defer s.closeStream(who)
	c := &conversation{begun: time.Now()}
	exchanged := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				exchanged <- s.recovered(stream.Context(), p)
			}
		}()
		exchanged <- exchangeTurns(s, c, stream, answer)
	}()
	return s.overhear(stream.Context(), c, exchanged)
}

// conversation is what the two goroutines of a stream know of each other.
type conversation struct {
	begun   time.Time
	turn    atomic.Int32
	sending atomic.Int64 // since when, after begun; 0: not at it
	ending  atomic.Pointer[fault]
}

// Whose turn it is.
const (
	theirs int32 = iota // the client's, to send a message
	ours                // to answer it
	over                // nobody's: what comes in now is not looked at
)

// exchangeTurns is the traffic of a stream. An answer that is being sent counts
// into the budget, so that nothing else is taken in while many are not read.
func exchangeTurns[Q, A any](
	s *Server, c *conversation, stream grpc.BidiStreamingServer[Q, A], answer func(context.Context, *Q) *A,
) error {
	for {
		message := new(Q)
		err := receive(stream.RecvMsg, message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !c.turn.CompareAndSwap(theirs, ours) {
			return c.over()
		}
		reply := answer(stream.Context(), message)
		bytes := int64(proto.Size(any(reply).(proto.Message)))
		s.openBytes.Add(bytes)
		c.sending.Store(max(1, int64(time.Since(c.begun))))
		err = stream.Send(reply)
		c.sending.Store(0)
		s.openBytes.Add(-bytes)
		if err != nil {
			return err
		}
		c.turn.Store(theirs)
		if err := c.over(); err != nil {
			return err
		}
	}
}

// over is the status of a stream that ends now; nil while it goes on.
func (c *conversation) over() error {
	if why := c.ending.Load(); why != nil && (c.turn.CompareAndSwap(theirs, over) || c.turn.Load() == over) {
		return statusOf(why, location{}).Err()
	}
	return nil
}

// overhear ends a stream whose exchange cannot end it itself.
func (s *Server) overhear(ctx context.Context, c *conversation, exchanged <-chan error) error {
	tick := time.NewTicker(s.limits.tick())
	defer tick.Stop()
	aged, stopAge := s.limits.age()
	defer stopAge()
	drained, gone := s.drained, access.Gone(ctx)
	var deadline <-chan time.Time
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
			c.ending.CompareAndSwap(nil, draining("the daemon is stopping"))
		case <-aged:
			c.ending.CompareAndSwap(nil, draining("the stream has reached its age"))
			deadline = time.After(s.limits.DrainGrace)
		case <-deadline:
			return statusOf(draining("the stream has reached its age"), location{}).Err()
		case <-tick.C:
			if since := c.sending.Load(); since != 0 && time.Since(c.begun)-time.Duration(since) >= s.limits.SendStall {
				return stalledSend(s.limits.SendStall)
			}
		}
		if err := c.over(); err != nil {
			return err
		}
	}
}

// stalledSend is the status of a stream whose client did not read for so long.
func stalledSend(limit time.Duration) error {
	return statusOf(&fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_SEND_STALLED, value: "no room to send",
		message: fmt.Sprintf("the client has not read its results for %v", limit), expected: "a client that reads while it writes",
	}, location{}).Err()
}
