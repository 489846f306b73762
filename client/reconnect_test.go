package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// hasty tries again almost at once, for as long as any test takes.
var hasty = client.Reconnect{Limit: time.Minute, BaseDelay: time.Microsecond, MaxDelay: time.Millisecond}

var (
	errGone  = status.Error(codes.Unavailable, "the daemon is gone")
	errFull  = fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS, "no room for a stream", nil).Err()
	errBusy  = busyFor(time.Millisecond)
	errLarge = fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "too many inputs", nil).Err()
	errSlow  = fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_SEND_STALLED, "results were not read", nil).Err()
)

// busyFor is what an overloaded daemon says.
func busyFor(delay time.Duration) error {
	return retryIn(delay, fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, "too many calls", nil)).Err()
}

// load is what some callers send on a session, and what they must get for it:
// inputs of different numbers of passes, each input with passes like no other.
type load struct {
	groups [][]string             // ids
	passes map[string][][]float32 // by id
	mu     sync.Mutex
	faults []string
}

func newLoad(random *rand.Rand, groups, inputs, expected int) *load {
	l := &load{passes: map[string][][]float32{}}
	for g := range groups {
		var ids []string
		for i := range 1 + random.IntN(inputs) {
			id := fmt.Sprintf("%d-%d", g, i)
			ids = append(ids, id)
			n := expected
			if n == 0 {
				n = 2 + random.IntN(3)
			}
			for range n {
				l.passes[id] = append(l.passes[id], []float32{random.Float32(), random.Float32(), random.Float32()})
			}
		}
		l.groups = append(l.groups, ids)
	}
	return l
}

func (l *load) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// decided is what the daemon holds of an input when it decides.
func (l *load) decided(in *fakeInput) {
	if !slices.EqualFunc(in.passes, l.passes[in.id], slices.Equal[[]float32]) {
		l.fault("the daemon decides on %s with passes %v, expected %v", in.id, in.passes, l.passes[in.id])
	}
}

