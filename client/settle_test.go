package client_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/client"
)

// settledAfter settles inputs by their ids, after so many passes; others never.
func settledAfter(passes map[string]int) func(*fakeInput) bool {
	return func(in *fakeInput) bool { return len(in.passes) == passes[in.id] }
}

// untilRows waits until a group needs passes for these rows alone.
func untilRows(t testing.TB, g *client.Group, want ...int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		rows := g.Rows()
		if slices.Equal(rows, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("rows %v, expected %v", rows, want)
		}
	}
}

// every is a row for each of n inputs.
func every(row []float32, n int) []float32 { return slices.Repeat(row, n) }

// A model that leaves answered inputs out computes no pass that is not needed, if the
// answers are there when it asks.
func TestSettledRowsAreLeftOut(t *testing.T) {
	f := newFake(10)
	f.settles = settledAfter(map[string]int{"a": 2, "b": 5, "d": 2})
	s := f.session(t, client.SessionConfig{AcceptSettled: true})
	if !s.Info().GetSettles() {
		t.Error("the first reply says that nothing is settled")
	}
	g := open(t, s, "a", "b", "c", "d", "e")
	untilRows(t, g, 0, 1, 2, 3, 4)
	for pass := 1; pass <= 10; pass++ {
		rows := g.Rows()
		values := every(low, len(rows))
		if at := slices.Index(rows, 4); pass == 3 && at >= 0 {
			values[3*at] = nan // e fails
		}
		ok(t, g.SendRows(rows, values))
		switch pass {
		case 2:
			untilRows(t, g, 1, 2, 4)
		case 3:
			untilRows(t, g, 1, 2)
		case 5:
			untilRows(t, g, 2)
		case 10:
			untilRows(t, g) // it has its passes, whether or not it is answered by now
		}
	}
	for row, want := range []int{2, 5, 10, 2} {
		r := wait(t, g)[row]
		if r.Err != nil || int(r.Decomposition.GetPasses()) != want || r.Settled() != (want < 10) || !r.Retained() {
			t.Errorf("result %+v, expected a retain after %d passes", r, want)
		}
	}
	if r := wait(t, g)[4]; inputError(t, r).Code != codes.InvalidArgument || r.Settled() {
		t.Errorf("result %+v, expected an error", r)
	}
	ok(t, s.Close())
	if f.passes != 2+5+10+2+3 || f.late != 0 {
		t.Errorf("%d passes sent, %d of them late, expected 22 and 0", f.passes, f.late)
	}
}

// Whoever sends all inputs anyway spares the wire those that are answered.
func TestAnsweredRowsAreNotSent(t *testing.T) {
	for _, reconnect := range []client.Reconnect{hasty, {Disabled: true}} {
		f := newFake(6)
		f.settles = settledAfter(map[string]int{"b": 2, "c": 2, "a": 4})
		s := f.session(t, client.SessionConfig{AcceptSettled: true, Reconnect: reconnect})
		g := open(t, s, "a", "b", "c")
		ok(t, g.SendPasses(2, every(low, 6)))
		untilRows(t, g, 0)
		ok(t, g.Send(every(high, 3)))
		ok(t, g.SendRows([]int{1, 2}, every(high, 2)))
		ok(t, g.Finish(1))
		ok(t, g.SendRows([]int{2, 0}, every(high, 2)))
		untilRows(t, g)
		ok(t, g.Send(every(high, 3)))
		results := wait(t, g)
		if results[0].Retained() || results[0].Decomposition.GetPasses() != 4 || !results[1].Retained() || !results[2].Retained() {
			t.Errorf("results %+v, expected all but the first retained", results)
		}
		ok(t, s.Close())
		if f.passes != 2+2+4 || f.late != 0 {
			t.Errorf("%d passes sent, %d of them late, expected 8 and 0", f.passes, f.late)
		}
	}
}

