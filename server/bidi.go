package server

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/auth"
)

// Bidi serves a stream of another protocol, whose messages are answered one by one and in order.
// Such streams count, drain, age, stall and end like those of ckd.v1. Before a stream ends, the
// current message is answered, if that does not take too long.
func Bidi[Q, A any](s *Server, of grpc.BidiStreamingServer[Q, A], answer func(context.Context, *Q) *A) error {
	who := auth.FromContext(of.Context())
	if err := s.admission.openStream(who); err != nil {
		return err
	}
	defer s.admission.closeStream(who)
	b := &bidi{supervision: supervision{watch: stopwatch{begun: time.Now()}}}
	exchanged := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				exchanged <- s.streams.ends.recovered(of.Context(), p)
			}
		}()
		exchanged <- exchangeTurns(s, b, of, answer)
	}()
	return s.streams.supervise(of.Context(), b, exchanged)
}

// bidi implements supervised.
type bidi struct {
	supervision
	turn atomic.Int32
}

// Whose turn it is.
const (
	theirs int32 = iota // the client's, to send a message
	ours                // to answer it
	over                // nobody's: messages that come now are not read
)

// exchangeTurns is the traffic of a stream. An answer that is being sent counts into the budget, so
// that nothing else is taken in while many are not read.
func exchangeTurns[Q, A any](
	s *Server, b *bidi, of grpc.BidiStreamingServer[Q, A], answer func(context.Context, *Q) *A,
) error {
	account := s.budget.accountOf(of.Context())
	for {
		message := new(Q)
		err := receive(of.Context(), of.RecvMsg, message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		callOf(of.Context()).open()
		if !b.turn.CompareAndSwap(theirs, ours) {
			return b.over()
		}
		reply := answer(of.Context(), message)
		bytes := int64(proto.Size(any(reply).(proto.Message)))
		account.Add(bytes)
		b.watch.start(b.watch.now())
		err = of.Send(reply)
		b.watch.stop()
		account.release(bytes)
		if err != nil {
			return err
		}
		b.turn.Store(theirs)
		if err := b.over(); err != nil {
			return err
		}
	}
}

func (b *bidi) over() error {
	if why := b.ending.Load(); why != nil && (b.turn.CompareAndSwap(theirs, over) || b.turn.Load() == over) {
		return statusOf(why, location{}).Err()
	}
	return nil
}

func (b *bidi) policiesReplaced() {} // each message finds its policy anew

func (b *bidi) expire() {} // no message stays open longer than its answer takes
