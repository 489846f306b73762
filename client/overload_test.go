package client_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Inputs for which the daemon has no room come again on the same stream, with all
// their passes; the others of their group go on.
func TestCrowdedInputsComeAgain(t *testing.T) {
	f := newFake(0)
	var mu sync.Mutex
	refusals := map[string]int{"b": 3, "d": 3, "e": 1}
	taken := map[string]bool{}
	f.crowds = func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		refusals[id]--
		taken[id] = refusals[id] < 0
		return !taken[id]
	}
	// Refusals come in any order.
	f.deliver = func(send func(*reply) error, r *reply) error {
		slices.Reverse(r.Results)
		return send(r)
	}
	s := f.session(t, client.SessionConfig{Reconnect: hasty, Detail: client.Vectors})
	ids := []string{"a", "b", "c", "d", "e"}
	g := open(t, s, ids...)
	sent := make([][][]float32, len(ids))
	pass := func(rows ...int) {
		t.Helper()
		var values []float32
		for _, row := range rows {
			own := []float32{float32(row), float32(len(sent[row])) / 8, 0}
			sent[row] = append(sent[row], own)
			values = append(values, own...)
		}
		ok(t, g.SendRows(rows, values))
	}
	pass(0, 1, 2, 3, 4)
	pass(4, 1)
	until(t, "room for all", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(taken) == len(ids) && !slices.Contains(slices.Collect(maps.Values(taken)), false)
	})
	pass(3, 2, 0) // of lots that were opened at other times
	pass(0, 1, 2, 3, 4)
	ok(t, g.Finish())
	for i, r := range wait(t, g) {
		if r.Err != nil || !slices.Equal(r.Decomposition.GetMean(), means(sent[i])) {
			t.Errorf("result %d is %+v, expected the mean of %v", i, r, sent[i])
		}
	}
	ok(t, s.Close())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams != 1 {
		t.Errorf("%d streams, expected one", f.streams)
	}
}

// Close waits for inputs that have no room yet: on the next streams, as the first
// ends with what it has.
func TestCrowdedInputsAndClose(t *testing.T) {
	f := newFake(0)
	var refused atomic.Int64
	f.crowds = func(id string) bool { return id == "b" && refused.Add(1) < 4 }
	s := f.session(t, client.SessionConfig{Reconnect: hasty})
	g := open(t, s, "a", "b")
	ok(t, g.SendPasses(2, slices.Repeat(low, 4)))
	ok(t, s.Close())
	for _, r := range wait(t, g) {
		if !r.Retained() || r.Decomposition.GetPasses() != 2 {
			t.Errorf("result %+v, expected it retained on 2 passes", r)
		}
	}
}

// The daemon is not asked before the time that it states, also after Close.
func TestCrowdedInputsWait(t *testing.T) {
	const limit, asked = 200 * time.Millisecond, 60 * time.Millisecond
	for name, closeFirst := range map[string]bool{"open": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			f := newFake(0)
			f.room = status.Convert(busyFor(asked))
			var refused atomic.Int64
			f.crowds = func(string) bool { return refused.Add(1) > 0 }
			s := f.session(t, client.SessionConfig{Reconnect: client.Reconnect{Limit: limit, BaseDelay: time.Microsecond}})
			g := open(t, s, "a")
			ok(t, g.Send(low))
			if !closeFirst {
				wait(t, g)
			}
			// The daemon's own refusal may be the last that the session heard.
			if err := s.Close(); err != nil && client.Reason(err) != ckdv1.ErrorReason_ERROR_REASON_OVERLOADED {
				t.Error(err)
			}
			if e := inputError(t, wait(t, g)[0]); e.Reason != ckdv1.ErrorReason_ERROR_REASON_OVERLOADED {
				t.Errorf("error %v, expected the daemon's", e)
			}
			// However slow all else is, there cannot have been more time than the limit.
			if n := refused.Load(); n > 1+int64(limit/asked) {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// What has no room for as long as the limit is answered with that, alone.
func TestCrowdedForTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		how   client.Reconnect
		room  *status.Status
		again bool
	}{
		"limit":     {client.Reconnect{Limit: 10 * time.Millisecond, BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, crowded, true},
		"disabled":  {client.Reconnect{Disabled: true}, crowded, false},
		"too large": {hasty, full, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(2)
			f.room = c.room
			var refused atomic.Int64
			f.crowds = func(id string) bool { return id == "b" && refused.Add(1) > 0 }
			s := f.session(t, client.SessionConfig{Reconnect: c.how})
			g := open(t, s, "a", "b")
			ok(t, g.SendPasses(2, slices.Repeat(low, 4)))
			results := wait(t, g)
			if !results[0].Retained() {
				t.Errorf("result %+v, expected it retained", results[0])
			}
			if e := inputError(t, results[1]); e.Reason != ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET || e.Unanswered {
				t.Errorf("error %+v, expected the daemon's", e)
			}
			if again := refused.Load() > 1; again != c.again {
				t.Errorf("refused %d times", refused.Load())
			}
			other := open(t, s, "c") // the session goes on
			ok(t, other.SendPasses(2, slices.Repeat(low, 2)))
			wait(t, other)
			ok(t, s.Close())
		})
	}
}

// The first stream waits for an overloaded daemon, but not for none.
func TestFirstStreamWaitsForRoom(t *testing.T) {
	for _, c := range []struct {
		name    string
		how     client.Reconnect
		refuses error
		times   int64
		code    codes.Code
		want    string
	}{
		{"too many calls", hasty, errBusy, 3, codes.OK, ""},
		{"too many streams", hasty, errFull, 3, codes.OK, ""},
		{"for long", client.Reconnect{}, busyFor(time.Hour), 1, codes.ResourceExhausted, "later than the limit of 30s"},
		{"disabled", client.Reconnect{Disabled: true}, errBusy, 1, codes.ResourceExhausted, "too many calls"},
		{"gone", hasty, errGone, 1, codes.Unavailable, "the daemon is gone"},
		{"a limit that stays", hasty, errLarge, 1, codes.ResourceExhausted, "too many inputs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			var tried atomic.Int64
			f.at = func(m moment) error {
				if m == headed && tried.Add(1) <= c.times {
					return c.refuses
				}
				return nil
			}
			cl, stop := f.start()
			defer stop()
			s, err := cl.Session(t.Context(), client.SessionConfig{Model: model, Reconnect: c.how})
			if c.code == codes.OK {
				ok(t, err)
				ok(t, s.Close())
			} else if status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected code %v, %q", err, c.code, c.want)
			}
			if want := c.times; c.code == codes.OK && tried.Load() != want+1 || c.code != codes.OK && tried.Load() != want {
				t.Errorf("tried %d times", tried.Load())
			}
		})
	}
}