// Rows need nothing once they are finished, or have what the daemon expects, though
// their answers are yet to come.
func TestRows(t *testing.T) {
	f := newFake(3)
	slow := make(chan struct{})
	f.deliver = func(send send, r *reply) error {
		if r.GetInfo() == nil {
			<-slow
		}
		return send(r)
	}
	s := f.session(t, client.SessionConfig{})
	g := open(t, s, "a", "b", "c")
	for _, step := range []struct {
		send func() error
		want []int
	}{
		{func() error { return g.Send(every(low, 3)) }, []int{0, 1, 2}},
		{func() error { return g.SendRows([]int{2, 1}, every(low, 2)) }, []int{0, 1, 2}},
		{func() error { return g.Finish(1) }, []int{0, 2}},
		{func() error { return g.SendRows([]int{2, 1}, every(low, 2)) }, []int{0}},
		{func() error { return g.SendPasses(3, every(low, 9)) }, nil},
	} {
		ok(t, step.send())
		if rows := g.Rows(); !slices.Equal(rows, step.want) {
			t.Errorf("rows %v, expected %v", rows, step.want)
		}
	}
	close(slow)
	for row, want := range []uint32{3, 2, 3} {
		if r := wait(t, g)[row]; r.Decomposition.GetPasses() != want {
			t.Errorf("result %+v, expected %d passes", r, want)
		}
	}
	// The end of the session leaves nothing to compute either.
	g = open(t, s, "d")
	ok(t, g.Send(low))
	ok(t, s.Close())
	if rows := g.Rows(); len(rows) > 0 {
		t.Errorf("rows %v after the end, expected none", rows)
	}
}

// Nothing is settled where the client does not accept it, or the daemon knows of no
// rule.
func TestNothingIsSettledUnasked(t *testing.T) {
	for name, c := range map[string]struct {
		accept bool
		rule   func(*fakeInput) bool
	}{
		"not accepted": {false, settledAfter(map[string]int{"a": 2})},
		"no rule":      {true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(4)
			f.settles = c.rule
			s := f.session(t, client.SessionConfig{AcceptSettled: c.accept})
			if s.Info().GetSettles() {
				t.Error("the first reply says that inputs are settled")
			}
			computed := 0
			results, err := s.DoRows(t.Context(), []string{"a", "b"}, func(rows []int) ([]float32, error) {
				computed += len(rows)
				return every(low, len(rows)), nil
			})
			ok(t, err)
			for _, r := range results {
				if r.Settled() || r.Decomposition.GetPasses() != 4 {
					t.Errorf("result %+v, expected one on all passes", r)
				}
			}
			if computed != 8 {
				t.Errorf("%d passes computed, expected 8", computed)
			}
			ok(t, s.Close())
		})
	}
}

func TestDoRows(t *testing.T) {
	f := newFake(1 << 30) // passes: without answers on the way it would not end
	f.settles = func(in *fakeInput) bool {
		return in.id == "b" || len(in.passes) > 3 && in.id != "a" || in.passes[0][0] == 1
	}
	s := f.session(t, client.SessionConfig{AcceptSettled: true, InFlight: 3}) // three that stay open would be too many
	var seen [][]int
	results, err := s.DoRows(t.Context(), []string{"a", "b", "c"}, func(rows []int) ([]float32, error) {
		if len(seen) == 0 || !slices.Equal(seen[len(seen)-1], rows) {
			seen = append(seen, slices.Clone(rows))
		}
		values := every(high, len(rows))
		if slices.Equal(rows, []int{0}) {
			values[0] = nan // which ends a
		}
		rows[0] = -1 // ours
		return values, nil
	})
	ok(t, err)
	if !slices.Equal(seen[0], []int{0, 1, 2}) || !slices.Equal(seen[len(seen)-1], []int{0}) {
		t.Errorf("passes computed of rows %v, expected of all at first, and of the first at last", seen)
	}
	_ = inputError(t, results[0])
	if results[1].Decomposition.GetPasses() != 2 || results[2].Decomposition.GetPasses() != 4 {
		t.Errorf("results %+v, expected an error, and decisions after 2 and 4 passes", results)
	}

	// What ends a group does not end the session.
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
	results, err = s.DoRows(t.Context(), []string{"x"}, func([]int) ([]float32, error) { return []float32{1, 0, 0}, nil })
	if ok(t, err); !results[0].Retained() {
		t.Errorf("result %+v, expected a retain", results[0])
	}
	ok(t, s.Close())

	f = newFake(0)
	s = f.session(t, client.SessionConfig{AcceptSettled: true})
	if _, err := s.DoRows(t.Context(), []string{"x"}, nil); err == nil || !strings.Contains(err.Error(), "expected SessionConfig.Passes") {
		t.Errorf("without a number of passes: error %v", err)
	}
	ok(t, s.Close())
}

