package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Reconnect says what becomes of inputs when the daemon is not to be reached, stops,
// or has too much to do. The zero value has them sent again, for up to 30 seconds.
// That is safe: deciding changes nothing but counts.
type Reconnect struct {
	// Disabled ends the session with its stream, and keeps nothing to send again.
	Disabled bool
	// Limit is how long inputs may wait for a stream that answers; 0 is 30 seconds.
	// Time in which no input waits does not count.
	Limit time.Duration
	// BaseDelay and MaxDelay bound the wait between two attempts: it doubles from
	// the one to the other, less up to half of it by chance. The first attempt does
	// not wait, unless the daemon has too much to do. 0 is 100 milliseconds and 3
	// seconds. A longer delay that the daemon asks for is kept; one for which the
	// limit does not suffice ends the attempts.
	BaseDelay, MaxDelay time.Duration
}

const (
	defaultLimit     = 30 * time.Second
	defaultBaseDelay = 100 * time.Millisecond
	defaultMaxDelay  = 3 * time.Second
	// leastAttempt is what an attempt may take, however close the limit is.
	leastAttempt = time.Second
)

// complete refuses what makes no sense, and fills in the defaults.
func (r Reconnect) complete() (Reconnect, error) {
	if r.Limit < 0 || r.BaseDelay < 0 || r.MaxDelay < 0 {
		return r, fmt.Errorf("reconnect with limit %v and delays of %v to %v, expected none below 0",
			r.Limit, r.BaseDelay, r.MaxDelay)
	}
	orDefault := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	orDefault(&r.Limit, defaultLimit)
	orDefault(&r.BaseDelay, defaultBaseDelay)
	orDefault(&r.MaxDelay, max(defaultMaxDelay, r.BaseDelay))
	return r, nil
}

// persist calls until a call does not fail, or fails for another reason than those
// that pass, or the limit has run out.
func persist(ctx context.Context, how Reconnect, passes func(error) bool, call func() error) error {
	out := outage{Reconnect: how}
	for {
		err := call()
		if how.Disabled || !passes(err) {
			return err
		}
		if out.over(err) {
			return out.gaveUp(err)
		}
		if err := out.pause(ctx, err); err != nil {
			return err
		}
	}
}

// run is the life of a session, link after link. One link is over, and all that
// came on it is taken, before the next begins.
func (s *Session) run(l *link) {
	out := outage{Reconnect: s.reconnect}
	for {
		goesOn, err := s.serve(l)
		if !goesOn {
			return
		}
		if l.worked(s.reconnect.Limit) {
			out = outage{Reconnect: s.reconnect}
		}
		if l, err = s.reopen(&out, err); err != nil {
			s.mu.Lock()
			s.end(err)
			s.mu.Unlock()
			return
		}
		s.resume(l)
	}
}

// serve writes and reads a link until its stream ends. It tells whether another
// link is to follow, and why this one ended; else it has ended the session.
func (s *Session) serve(l *link) (goesOn bool, err error) {
	var pump sync.WaitGroup
	pump.Go(func() { s.pump(l) })
	err = s.read(l)
	l.cancel()

	s.mu.Lock()
	s.link = nil
	goesOn, err = s.verdict(l, err)
	if !goesOn {
		s.end(err)
	}
	close(l.over)
	s.mu.Unlock()
	pump.Wait()
	return goesOn, err
}

// verdict tells what the end of a stream is to the session: a break after which
// it goes on with another, or its end, with the error that Err returns. mu is
// held.
func (s *Session) verdict(l *link, err error) (goesOn bool, _ error) {
	left := len(s.open) > 0
	switch {
	case errors.Is(err, io.EOF) && !s.closed:
		return false, broken("the daemon ended the stream before it was half-closed")
	case errors.Is(err, io.EOF) && left:
		// Those that are not on the stream, because the daemon drains or has no room
		// for more, are for the next.
		if l.crowded != nil {
			return l.inputs == 0, l.crowded
		}
		return l.inputs == 0 && !s.reconnect.Disabled, broken("the daemon ended the stream with inputs unanswered")
	case errors.Is(err, io.EOF):
		return false, nil
	case s.reconnect.Disabled || s.ctx.Err() != nil || !mends(err) && !s.client.token.renewed(err, l.token):
		return false, err
	case s.closed && !left:
		return false, nil // nothing was lost
	}
	return true, err
}

// reopen opens another stream, which grpc may lead elsewhere, for as long as the
// limit allows. The error is what ends the session.
func (s *Session) reopen(out *outage, err error) (*link, error) {
	for {
		if !s.waiting() {
			out.since = time.Now()
		}
		if out.over(err) {
			return nil, out.gaveUp(err)
		}
		if err := out.pause(s.ctx, err); err != nil {
			return nil, err
		}
		var l *link
		if l, err = s.connect(max(out.left(), leastAttempt)); err == nil {
			return l, nil
		}
		if !mends(err) {
			return nil, err
		}
	}
}

