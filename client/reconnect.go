package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Reconnect says what becomes of inputs when the daemon cannot be reached, stops, or is
// overloaded. The zero value sends them again for up to 30 seconds. Sending again is safe: a
// decision changes nothing but counts.
type Reconnect struct {
	// Disabled ends the session with its stream and keeps nothing to send again.
	Disabled bool
	// Limit is how long inputs may wait for a stream that answers; 0 means 30 seconds. Time in
	// which no input waits does not count.
	Limit time.Duration
	// MaxDelay bounds the wait between two attempts; 0 means 3 seconds. The wait doubles from 100
	// milliseconds, less a random part of up to half of it. The first attempt does not wait, unless
	// the daemon is overloaded. If the daemon asks for a longer delay, the client keeps it; if that
	// delay exceeds what is left of Limit, the client gives up at once.
	MaxDelay time.Duration
}

const (
	defaultLimit    = 30 * time.Second
	baseDelay       = 100 * time.Millisecond
	defaultMaxDelay = 3 * time.Second
	// minAttempt is the time that every attempt gets, even when less of the limit is left.
	minAttempt = time.Second
)

// withDefaults checks the settings and fills in the defaults.
func (r Reconnect) withDefaults() (Reconnect, error) {
	if r.Limit < 0 || r.MaxDelay < 0 {
		return r, fmt.Errorf("reconnect with limit %v and delays up to %v, expected none below 0", r.Limit, r.MaxDelay)
	}
	r.Limit = cmp.Or(r.Limit, defaultLimit)
	r.MaxDelay = cmp.Or(r.MaxDelay, defaultMaxDelay)
	return r, nil
}

// retry repeats a call while it fails with a temporary error and the limit has not run out.
func retry(ctx context.Context, how Reconnect, temporary func(error) bool, call func() error) error {
	out := outage{Reconnect: how}
	for {
		err := call()
		if how.Disabled || !temporary(err) {
			return err
		}
		if out.exhausted(err) {
			return out.gaveUp(err)
		}
		if err := out.pause(ctx, err); err != nil {
			return err
		}
	}
}

// run serves one link after another until the session ends. The next link begins only when all
// replies on the one before have been handled.
func (s *Session) run(l *link) {
	out := outage{Reconnect: s.reconnect}
	for {
		goOn, err := s.serve(l)
		if !goOn {
			return
		}
		if l.worked(s.reconnect.Limit) {
			out = outage{Reconnect: s.reconnect}
		}
		st, err := s.reopen(&out, err)
		if err != nil {
			s.mu.Lock()
			s.end(err)
			s.mu.Unlock()
			return
		}
		l = s.resume(st)
	}
}

// serve writes to and reads from a link until its stream ends. It then either reports that another
// link is to follow, with the reason why this one ended, or ends the session.
func (s *Session) serve(l *link) (goOn bool, err error) {
	var pump sync.WaitGroup
	pump.Go(l.pump)
	err = l.read()
	l.cancel()

	s.mu.Lock()
	s.link = nil
	goOn, err = s.judge(l, err)
	if !goOn {
		s.end(err)
	}
	close(l.ended)
	s.mu.Unlock()
	pump.Wait()
	return goOn, err
}

// judge decides what the end of a stream means: a break, after which the session goes on with
// another stream, or the end of the session, with the error that Err returns. The caller holds mu.
func (s *Session) judge(l *link, err error) (goOn bool, _ error) {
	left := len(s.open) > 0
	switch {
	case errors.Is(err, io.EOF) && !s.closed:
		return false, broken("the daemon ended the stream before it was half-closed")
	case errors.Is(err, io.EOF) && left:
		// The daemon drains or lacks room. Inputs that were not on this stream go to the next one.
		if l.noRoom != nil {
			return l.open.inputs == 0, l.noRoom
		}
		return l.open.inputs == 0 && !s.reconnect.Disabled, broken("the daemon ended the stream with inputs unanswered")
	case errors.Is(err, io.EOF):
		return false, nil
	case s.reconnect.Disabled || s.ctx.Err() != nil || !retryable(err) && !s.client.token.renewed(err, l.token):
		return false, err
	case s.closed && !left:
		return false, nil // nothing was lost
	}
	return true, err
}

// reopen opens another stream and keeps trying until the limit runs out. Its error ends the
// session.
func (s *Session) reopen(out *outage, err error) (*stream, error) {
	for {
		if !s.waiting() {
			out.since = time.Now()
		}
		if out.exhausted(err) {
			return nil, out.gaveUp(err)
		}
		if err := out.pause(s.ctx, err); err != nil {
			return nil, err
		}
		var st *stream
		if st, err = s.reconnectOnce(max(out.left(), minAttempt)); err == nil {
			return st, nil
		}
		if !retryable(err) {
			return nil, err
		}
	}
}