// send sends a group: every pass by rows in any order, or of all where all have
// it. Inputs are finished that the daemon does not finish; with close, Close does
// it for those that have the most passes.
func (l *load) send(g *client.Group, ids []string, random *rand.Rand, expected int, leaveToClose bool) error {
	most := 0
	for _, id := range ids {
		most = max(most, len(l.passes[id]))
	}
	for pass := range most {
		var rows, ends []int
		for _, row := range random.Perm(len(ids)) {
			if n := len(l.passes[ids[row]]); pass < n {
				rows = append(rows, row)
				if pass == n-1 && expected == 0 && (n < most || !leaveToClose) {
					ends = append(ends, row)
				}
			}
		}
		var err error
		if len(rows) == len(ids) && random.IntN(2) == 0 {
			var values []float32
			for _, id := range ids {
				values = append(values, l.passes[id][pass]...)
			}
			err = g.Send(values)
		} else {
			for cut := random.IntN(len(rows)); len(rows) > 0 && err == nil; cut = 0 {
				var values []float32
				for _, row := range rows[cut:] {
					values = append(values, l.passes[ids[row]][pass]...)
				}
				err = g.SendRows(rows[cut:], values)
				rows = rows[:cut]
			}
		}
		if err == nil && len(ends) > 0 {
			err = g.Finish(ends...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// check wants one answer for every input, the right one.
func (l *load) check(g *client.Group, ids []string) {
	seen := map[int]bool{}
	for r := range g.Results() {
		switch want := means(l.passes[ids[r.Row]]); {
		case seen[r.Row]:
			l.fault("two answers for %s", r.ID)
		case r.Err != nil:
			l.fault("%s: %v", r.ID, r.Err)
		case r.ID != ids[r.Row] || !slices.Equal(r.Decomposition.GetMean(), want):
			l.fault("row %d: id %s, mean %v, expected %s, %v", r.Row, r.ID, r.Decomposition.GetMean(), ids[r.Row], want)
		}
		seen[r.Row] = true
	}
	if len(seen) != len(ids) {
		l.fault("%d answers, expected %d", len(seen), len(ids))
	}
}

// run sends the load by several callers at once on a session of its own, and
// returns what went wrong. With leaveToClose, some of it waits for Close.
func (l *load) run(f *fake, config client.SessionConfig, seed uint64, leaveToClose bool) []string {
	f.finished = l.decided
	c, stop := f.start()
	defer stop()
	config.Model, config.Detail = model, client.Vectors
	s, err := c.Session(context.Background(), config)
	if err != nil {
		return []string{err.Error()}
	}
	expected := int(s.Info().GetExpectedPasses())
	var sent, checked sync.WaitGroup
	for i, ids := range l.groups {
		g, err := s.Open(context.Background(), ids)
		if err != nil {
			return []string{err.Error()}
		}
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		sent.Go(func() {
			if err := l.send(g, ids, random, expected, leaveToClose); err != nil {
				l.fault("send: %v", err)
			}
		})
		checked.Go(func() { l.check(g, ids) })
	}
	sent.Wait()
	if !leaveToClose {
		checked.Wait()
	}
	if err := s.Close(); err != nil {
		l.fault("Close: %v", err)
	}
	checked.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(l.faults, f.faults...)
}

// A single break at each boundary between two messages, of every kind, with and
// without inputs that only Close finishes.
func TestReconnectAtEveryBoundary(t *testing.T) {
	for _, kind := range []string{"status", "kill", "drain"} {
		for _, leaveToClose := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, Close finishes %v", kind, leaveToClose), func(t *testing.T) {
				boundary, happened := int64(1), true
				for ; happened; boundary++ {
					l := newLoad(rand.New(rand.NewPCG(uint64(boundary), 0)), 3, 4, 0)
					var reached atomic.Int64
					f := newFake(0)
					// Not the first stream, which Session does not try for again.
					f.at = func(m moment) error {
						if m <= welcomed && reached.Load() == 0 || reached.Add(1) != boundary {
							return nil
						}
						switch kind {
						case "status":
							return errGone
						case "kill":
							return errKill
						}
						return nil
					}
					f.drains = func() bool { return kind == "drain" && reached.CompareAndSwap(boundary, boundary+1) }
					for _, fault := range l.run(f, client.SessionConfig{Reconnect: hasty}, uint64(boundary), leaveToClose) {
						t.Errorf("boundary %d: %s", boundary, fault)
					}
					happened = reached.Load() >= boundary
				}
				if boundary < 15 {
					t.Errorf("%d boundaries, expected more", boundary)
				}
			})
		}
	}
}

// However often the stream breaks, and whatever became of answers, every input
// has its one answer, on its own passes in their order.
func TestReconnectRandomly(t *testing.T) {
	var broke atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		expected := rapid.SampledFrom([]int{0, 3}).Draw(rt, "expected passes")
		leaveToClose := expected == 0 && rapid.Bool().Draw(rt, "Close finishes")
		oneIn := rapid.IntRange(2, 12).Draw(rt, "a break in so many boundaries")
		narrow := rapid.Bool().Draw(rt, "narrow limits")
		random := rand.New(rand.NewPCG(seed, 0))
		l := newLoad(random, rapid.IntRange(1, 6).Draw(rt, "groups"), 8, expected)

		f := newFake(uint32(expected))
		var mu sync.Mutex // of random and what follows
		breaks, first := rapid.IntRange(1, 20).Draw(rt, "breaks"), true
		chance := func() bool {
			if breaks == 0 || random.IntN(oneIn) > 0 {
				return false
			}
			breaks--
			broke.Add(1)
			return true
		}
		f.at = func(m moment) error {
			mu.Lock()
			defer mu.Unlock()
			if m <= welcomed && first {
				return nil
			}
			first = false
			if !chance() {
				return nil
			}
			return []error{errGone, errKill, draining.Err(), errBusy}[random.IntN(4)]
		}
		f.crowds = func(string) bool {
			mu.Lock()
			defer mu.Unlock()
			return chance()
		}
		f.drains = func() bool {
			mu.Lock()
			defer mu.Unlock()
			return chance()
		}
		f.terms = func(info *ckdv1.StreamInfo) {
			mu.Lock()
			defer mu.Unlock()
			if narrow && !first {
				info.Limits.OpenInputsPerStream = 1 + random.Uint32N(10)
				info.Limits.OpenGroupsPerStream = 1 + random.Uint32N(4)
				info.Limits.MessageBytes = 128 + 20 + random.Uint32N(100)
			}
		}
		if faults := l.run(f, client.SessionConfig{Reconnect: hasty}, seed, leaveToClose); len(faults) > 0 {
			rt.Fatal(strings.Join(faults, "\n"))
		}
	})
	if broke.Load() == 0 {
		t.Error("nothing broke")
	}
}

