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

// TestCrowdedForTooLong checks that an input that finds no room within the limit gets that error, that
// the client waits as long as the daemon asks, and that other inputs are not affected.
func TestCrowdedForTooLong(t *testing.T) {
	const limit, asked = 200 * time.Millisecond, 60 * time.Millisecond
	for name, c := range map[string]struct {
		how    client.Reconnect
		room   *status.Status
		again  int64 // attempts after the first
		reason ckdv1.ErrorReason
	}{
		// However slow the machine is, more attempts than this do not fit into the limit.
		"limit":     {client.Reconnect{Limit: limit}, status.Convert(busyFor(asked)), int64(limit / asked), ckdv1.ErrorReason_ERROR_REASON_OVERLOADED},
		"disabled":  {client.Reconnect{Disabled: true}, crowded, 0, ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET},
		"too large": {hasty, full, 0, ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET},
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
			refused(t, c.reason, results[1])
			if again := refusals.Load() - 1; again > c.again || (again > 0) != (c.again > 0) {
				t.Errorf("%d more attempts, expected at most %d", again, c.again)
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
