package client_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ckd-project/ckd/client"
)

// TestNothingStopsUnasked checks that all passes decide if the client does not accept early answers,
// or the daemon has no rule.
func TestNothingStopsUnasked(t *testing.T) {
	for name, accept := range map[string]bool{"not accepted": false, "no rule": true} {
		t.Run(name, func(t *testing.T) {
			f := newFake(4)
			if !accept {
				f.early = func(*fakeInput) bool { return true }
			}
			s := f.session(t, client.SessionConfig{AcceptSettled: accept})
			if s.Info().GetSettles() {
				t.Error("the first reply says that inputs are answered early")
			}
			computed := 0
			results, err := s.DoRows(t.Context(), []string{"a", "b"}, func(rows []int) ([]float32, error) {
				computed += len(rows)
				return every(low, len(rows)), nil
			})
			ok(t, err)
			decidedOn(t, 4, results...)
			if computed != 8 {
				t.Errorf("%d passes computed, expected 8", computed)
			}
		})
	}
}

// TestDoRowsGivesUp checks that a failure ends the group and not the session.
func TestDoRowsGivesUp(t *testing.T) {
	f := newFake(1 << 30) // so many passes that only answers can end the loop
	f.early = func(in *fakeInput) bool { return in.passes[0][0] == 1 }
	s := f.session(t, client.SessionConfig{AcceptSettled: true, InFlight: 1}) // a second open group would not fit the window
	broken := errors.New("out of memory")
	ctx, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		name    string
		ids     []string
		forward func([]int) ([]float32, error)
		want    string
	}{
		{"forward fails", []string{"x"}, func([]int) ([]float32, error) { return low, broken }, "out of memory"},
		{"wrong shape", []string{"x"}, func([]int) ([]float32, error) { return low[:2], nil }, "2 values, expected 1 passes x 1 inputs x 3 classes"},
		{"no ids", nil, func([]int) ([]float32, error) { return low, nil }, "a group of 0 inputs"},
		{"the context ends", []string{"x"}, func([]int) ([]float32, error) { cancel(); return low, nil }, context.Canceled.Error()},
	} {
		if results, err := s.DoRows(ctx, c.ids, c.forward); err == nil || !strings.Contains(err.Error(), c.want) || results != nil {
			t.Errorf("%s: results %v, error %v, expected %q", c.name, results, err, c.want)
		}
	}
	results, err := s.DoRows(t.Context(), []string{"x"}, func([]int) ([]float32, error) { return []float32{1, 0, 0}, nil })
	ok(t, err)
	retained(t, results...)
	ok(t, s.Close())

	s = newFake(0).session(t, client.SessionConfig{AcceptSettled: true})
	_, err = s.DoRows(t.Context(), []string{"x"}, nil)
	saying("expected SessionConfig.Passes").check(t, "without a number of passes", err)
	ok(t, s.Close())
}

// stopAt returns after how many passes an input is answered.
func stopAt(id string, expected int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return 2 + int(h.Sum32()>>8)%(expected-1)
}

// TestDoRowsComputesNothingInVain checks that a model which waits for the daemon computes no
// unneeded pass.
func TestDoRowsComputesNothingInVain(t *testing.T) {
	f := newFake(9)
	f.early = func(in *fakeInput) bool { return len(in.passes) == stopAt(in.id, 9) }
	s := f.session(t, client.SessionConfig{AcceptSettled: true})
	var callers sync.WaitGroup
	var computed atomic.Int64
	want := int64(0)
	for c := range 4 {
		var ids []string
		for i := range 12 {
			ids = append(ids, fmt.Sprintf("%d-%d", c, i))
			want += int64(stopAt(ids[i], 9))
		}
		callers.Go(func() {
			_, err := s.DoRows(t.Context(), ids, func(rows []int) ([]float32, error) {
				computed.Add(int64(len(rows)))
				return every(low, len(rows)), nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	ok(t, s.Close())
	if n, sent, late := computed.Load(), f.passes.Load(), f.late.Load(); n != want || sent != want || late != 0 {
		t.Errorf("%d passes computed, %d sent, %d late, expected %d, as many, and 0", n, sent, late, want)
	}
}

// TestSync checks when Sync waits for the daemon, and that it returns at once where no early answer
// can come.
func TestSync(t *testing.T) {
	begin := func(t *testing.T, change func(*fake)) *client.Session {
		f := newFake(9)
		f.early = func(*fakeInput) bool { return false }
		change(f)
		return f.session(t, client.SessionConfig{AcceptSettled: true})
	}
	t.Run("waits", func(t *testing.T) {
		var slow chan struct{}
		s := begin(t, func(f *fake) { slow = f.hold() })
		g, other := open(t, s, "a", "b"), open(t, s, "c")
		ok(t, g.Sync(t.Context())) // nothing was sent yet
		ok(t, g.Send(every(low, 2)))
		ok(t, other.Sync(t.Context()))
		if err := g.Sync(canceledSoon(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, expected the context's", err)
		}
		close(slow)
		ok(t, g.Sync(t.Context()))
		ok(t, g.SendRows([]int{1}, low))
		ok(t, g.Finish())
		ok(t, g.Sync(t.Context()))
		ok(t, s.Close())
		ok(t, g.Sync(t.Context()))
	})
	t.Run("no rule", func(t *testing.T) {
		var slow chan struct{}
		s := begin(t, func(f *fake) { f.early = nil; slow = f.hold() })
		g := open(t, s, "a")
		ok(t, g.SendPasses(9, every(low, 9)))
		ok(t, g.Sync(t.Context()))
		close(slow)
		ok(t, s.Close())
	})
	t.Run("the end of the session", func(t *testing.T) {
		s := begin(t, func(f *fake) {
			f.at = func(m moment) error {
				if m == received {
					return errLarge
				}
				return nil
			}
		})
		g := open(t, s, "a")
		_ = g.Send(low)
		ok(t, g.Sync(t.Context()))
		_ = inputError(t, wait(t, g)[0])
	})
}