// An answer that came before the break stands, and is not asked for again; what
// is sent later for all inputs reaches those that are left.
func TestReconnectSendsOnlyWhatHasNoAnswer(t *testing.T) {
	f := newFake(3)
	var reopened [][]string
	var mu sync.Mutex
	f.finished = func(in *fakeInput) {
		mu.Lock()
		defer mu.Unlock()
		reopened = append(reopened, []string{in.id, fmt.Sprint(in.row)})
	}
	s := f.session(t, client.SessionConfig{Reconnect: hasty})
	g := open(t, s, "a", "b", "c", "d")
	ok(t, g.Send(slices.Concat(low, low, high, low)))
	ok(t, g.Finish(1))
	ok(t, g.SendRows([]int{2, 0}, slices.Concat(high, low)))
	ok(t, g.SendRows([]int{0}, low))
	var first []string
	for r := range g.Results() {
		if first = append(first, r.ID); len(first) == 2 {
			break
		}
	}
	f.kill()
	ok(t, g.Send(slices.Concat(low, low, high, []float32{0, nan, 0})))
	results := wait(t, g)
	if e := inputError(t, results[3]); e.Fields["row"] != "3" || e.Fields["pass"] != "1" || e.Unanswered {
		t.Errorf("error %+v, expected that of row 3, pass 1", e)
	}
	if r := results[2]; r.Retained() || r.Decomposition.GetPasses() != 3 || r.ID != "c" {
		t.Errorf("result %+v, expected c deferred on 3 passes", r)
	}
	if e := inputError(t, results[1]); e.Reason != ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES {
		t.Errorf("error %v, expected too few passes", e)
	}
	ok(t, s.Close())
	want := [][]string{{"b", "1"}, {"a", "0"}, {"c", "0"}, {"d", "1"}}
	if !slices.EqualFunc(reopened, want, slices.Equal[[]string]) {
		t.Errorf("inputs and rows %v, expected %v", reopened, want)
	}
	if f.streams != 2 || f.blocks != 4+3 { // two of the four have nothing for the rows that are left
		t.Errorf("%d streams with %d blocks, expected 2 with 7", f.streams, f.blocks)
	}
}