// connect opens a stream on the terms of the first.
func (s *Session) connect(within time.Duration) (*link, error) {
	l, err := s.client.openLink(s.ctx, within, s.header, s.messageBytes)
	if err != nil {
		return nil, err
	}
	if err := s.sameTerms(l); err != nil {
		l.cancel()
		return nil, err
	}
	return l, nil
}

// sameTerms refuses a stream that takes other inputs, or finishes them otherwise,
// than the caller was told. The daemon's limits may have changed: a link has its
// own.
func (s *Session) sameTerms(l *link) error {
	was, is := s.info, l.info
	var what string
	switch {
	case !slices.Equal(was.GetClasses(), is.GetClasses()):
		what = fmt.Sprintf("classes %q, expected %q", is.GetClasses(), was.GetClasses())
	case was.GetKind() != is.GetKind():
		what = fmt.Sprintf("kind %v, expected %v", is.GetKind(), was.GetKind())
	case was.GetExpectedPasses() != is.GetExpectedPasses():
		what = fmt.Sprintf("%d passes, expected %d", is.GetExpectedPasses(), was.GetExpectedPasses())
	default:
		return l.fitsRow()
	}
	st := status.New(codes.FailedPrecondition, "the policy changed while the stream was broken: "+what)
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{
		Domain: errorDomain, Reason: reasonName(ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED),
	})
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}

// resume has a link take up every input without an answer, the oldest first.
func (s *Session) resume(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return // by Close, and with it the stream
	}
	s.link = l
	s.moved.Broadcast() // it may be of a daemon that settles nothing
	for _, g := range s.inOrder() {
		if g.begun || s.closed {
			g.begun = true
			l.enqueue(g)
		}
	}
}

// waiting tells whether any input waits for an answer.
func (s *Session) waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open) > 0
}

// worked tells whether a link did what it was for, so that its break is a new
// one: a daemon that takes streams and breaks them at once is not back.
func (l *link) worked(limit time.Duration) bool {
	return l.answers > 0 || time.Since(l.begun) >= limit
}

// outage is attempts to reach the daemon that have failed in a row.
type outage struct {
	Reconnect
	since  time.Time // when the limit began to run
	failed int
}

// left is how much of the limit is left.
func (o *outage) left() time.Duration {
	if o.since.IsZero() {
		o.since = time.Now()
	}
	return o.Limit - time.Since(o.since)
}

// over tells that there is no time for another attempt after this fault.
func (o *outage) over(fault error) bool {
	left := o.left()
	return left <= 0 || retryDelay(fault) > left
}

// delay is how long the next attempt is to wait, after this fault.
func (o *outage) delay(fault error) time.Duration {
	doubled := o.failed - 1
	if overloaded(fault) {
		doubled++ // what is lost may be back at once; what is full is not empty at once
	}
	o.failed++
	delay := time.Duration(0)
	if doubled >= 0 {
		most := min(float64(o.BaseDelay)*math.Exp2(float64(doubled)), float64(o.MaxDelay))
		delay = time.Duration(most * (1 + rand.Float64()) / 2)
	}
	if asked := retryDelay(fault); asked > delay {
		// Others were told the same.
		delay = asked + time.Duration(rand.Float64()*float64(min(asked/4, o.MaxDelay)))
	}
	return min(delay, o.left())
}

// pause waits before the next attempt. The error is the context's, with the fault
// that the attempts were for.
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

// gaveUp is the error when the limit has run out, or would: the last attempt's.
func (o *outage) gaveUp(err error) error {
	p := status.Convert(err).Proto()
	if asked := retryDelay(err); o.left() > 0 {
		p.Message = fmt.Sprintf("%s; to be tried again in %v, later than the limit of %v", p.GetMessage(), asked, o.Limit)
	} else {
		p.Message = fmt.Sprintf("%s; tried again for %v", p.GetMessage(), o.Limit)
	}
	return status.FromProto(p).Err()
}

// mends tells a fault that time may mend: there is no daemon, or it has too much to
// do. Limits of the daemon that only another configuration lifts are none.
func mends(err error) bool { return unavailable(err) || overloaded(err) }

func unavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// overloaded tells that the daemon has too much to do for the moment.
func overloaded(err error) bool {
	switch Reason(err) {
	case ckdv1.ErrorReason_ERROR_REASON_OVERLOADED,
		ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS: // where streams broke, they may still be counted
		return true
	case ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET:
		return retryInfo(err) != nil // without, it is what would take all of it alone
	}
	return false
}

// retryDelay is after which time the daemon asks to be tried again; 0 where it does
// not say.
func retryDelay(err error) time.Duration {
	return max(0, retryInfo(err).GetRetryDelay().AsDuration())
}

// retryInfo finds the detail in which the daemon asks to be tried again, or nil.
func retryInfo(err error) *errdetails.RetryInfo {
	st, _ := status.FromError(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return info
		}
	}
	return nil
}