// After a break, what was settled stands, and inputs without an answer have all their
// passes so far, though these came for other rows each time.
func TestReconnectAmongSettled(t *testing.T) {
	f := newFake(6)
	f.settles = settledAfter(map[string]int{"b": 2, "d": 5, "a": 4})
	var mu sync.Mutex
	var finished []string
	f.finished = func(in *fakeInput) {
		mu.Lock()
		defer mu.Unlock()
		var first []float32
		for _, p := range in.passes {
			first = append(first, p[0])
		}
		finished = append(finished, fmt.Sprint(in.id, first))
	}
	s := f.session(t, client.SessionConfig{AcceptSettled: true, Reconnect: hasty})
	g := open(t, s, "a", "b", "c", "d")
	sent := 0
	pass := func(rows ...int) {
		t.Helper()
		sent++
		untilRows(t, g, rows...)
		var values []float32
		for _, row := range rows {
			values = append(values, float32(10*sent+row), 0, 0)
		}
		ok(t, g.SendRows(rows, values))
	}
	pass(0, 1, 2, 3)
	pass(0, 1, 2, 3)
	pass(0, 2, 3)
	f.kill()
	pass(0, 2, 3)
	pass(2, 3)
	pass(2)
	for row, want := range []uint32{4, 2, 6, 5} {
		if r := wait(t, g)[row]; r.Decomposition.GetPasses() != want || r.Settled() != (want < 6) {
			t.Errorf("result %+v, expected one after %d passes", r, want)
		}
	}
	ok(t, s.Close())
	slices.Sort(finished)
	want := []string{"a[10 20 30 40]", "b[11 21]", "c[12 22 32 42 52 62]", "d[13 23 33 43 53]"}
	if !slices.Equal(finished, want) || f.streams != 2 {
		t.Errorf("%d streams, decided on %v, expected 2 and %v", f.streams, finished, want)
	}
}

// However often the stream breaks, whatever rows callers send and whenever answers
// come, every input has one answer, on the first of its own passes that settle it.
func TestSettledRandomly(t *testing.T) {
	var broke, early atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		expected := rapid.IntRange(2, 8).Draw(rt, "expected passes")
		oneIn := rapid.IntRange(2, 12).Draw(rt, "a break in so many boundaries")
		breaks := rapid.IntRange(0, 10).Draw(rt, "breaks")
		random := rand.New(rand.NewPCG(seed, 0))
		l := newLoad(random, rapid.IntRange(1, 6).Draw(rt, "groups"), 8, expected)

		f := newFake(uint32(expected))
		f.settles = func(in *fakeInput) bool { return len(in.passes) == settledAt(in.id, expected) }
		var mu sync.Mutex // of random and what follows
		first := true
		chance := func() bool {
			mu.Lock()
			defer mu.Unlock()
			if first || breaks == 0 || random.IntN(oneIn) > 0 {
				return false
			}
			breaks--
			broke.Add(1)
			return true
		}
		f.at = func(m moment) error {
			if m > welcomed {
				mu.Lock()
				first = false
				mu.Unlock()
			}
			if !chance() {
				return nil
			}
			return []error{errGone, errKill, draining.Err(), errBusy}[random.IntN(4)]
		}
		f.crowds = func(string) bool { return chance() }
		f.drains = chance
		f.finished = func(in *fakeInput) {
			if want := l.passes[in.id][:settledAt(in.id, expected)]; !slices.EqualFunc(in.passes, want, slices.Equal[[]float32]) {
				l.fault("the daemon decides on %s with passes %v, expected %v", in.id, in.passes, want)
			}
		}
		c, stop := f.start()
		defer stop()
		config := client.SessionConfig{Model: model, Detail: client.Vectors, AcceptSettled: true, Reconnect: hasty}
		s, err := c.Session(context.Background(), config)
		if err != nil {
			rt.Fatal(err)
		}
		var callers sync.WaitGroup
		for i, ids := range l.groups {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			callers.Go(func() {
				if err := l.settle(s, ids, random); err != nil {
					l.fault("%v", err)
				}
			})
		}
		callers.Wait()
		if err := s.Close(); err != nil {
			l.fault("Close: %v", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(l.faults)+len(f.faults) > 0 {
			rt.Fatal(strings.Join(slices.Concat(l.faults, f.faults), "\n"))
		}
		for id, passes := range l.passes {
			if settledAt(id, expected) < len(passes) {
				early.Add(1)
			}
		}
	})
	if broke.Load() == 0 || early.Load() == 0 {
		t.Errorf("%d breaks, %d inputs settled early, expected some of both", broke.Load(), early.Load())
	}
}

// settledAt is after how many passes an input is settled: as many as expected where it
// never is.
func settledAt(id string, expected int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return 2 + int(h.Sum32()>>8)%(expected-1)
}