// What ends the session, and what becomes of inputs without an answer then.
func TestReconnectNot(t *testing.T) {
	policy := fail(codes.FailedPrecondition, ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED, "the policy was removed", nil).Err()
	for _, c := range []struct {
		name    string
		how     client.Reconnect
		breaks  error // of the first stream
		reopens func(*fake)
		streams int // 0 for any number
		code    codes.Code
		reason  ckdv1.ErrorReason
		want    string
	}{
		{name: "policy removed", breaks: policy, streams: 1, code: codes.FailedPrecondition,
			reason: ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED, want: "no answer: the policy was removed"},
		{name: "stalled", breaks: errSlow, streams: 1, code: codes.ResourceExhausted,
			reason: ckdv1.ErrorReason_ERROR_REASON_SEND_STALLED},
		{name: "a limit that stays", breaks: errLarge, streams: 1, code: codes.ResourceExhausted,
			reason: ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS},
		{name: "token refused", breaks: status.Error(codes.Unauthenticated, "revoked"), streams: 1,
			code: codes.Unauthenticated, want: "no answer: revoked"},
		{name: "full for long", breaks: busyFor(time.Hour), streams: 1, code: codes.ResourceExhausted,
			reason: ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, want: "to be tried again in 1h0m0s, later than the limit of 30s"},
		{name: "disabled", how: client.Reconnect{Disabled: true}, breaks: errGone, streams: 1, code: codes.Unavailable,
			want: "no answer: the daemon is gone (Unavailable)"},
		{name: "other classes", breaks: errGone, streams: 2, code: codes.FailedPrecondition,
			reason: ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED, want: `classes ["normal" "pathological" "suspect"], expected ["normal"`,
			reopens: func(f *fake) {
				f.terms = func(i *ckdv1.StreamInfo) { i.Classes[1], i.Classes[2] = i.Classes[2], i.Classes[1] }
			}},
		{name: "other kind", breaks: errGone, streams: 2, code: codes.FailedPrecondition,
			reason: ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED, want: "kind KIND_LOGITS, expected KIND_PROBABILITIES",
			reopens: func(f *fake) { f.terms = func(i *ckdv1.StreamInfo) { i.Kind = ckdv1.Kind_KIND_LOGITS } }},
		{name: "other passes", breaks: errGone, streams: 2, code: codes.FailedPrecondition,
			reason: ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED, want: "5 passes, expected 2",
			reopens: func(f *fake) { f.terms = func(i *ckdv1.StreamInfo) { i.ExpectedPasses = 5 } }},
		{name: "small messages", breaks: errGone, streams: 2, code: codes.Unknown, want: "messages of 130 bytes, too few",
			reopens: func(f *fake) { f.terms = func(i *ckdv1.StreamInfo) { i.Limits.MessageBytes = 130 } }},
		{name: "model unknown elsewhere", breaks: errGone, streams: 2, code: codes.NotFound, want: "elsewhere",
			reopens: func(f *fake) {
				f.at = func(moment) error { return status.Error(codes.NotFound, "unknown elsewhere") }
			}},
		{name: "gone", how: client.Reconnect{Limit: 20 * time.Millisecond}, breaks: errKill, code: codes.Unavailable,
			want: "tried again for 20ms", reopens: func(f *fake) { f.at = func(moment) error { return errGone } }},
		{name: "broken at once", how: client.Reconnect{Limit: 20 * time.Millisecond, BaseDelay: time.Microsecond},
			breaks: draining.Err(), code: codes.Unavailable, reason: ckdv1.ErrorReason_ERROR_REASON_DRAINING,
			want: "the daemon is stopping; tried again for 20ms", reopens: func(f *fake) {
				f.at = func(m moment) error {
					if m == welcomed {
						return draining.Err()
					}
					return nil
				}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			var reopening atomic.Bool
			then := &fake{}
			if c.reopens != nil {
				c.reopens(then)
			}
			f.terms = func(i *ckdv1.StreamInfo) {
				if reopening.Load() && then.terms != nil {
					then.terms(i)
				}
			}
			f.at = func(m moment) error {
				switch {
				case reopening.Load() && then.at != nil:
					return then.at(m)
				case !reopening.Load() && m == answered:
					reopening.Store(true)
					return c.breaks
				}
				return nil
			}
			s := f.session(t, client.SessionConfig{Reconnect: c.how})
			g, unsent := open(t, s, "a", "b"), open(t, s, "c")
			ok(t, g.Send(slices.Concat(low, low)))
			ok(t, g.SendRows([]int{0}, low))
			results := wait(t, g)
			if e := (*client.InputError)(nil); !results[0].Retained() && (!errors.As(results[0].Err, &e) || !errors.Is(c.breaks, errKill)) {
				t.Errorf("result %+v, expected the answer that came", results[0])
			}
			for _, r := range append(results[1:], wait(t, unsent)...) {
				e := inputError(t, r)
				if e.Code != c.code || e.Reason != c.reason || !e.Unanswered || !strings.Contains(e.Error(), c.want) {
					t.Errorf("%s: error %v, expected code %v, reason %v, %q, unanswered", r.ID, e, c.code, c.reason, c.want)
				}
			}
			if err := s.Close(); status.Code(err) != c.code || client.Reason(err) != c.reason {
				t.Errorf("Close: %v, expected code %v, reason %v", err, c.code, c.reason)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if c.streams != 0 && f.streams != c.streams {
				t.Errorf("%d streams, expected %d", f.streams, c.streams)
			}
		})
	}
}

// outOfReach has the daemon refuse streams from now on, until it is back.
func outOfReach(f *fake, refusal error) (gone func(), tried *atomic.Int64, back func()) {
	var away atomic.Bool
	tried = new(atomic.Int64)
	f.at = func(moment) error {
		if !away.Load() {
			return nil
		}
		tried.Add(1)
		return refusal
	}
	return func() { away.Store(true); f.kill() }, tried, func() { away.Store(false) }
}

// Groups are opened, sent and finished as if nothing had happened.
func TestReconnectTakesPassesMeanwhile(t *testing.T) {
	for name, refusal := range map[string]error{"gone": errGone, "no room for another stream": errFull, "too many calls": errBusy} {
		t.Run(name, func(t *testing.T) {
			f := newFake(0)
			gone, tried, back := outOfReach(f, refusal)
			s := f.session(t, client.SessionConfig{Reconnect: hasty})
			before := open(t, s, "before")
			ok(t, before.Send(high))
			gone()
			for tried.Load() < 2 {
				time.Sleep(time.Millisecond)
			}
			ok(t, before.Send(high))
			ok(t, before.Finish())
			meanwhile := open(t, s, "meanwhile", "too")
			ok(t, meanwhile.SendPasses(3, slices.Repeat(low, 6)))
			ok(t, meanwhile.Finish(1))
			back()
			if r := wait(t, before)[0]; r.Err != nil || r.Retained() || r.Decomposition.GetPasses() != 2 {
				t.Errorf("result %+v, expected it deferred on 2 passes", r)
			}
			ok(t, s.Close())
			for _, r := range wait(t, meanwhile) {
				if !r.Retained() || r.Decomposition.GetPasses() != 3 {
					t.Errorf("result %+v, expected it retained on 3 passes", r)
				}
			}
		})
	}
}

// A session in which nothing waits outlives the limit.
func TestReconnectWithoutInputs(t *testing.T) {
	f := newFake(2)
	gone, tried, back := outOfReach(f, errGone)
	how := client.Reconnect{Limit: 5 * time.Millisecond, BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}
	s := f.session(t, client.SessionConfig{Reconnect: how})
	started := time.Now()
	gone()
	for tried.Load() < 5 || time.Since(started) < 4*how.Limit {
		time.Sleep(time.Millisecond)
	}
	ok(t, s.Err())
	back()
	// It is back when the session is; until then the limit would hold.
	for streams := func() int { f.mu.Lock(); defer f.mu.Unlock(); return f.streams }; ; {
		if n := streams(); n == int(tried.Load())+2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	g := open(t, s, "a")
	ok(t, g.SendPasses(2, slices.Concat(low, low)))
	if r := wait(t, g)[0]; !r.Retained() {
		t.Errorf("result %+v, expected it retained", r)
	}
	ok(t, s.Close())
}

func TestCloseWhileReconnecting(t *testing.T) {
	for _, c := range []struct {
		name string
		open bool // an input waits
		end  func(back, cancel func())
		code codes.Code
	}{
		{"nothing waits", false, func(_, _ func()) {}, codes.OK},
		{"the daemon is back", true, func(back, _ func()) { back() }, codes.OK},
		{"the context ends", true, func(_, cancel func()) { cancel() }, codes.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(0)
			gone, tried, back := outOfReach(f, errGone)
			var stop func()
			f.client, stop = f.start()
			defer stop()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := f.client.Session(ctx, client.SessionConfig{Model: model, Reconnect: hasty})
			ok(t, err)
			over := open(t, s, "over")
			ok(t, over.Finish())
			wait(t, over)
			var sent, unsent *client.Group
			if c.open {
				sent, unsent = open(t, s, "a"), open(t, s, "b")
				ok(t, sent.SendPasses(2, slices.Concat(low, low)))
			}
			gone()
			for tried.Load() < 2 {
				time.Sleep(time.Millisecond)
			}
			closed := make(chan error)
			go func() { closed <- s.Close() }()
			for !errors.Is(over.Send(low), client.ErrClosed) { // Close is under way
				time.Sleep(time.Millisecond)
			}
			c.end(back, cancel)
			if err := <-closed; status.Code(err) != c.code {
				t.Errorf("Close: %v, expected code %v", err, c.code)
			}
			if !c.open {
				return
			}
			a, b := wait(t, sent)[0], inputError(t, wait(t, unsent)[0])
			if a.Retained() != (c.code == codes.OK) || b.Unanswered != (c.code != codes.OK) {
				t.Errorf("result %+v and error %v, expected them answered: %v", a, b, c.code == codes.OK)
			}
		})
	}
}

// Where the next stream has less room, inputs take turns on it; Close ends each.
func TestReconnectWithLessRoom(t *testing.T) {
	for _, c := range []struct {
		name    string
		limits  *ckdv1.Limits
		streams int // after the first
	}{
		{"of inputs", &ckdv1.Limits{OpenInputsPerStream: 2, OpenGroupsPerStream: 8, MessageBytes: 1 << 20}, 4}, // ab cd e fg
		{"of groups", &ckdv1.Limits{OpenInputsPerStream: 8, OpenGroupsPerStream: 1, MessageBytes: 1 << 20}, 2}, // abcde fg
		{"in messages", &ckdv1.Limits{OpenInputsPerStream: 8, OpenGroupsPerStream: 8, MessageBytes: 400}, 1},   // all, in lots of two
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(0)
			var first atomic.Bool
			f.terms = func(i *ckdv1.StreamInfo) {
				if !first.CompareAndSwap(false, true) {
					i.Limits = c.limits
				}
			}
			f.half = func(send) error {
				time.Sleep(time.Millisecond) // in which nothing more may be sent
				return nil
			}
			s := f.session(t, client.SessionConfig{Reconnect: hasty})
			var ids []string
			for i := range 7 {
				ids = append(ids, strings.Repeat(string(rune('a'+i)), 100))
			}
			a, b := open(t, s, ids[:5]...), open(t, s, ids[5:]...)
			ok(t, a.SendPasses(2, slices.Repeat(low, 10)))
			ok(t, b.Send(slices.Concat(high, high)))
			f.kill()
			ok(t, b.Send(slices.Concat(high, high)))
			ok(t, s.Close())
			for i, r := range append(wait(t, a), wait(t, b)...) {
				if r.Err != nil || r.ID != ids[i] || r.Retained() != (i < 5) || r.Decomposition.GetPasses() != 2 {
					t.Errorf("result %d is %+v", i, r)
				}
			}
			if f.streams != 1+c.streams {
				t.Errorf("%d streams, expected %d", f.streams, 1+c.streams)
			}
		})
	}
}

