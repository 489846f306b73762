package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ckd-project/ckd/internal/auth"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// supervision is what the supervisor and the exchange of a stream know of each other.
type supervision struct {
	ending atomic.Pointer[fault] // why the stream opens no more inputs; nil while it does
	watch  stopwatch
}

// end lets the stream take no more inputs; only the first reason counts.
func (s *supervision) end(why *fault) { s.ending.CompareAndSwap(nil, why) }

// sending returns the stopwatch of the send in progress.
func (s *supervision) sending() *stopwatch { return &s.watch }

// supervised is a stream as its supervisor sees it. None of the methods may block.
type supervised interface {
	end(why *fault)
	sending() *stopwatch
	// over returns nil while the stream goes on. Once it has ended and answered all it took, over
	// returns its status.
	over() error
	// policiesReplaced ends the stream if the new policies do not fit it.
	policiesReplaced()
	// expire fails inputs that have waited too long for a pass.
	expire()
}

// supervise ends a stream whose exchange cannot end it itself: the client does not take a reply,
// the stream reaches its age or its token expires, the daemon stops, the policy changes, or the
// caller loses its permission.
func (s *streams) supervise(ctx context.Context, st supervised, exchanged <-chan error) error {
	tick := time.NewTicker(s.decider.limits.tick())
	defer tick.Stop()
	aged, stopAge := s.decider.limits.age()
	defer stopAge()
	gone, drained, changed := auth.Gone(ctx), s.lifecycle.drained, s.decider.catalog.changed()
	st.policiesReplaced() // they may have been since the stream opened
	expired := auth.Expired(ctx)
	old := "the stream has reached its age"
	var deadline <-chan time.Time // set once the stream is too old, or its token is
	for {
		select {
		case err := <-exchanged:
			return err
		case <-gone:
			return auth.Ended(ctx)
		case <-s.lifecycle.killed:
			return stoppingStatus()
		case <-drained:
			drained = nil
			st.end(draining("the daemon is stopping"))
		case <-aged:
			st.end(draining(old))
			deadline = time.After(s.decider.limits.DrainGrace)
		case <-expired:
			expired, old = nil, "the token of the stream has expired"
			st.end(draining(old))
			deadline = time.After(s.decider.limits.DrainGrace)
		case <-deadline:
			return statusOf(draining(old), location{}).Err()
		case <-changed:
			changed = s.decider.catalog.changed()
			st.policiesReplaced()
		case <-tick.C:
			if st.sending().exceeds(s.decider.limits.SendStall) {
				return stalledSend(s.decider.limits.SendStall)
			}
			st.expire()
		}
		if err := st.over(); err != nil {
			return err
		}
	}
}

// stalledSend returns the status of a stream whose client did not read for so long.
func stalledSend(limit time.Duration) error {
	return statusOf(&fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_SEND_STALLED, value: "no room to send",
		message: fmt.Sprintf("the client has not read its results for %v", limit), expected: "a client that reads while it writes",
	}, location{}).Err()
}

// draining returns the fault of an input, or a stream, that came too late.
func draining(why string) *fault {
	return &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_DRAINING, message: why + "; open another stream",
		value: "this stream", expected: "a new stream, which may be elsewhere",
	}
}

// tick returns how often a supervisor looks at its stream: often enough for the timeouts.
func (l Limits) tick() time.Duration {
	return min(max(min(l.SendStall, l.InputIdle)/8, time.Millisecond), time.Second)
}

// age returns a timer for the greatest age of a stream, and its stop function. The age is spread by
// a tenth, so that streams that opened together do not end together. Without an age limit the timer
// never fires.
func (l Limits) age() (<-chan time.Time, func() bool) {
	if l.StreamAge == 0 {
		return nil, func() bool { return false }
	}
	spread := 0.95 + 0.1*rand.Float64()
	timer := time.NewTimer(time.Duration(spread * float64(l.StreamAge)))
	return timer.C, timer.Stop
}