// settle sends a group one pass at a time, to the rows that need it, to those that
// needed it before, or to all, and checks its answers.
func (l *load) settle(s *client.Session, ids []string, random *rand.Rand) error {
	expected := int(s.Info().GetExpectedPasses())
	pass := 0
	forward := func(rows []int) []float32 {
		var values []float32
		for _, row := range rows {
			values = append(values, l.passes[ids[row]][pass]...)
		}
		pass++
		return values
	}
	check := func(r client.Result) {
		want := settledAt(ids[r.Row], expected)
		switch {
		case r.Err != nil:
			l.fault("%s: %v", r.ID, r.Err)
		case r.ID != ids[r.Row] || !slices.Equal(r.Decomposition.GetMean(), means(l.passes[r.ID][:want])) ||
			int(r.Decomposition.GetPasses()) != want || r.Settled() != (want < expected):
			l.fault("row %d, id %s: %+v, expected it decided on %d passes", r.Row, ids[r.Row], r, want)
		}
	}
	if random.IntN(2) == 0 {
		results, err := s.DoRows(context.Background(), ids, func(rows []int) ([]float32, error) { return forward(rows), nil })
		for _, r := range results {
			check(r)
		}
		return err
	}
	g, err := s.Open(context.Background(), ids)
	if err != nil {
		return err
	}
	before := g.Rows()
	for range expected {
		rows := g.Rows()
		switch random.IntN(3) {
		case 0:
			rows = slices.Clone(before)
		case 1:
			rows = random.Perm(len(ids))
		}
		before = g.Rows()
		if len(rows) == 0 {
			break
		}
		if err := g.SendRows(rows, forward(rows)); err != nil {
			return err
		}
	}
	answers := 0
	for r := range g.Results() {
		check(r)
		answers++
	}
	if answers != len(ids) || len(g.Rows()) > 0 {
		l.fault("%d answers, and rows %v that need passes, expected %d and none", answers, g.Rows(), len(ids))
	}
	return nil
}

// A model that waits for the daemon computes no pass that is not needed.
func TestDoRowsComputesNothingInVain(t *testing.T) {
	f := newFake(9)
	f.settles = func(in *fakeInput) bool { return len(in.passes) == settledAt(in.id, 9) }
	s := f.session(t, client.SessionConfig{AcceptSettled: true})
	var callers sync.WaitGroup
	var computed atomic.Int64
	want := 0
	for c := range 4 {
		var ids []string
		for i := range 12 {
			ids = append(ids, fmt.Sprintf("%d-%d", c, i))
			want += settledAt(ids[i], 9)
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
	if n := int(computed.Load()); n != want || f.passes != want || f.late != 0 {
		t.Errorf("%d passes computed, %d sent, %d late, expected %d, as many, and 0", n, f.passes, f.late, want)
	}
}

func TestSync(t *testing.T) {
	never := func(*fakeInput) bool { return false }
	hold := func(f *fake) chan struct{} {
		slow := make(chan struct{})
		f.deliver = func(send send, r *reply) error {
			if r.GetInfo() == nil {
				<-slow
			}
			return send(r)
		}
		return slow
	}
	t.Run("waits", func(t *testing.T) {
		f := newFake(9)
		f.settles = never
		slow := hold(f)
		s := f.session(t, client.SessionConfig{AcceptSettled: true})
		g, other := open(t, s, "a", "b"), open(t, s, "c")
		ok(t, g.Sync(t.Context())) // nothing is sent
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
	for name, change := range map[string]func(*fake){
		"no rule":         func(f *fake) { f.settles = nil },
		"a silent daemon": func(f *fake) { f.silent = true },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(9)
			f.settles = never
			change(f)
			slow := hold(f)
			s := f.session(t, client.SessionConfig{AcceptSettled: true})
			g := open(t, s, "a")
			ok(t, g.SendPasses(9, every(low, 9)))
			ok(t, g.Sync(t.Context()))
			close(slow)
			ok(t, s.Close())
		})
	}
	t.Run("the end of the session", func(t *testing.T) {
		f := newFake(9)
		f.settles = never
		f.at = func(m moment) error {
			if m == received {
				return errLarge
			}
			return nil
		}
		s := f.session(t, client.SessionConfig{AcceptSettled: true})
		g := open(t, s, "a")
		_ = g.Send(low)
		ok(t, g.Sync(t.Context()))
		if r := wait(t, g)[0]; r.Err == nil {
			t.Errorf("result %+v, expected an error", r)
		}
	})
}