// Close takes what was sent before it, and nothing that comes later.
func TestCloseAmongSends(t *testing.T) {
	for range 100 {
		f := newFake(0)
		f.info.FewestPasses = 0
		s := f.session(t, client.SessionConfig{Reconnect: hasty})
		g := open(t, s, "a")
		ok(t, g.Send(low))
		sent := make(chan int)
		go func() {
			for n := 1; ; n++ {
				if err := g.Send(low); err != nil {
					if !errors.Is(err, client.ErrClosed) {
						t.Errorf("Send: %v, expected ErrClosed", err)
					}
					sent <- n
					return
				}
			}
		}()
		ok(t, s.Close())
		if n, r := <-sent, wait(t, g)[0]; r.Err != nil || int(r.Decomposition.GetPasses()) != n {
			t.Fatalf("result %+v, expected %d passes", r, n)
		}
	}
}

func TestDrainingIsAnAnswerWhereReconnectIsOff(t *testing.T) {
	f := newFake(2)
	f.drains = func() bool { return true }
	s := f.session(t, client.SessionConfig{Reconnect: client.Reconnect{Disabled: true}})
	g := open(t, s, "a")
	ok(t, g.Send(low))
	if e := inputError(t, wait(t, g)[0]); e.Reason != ckdv1.ErrorReason_ERROR_REASON_DRAINING || e.Unanswered {
		t.Errorf("error %+v, expected the daemon's", e)
	}
	if err := s.Close(); status.Code(err) != codes.Unavailable {
		t.Errorf("Close: %v, expected Unavailable", err)
	}
}

