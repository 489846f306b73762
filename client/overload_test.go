package client_test

import (
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestCrowdedInputsWait checks that the client waits as long as the daemon asks, also after Close.
func TestCrowdedInputsWait(t *testing.T) {
	const limit, asked = 200 * time.Millisecond, 60 * time.Millisecond
	for name, closeFirst := range map[string]bool{"open": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			f := newFake(0)
			f.room = status.Convert(busyFor(asked))
			var refusals atomic.Int64
			f.crowds = func(string) bool { return refusals.Add(1) > 0 }
			s := f.session(t, client.SessionConfig{Reconnect: client.Reconnect{Limit: limit}})
			g := open(t, s, "a")
			ok(t, g.Send(low))
			if !closeFirst {
				wait(t, g)
			}
			// The session may end with the daemon's last refusal.
			if err := s.Close(); err != nil && client.Reason(err) != ckdv1.ErrorReason_ERROR_REASON_OVERLOADED {
				t.Error(err)
			}
			if e := inputError(t, wait(t, g)[0]); e.Reason != ckdv1.ErrorReason_ERROR_REASON_OVERLOADED {
				t.Errorf("error %v, expected the daemon's", e)
			}
			// However slow the machine is, more attempts than this do not fit into the limit.
			if n := refusals.Load(); n > 1+int64(limit/asked) {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// TestCrowdedForTooLong checks that an input that finds no room within the limit gets that error,
// and that others are not affected.
func TestCrowdedForTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		how   client.Reconnect
		room  *status.Status
		again bool
	}{
		"limit":     {client.Reconnect{Limit: 10 * time.Millisecond, MaxDelay: time.Millisecond}, crowded, true},
		"disabled":  {client.Reconnect{Disabled: true}, crowded, false},
		"too large": {hasty, full, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(2)
			f.room = c.room
			var refusals atomic.Int64
			f.crowds = func(id string) bool { return id == "b" && refusals.Add(1) > 0 }
			s := f.session(t, client.SessionConfig{Reconnect: c.how})
			g := open(t, s, "a", "b")
			ok(t, g.SendPasses(2, every(low, 4)))
			results := wait(t, g)
			retained(t, results[0])
			refused(t, ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET, results[1])
			if again := refusals.Load() > 1; again != c.again {
				t.Errorf("refused %d times", refusals.Load())
			}
			decideOne(t, s) // the session goes on
			ok(t, s.Close())
		})
	}
}

// TestFirstStreamWaitsForRoom checks that the first stream waits for an overloaded daemon, but not
// for one that cannot be reached.
func TestFirstStreamWaitsForRoom(t *testing.T) {
	const busy, tooMany = ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS
	for _, c := range []struct {
		name    string
		how     client.Reconnect
		refuses error // the first three streams
		tried   int64
		want    fault
	}{
		{"too many calls", hasty, errBusy, 4, fault{}},
		{"too many streams", hasty, errFull, 4, fault{}},
		{"for long", client.Reconnect{}, busyFor(time.Hour), 1, fault{codes.ResourceExhausted, busy, "later than the limit of 30s"}},
		{"disabled", client.Reconnect{Disabled: true}, errBusy, 1, fault{codes.ResourceExhausted, busy, "too many calls"}},
		{"gone", hasty, errGone, 1, fault{codes.Unavailable, 0, "the daemon is gone"}},
		{"a limit that stays", hasty, errLarge, 1, fault{codes.ResourceExhausted, tooMany, "too many inputs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			var tried atomic.Int64
			f.at = func(m moment) error {
				if m == headed && tried.Add(1) <= 3 {
					return c.refuses
				}
				return nil
			}
			s, err := f.dial(t).Session(t.Context(), client.SessionConfig{Model: model, Reconnect: c.how})
			c.want.check(t, "Session", err)
			if err == nil {
				ok(t, s.Close())
			}
			if n := tried.Load(); n != c.tried {
				t.Errorf("tried %d times, expected %d", n, c.tried)
			}
		})
	}
}