// reconnectOnce opens a stream and checks that it takes the same inputs as the first.
func (s *Session) reconnectOnce(within time.Duration) (*stream, error) {
	st, err := s.client.openStream(s.ctx, within, s.header, s.terms.messageBytes)
	if err != nil {
		return nil, err
	}
	if err := s.terms.checkSame(st.terms); err != nil {
		st.cancel()
		return nil, err
	}
	return st, nil
}

// resume makes a link of a new stream and queues every unanswered input on it, the oldest first.
func (s *Session) resume(st *stream) *link {
	l := s.newLink(st)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return l // Close has ended the session, and with it the stream
	}
	s.link = l
	s.moved.Broadcast() // the new daemon may not stop early, and Sync need not wait then
	for _, g := range s.open {
		if g.begun || s.closed {
			g.begun = true
			l.enqueue(g)
		}
	}
	return l
}

// waiting reports whether any input lacks an answer.
func (s *Session) waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open) > 0
}

// worked reports whether a link brought answers or lasted, so that its break begins a new outage.
// A daemon that accepts streams and breaks them at once has not recovered.
func (l *link) worked(limit time.Duration) bool {
	return l.answers > 0 || time.Since(l.begun) >= limit
}

// outage counts failed attempts in a row and the time they have taken.
type outage struct {
	Reconnect
	since  time.Time // when the limit began to run
	failed int
}

// left returns how much of the limit is left.
func (o *outage) left() time.Duration {
	if o.since.IsZero() {
		o.since = time.Now()
	}
	return o.Limit - time.Since(o.since)
}

// exhausted reports whether no time is left for another attempt after this fault.
func (o *outage) exhausted(fault error) bool {
	left := o.left()
	return left <= 0 || retryDelay(fault) > left
}

// delay counts one more failed attempt and returns how long to wait before the next.
func (o *outage) delay(fault error) time.Duration {
	doubled := o.failed - 1
	if overloaded(fault) {
		doubled++ // a lost daemon may be back at once; an overloaded one needs time
	}
	o.failed++
	delay := time.Duration(0)
	if doubled >= 0 {
		most := min(float64(baseDelay)*math.Exp2(float64(doubled)), float64(o.MaxDelay))
		delay = time.Duration(most * (1 + rand.Float64()) / 2)
	}
	if asked := retryDelay(fault); asked > delay {
		// Other clients were told the same delay; chance spreads them out.
		delay = asked + time.Duration(rand.Float64()*float64(min(asked/4, o.MaxDelay)))
	}
	return min(delay, o.left())
}

// pause waits before the next attempt. If ctx ends first, it returns the context's error together
// with the fault that made the attempt necessary.
func (o *outage) pause(ctx context.Context, fault error) error {
	timer := time.NewTimer(o.delay(fault))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() == nil {
		return nil
	}
	st := status.FromContextError(ctx.Err())
	return status.Errorf(st.Code(), "%s; before that: %s", st.Message(), status.Convert(fault).Message())
}

// gaveUp adds to the last attempt's error how long was tried, or why trying on is pointless.
func (o *outage) gaveUp(err error) error {
	p := status.Convert(err).Proto()
	if asked := retryDelay(err); o.left() > 0 {
		p.Message = fmt.Sprintf("%s; to be tried again in %v, later than the limit of %v", p.GetMessage(), asked, o.Limit)
	} else {
		p.Message = fmt.Sprintf("%s; tried again for %v", p.GetMessage(), o.Limit)
	}
	return status.FromProto(p).Err()
}

// retryable reports whether err may go away by itself: the daemon is unreachable or overloaded.
func retryable(err error) bool { return unavailable(err) || overloaded(err) }

func unavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// overloaded reports whether the daemon has too much to do at the moment. A limit that only
// another configuration lifts does not count.
func overloaded(err error) bool {
	switch Reason(err) {
	case ckdv1.ErrorReason_ERROR_REASON_OVERLOADED,
		ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS: // the daemon may still count streams that broke
		return true
	case ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET:
		return retryInfo(err) != nil // without a delay, the request exceeds the whole budget by itself
	}
	return false
}

// retryDelay returns the delay that the daemon asks for before another attempt, or 0.
func retryDelay(err error) time.Duration {
	return max(0, retryInfo(err).GetRetryDelay().AsDuration())
}

// retryInfo returns the detail in which the daemon asks for another attempt, or nil.
func retryInfo(err error) *errdetails.RetryInfo {
	st, _ := status.FromError(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return info
		}
	}
	return nil
}