func TestReconnectArguments(t *testing.T) {
	f := newFake(2)
	c, stop := f.start()
	defer stop()
	for _, how := range []client.Reconnect{{Limit: -1}, {BaseDelay: -1}, {MaxDelay: -1}} {
		_, session := c.Session(t.Context(), client.SessionConfig{Model: model, Reconnect: how})
		_, unary := c.Decompose(t.Context(), client.Batch{Layout: client.SNK, Passes: 2, Reconnect: how})
		for _, err := range []error{session, unary} {
			if err == nil || !strings.Contains(err.Error(), "expected none below 0") {
				t.Errorf("%+v: error %v, expected that it is refused", how, err)
			}
		}
	}
}

func TestDecomposeTriesAgain(t *testing.T) {
	brief := client.Reconnect{Limit: 10 * time.Millisecond, BaseDelay: time.Microsecond, MaxDelay: time.Millisecond}
	hopeless := hasty
	hopeless.BaseDelay, hopeless.MaxDelay = time.Hour, time.Hour
	for _, c := range []struct {
		name   string
		how    client.Reconnect
		errors []error // of the first calls
		calls  int     // 0 for any number
		code   codes.Code
		want   string
	}{
		{"until it works", hasty, []error{errGone, draining.Err(), errGone}, 4, codes.OK, ""},
		{"until there is room", hasty, []error{errBusy, errFull, crowded.Err()}, 4, codes.OK, ""},
		{"not sooner than the daemon asks", hasty, []error{busyFor(time.Hour)}, 1, codes.ResourceExhausted,
			"too many calls; to be tried again in 1h0m0s, later than the limit of 1m0s"},
		{"within the limit", brief, slices.Repeat([]error{errGone}, 1e5), 0, codes.Unavailable, "the daemon is gone; tried again for 10ms"},
		{"while the context lasts", hopeless, slices.Repeat([]error{errGone}, 9), 2, codes.DeadlineExceeded,
			"before that: the daemon is gone"},
		{"not for limits that stay", hasty, []error{errLarge}, 1, codes.ResourceExhausted, "too many inputs"},
		{"not for what alone takes all the room", hasty, []error{full.Err()}, 1, codes.ResourceExhausted, "no room"},
		{"not for want of details", hasty, []error{status.Error(codes.ResourceExhausted, "a large message")}, 1,
			codes.ResourceExhausted, "a large message"},
		{"not where it is off", client.Reconnect{Disabled: true}, []error{errGone}, 1, codes.Unavailable, "the daemon is gone"},
		{"not where it is off, and full", client.Reconnect{Disabled: true}, []error{errBusy}, 1, codes.ResourceExhausted, "too many calls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // so that connecting takes no time
				f := newFake(0)
				calls := 0
				f.unary = func(r *ckdv1.DecomposeResponse) (*ckdv1.DecomposeResponse, error) {
					calls++
					if calls <= len(c.errors) {
						return nil, c.errors[calls-1]
					}
					return r, nil
				}
				cl, stop := f.start()
				defer stop()
				ctx := t.Context()
				if c.code == codes.DeadlineExceeded {
					ctx = canceledSoon(t)
				}
				results, err := cl.Decompose(ctx, client.Batch{Model: model, Layout: client.NSK, Passes: 2, Inputs: 1,
					Values: slices.Concat(low, low), Reconnect: c.how})
				if c.code == codes.OK {
					ok(t, err)
					if len(results) != 1 || !results[0].Retained() {
						t.Errorf("results %+v, expected one retained", results)
					}
				} else if err == nil || status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, expected code %v, %q", err, c.code, c.want)
				}
				if c.calls != 0 && calls != c.calls {
					t.Errorf("%d calls, expected %d", calls, c.calls)
				}
			})
		})
	}
}
