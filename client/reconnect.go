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

// Reconnect says what becomes of inputs when the daemon is not to be reached, or
// stops. The zero value has them sent again, for up to 30 seconds. That is safe:
// deciding changes nothing but counts.
type Reconnect struct {
	// Disabled ends the session with its stream, and keeps nothing to send again.
	Disabled bool
	// Limit is how long inputs may wait for a stream that answers; 0 is 30 seconds.
	// Time in which no input waits does not count.
	Limit time.Duration
	// BaseDelay and MaxDelay bound the wait between two attempts: it doubles from
	// the one to the other, less up to half of it by chance. The first attempt does
	// not wait. 0 is 100 milliseconds and 3 seconds.
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

// persist calls until a call does not fail for want of a daemon, or the limit has
// run out.
func persist(ctx context.Context, how Reconnect, call func() error) error {
	out := outage{Reconnect: how}
	for {
		err := call()
		if how.Disabled || !unavailable(err) {
			return err
		}
		if out.left() <= 0 {
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
		return l.inputs == 0 && !s.reconnect.Disabled, broken("the daemon ended the stream with inputs unanswered")
	case errors.Is(err, io.EOF):
		return false, nil
	case s.reconnect.Disabled || !unavailable(err) || s.ctx.Err() != nil:
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
		if out.left() <= 0 {
			return nil, out.gaveUp(err)
		}
		if err := out.pause(s.ctx, err); err != nil {
			return nil, err
		}
		var l *link
		if l, err = s.connect(max(out.left(), leastAttempt)); err == nil {
			return l, nil
		}
		// Where streams are many, those that broke may still be counted.
		if !unavailable(err) && Reason(err) != ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS {
			return nil, err
		}
	}
}

// connect opens a stream on the terms of the first.
func (s *Session) connect(within time.Duration) (*link, error) {
	l, err := openLink(s.ctx, within, s.rpc, s.header, s.messageBytes)
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

// pause waits before the next attempt. The error is the context's, with the fault
// that the attempts were for.
func (o *outage) pause(ctx context.Context, fault error) error {
	var delay time.Duration
	if o.failed > 0 {
		most := min(float64(o.BaseDelay)*math.Exp2(float64(o.failed-1)), float64(o.MaxDelay))
		delay = time.Duration(most * (1 + rand.Float64()) / 2)
	}
	o.failed++
	timer := time.NewTimer(min(delay, o.left()))
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

// gaveUp is the error when the limit has run out: the last attempt's.
func (o *outage) gaveUp(err error) error {
	p := status.Convert(err).Proto()
	p.Message = fmt.Sprintf("%s; tried again for %v", p.GetMessage(), o.Limit)
	return status.FromProto(p).Err()
}

func unavailable(err error) bool { return status.Code(err) == codes.Unavailable }
