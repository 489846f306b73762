package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// slot is a unary call's share of the calls under way and of its identity's calls. It belongs first to
// the stream of the call, while the request arrives, then to the handler, and at last to the
// reply, since the transport keeps a reply until the client reads it. Whoever has it at the end
// gives it back.
//
// A slot is the context of its call too: what admission and interceptors know of a call takes
// one allocation.
type slot struct {
	context.Context
	callInfo

	admission *admission
	who       *auth.Identity
	stream    context.Context // transport context, done when the call is answered or its stream closed
	cancel    context.CancelCauseFunc
	late      *time.Timer // cancels the call: until take for its request, and then for its deadline
	deadline  time.Time
	take      func() bool // takes the slot from the stream, unless that has ended

	reply atomic.Int32 // noReply, unreadReply or endedReply
	bytes int64        // size of the reply, once it is unread
}

// States of the reply of a slot.
const (
	noReply int32 = iota
	unreadReply
	endedReply
)

// slotKey is the context key of a call's slot.
type slotKey struct{}

func (s *slot) Value(key any) any {
	switch key.(type) {
	case slotKey:
		return s
	case callKey:
		return &s.callInfo
	case refusalKey:
		return nil // it has a slot
	}
	return s.Context.Value(key)
}

// expire cancels a call that has taken too long.
func (s *slot) expire() { s.cancel(context.DeadlineExceeded) }

// Err implements context.Context. It returns the cause, which gRPC tells the client.
func (s *slot) Err() error { return context.Cause(s.Context) }

// Deadline implements context.Context.
func (s *slot) Deadline() (time.Time, bool) {
	if client, ok := s.Context.Deadline(); ok && client.Before(s.deadline) {
		return client, true
	}
	return s.deadline, true
}

// takeSlot gives a unary call a slot, or refuses the call. The context that it returns is
// cancelled after limit.
func (a *admission) takeSlot(ctx context.Context, who *auth.Identity, limit time.Duration) (context.Context, error) {
	account, err := a.accountOf(ctx, who)
	if err != nil {
		return ctx, err
	}
	own := who.Calls()
	if !own.Acquire() {
		return ctx, a.overloaded("calls under way of "+who.Name(), own.Limit()+1, own.Limit())
	}
	if n, most := a.calls.Add(1), int64(a.limits.Calls); n > most {
		a.calls.Add(-1)
		own.Release()
		return ctx, a.overloaded("calls under way", n, most)
	}
	account.line.begin()
	s := &slot{admission: a, who: who, stream: ctx}
	s.account, s.conn = account, connectionOf(ctx)
	s.deadline = time.Now().Add(limit)
	s.Context, s.cancel = context.WithCancelCause(ctx)
	s.late = time.AfterFunc(min(a.limits.FirstMessage, limit), s.expire)
	s.take = context.AfterFunc(s.Context, s.abandon)
	return s, nil
}

// abandon gives back the slot of a call whose stream ends before its handler begins.
func (s *slot) abandon() {
	s.late.Stop()
	s.cancel(nil)
	s.giveBack()
}

// giveBack ends the call's share of the limits.
func (s *slot) giveBack() {
	s.admission.calls.Add(-1)
	s.who.Calls().Release()
	s.account.line.end()
}

// Begin implements wire.Sending: the reply takes the slot from the handler.
func (s *slot) Begin(bytes int64) {
	s.bytes = bytes
	s.account.Add(s.bytes)
	s.admission.unread.Add(1)
	s.reply.Store(unreadReply)
	s.conn.add(s)
}

func (s *slot) Moved() { s.conn.moved() }

// Gone implements wire.Sending. A deadline alone proves nothing: gRPC may have answered just
// before it.
func (s *slot) Gone() bool { return errors.Is(s.stream.Err(), context.Canceled) }

// End implements wire.Sending. The last buffer of the reply and the end of the connection
// both call it; the first call counts.
func (s *slot) End(int64) {
	was := s.reply.Swap(endedReply)
	if was == endedReply {
		return
	}
	if was == unreadReply {
		s.conn.remove(s)
		s.account.release(s.bytes)
		s.admission.unread.Add(-1)
	}
	s.giveBack()
}

// requestIsWhole gives what is left of the call the time of a call. gRPC runs the handler of a unary
// method as soon as its headers are there; the handler then reads the request.
func (s *slot) requestIsWhole() { s.late.Reset(time.Until(s.deadline)) }

// withSlot wraps the handler of a unary method so that a call keeps its slot until its reply is
// sent. Replies are not compressed, because the transport would hold buffers outside the memory
// budget.
func withSlot(handler grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		s, ok := ctx.Value(slotKey{}).(*slot)
		if err := refusalOf(ctx); err != nil {
			return nil, err
		} else if !ok {
			return handler(srv, ctx, read, intercept) // a probe
		}
		if !s.take() {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		defer s.late.Stop()
		if compressionOf(ctx) != "" {
			if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {
				s.giveBack()
				return nil, err
			}
		}
		sent := false
		defer func() {
			if !sent {
				s.giveBack()
			}
		}()
		reply, err := handler(srv, ctx, read, intercept)
		if err != nil {
			return nil, err
		}
		sent = true
		return wire.Track(reply, s), nil
	}
}
