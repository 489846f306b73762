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

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// hasty tries again almost at once, and for longer than any test takes.
var hasty = client.Reconnect{Limit: time.Minute, MaxDelay: time.Millisecond}

var (
	errGone  = status.Error(codes.Unavailable, "the daemon is gone")
	errFull  = fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS, "no room for a stream", nil).Err()
	errBusy  = busyFor(time.Millisecond)
	errLarge = fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "too many inputs", nil).Err()
	errSlow  = fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_SEND_STALLED, "results were not read", nil).Err()
)

// busyFor returns the error of an overloaded daemon.
func busyFor(delay time.Duration) error {
	return retryIn(delay, fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, "too many calls", nil)).Err()
}

// load holds what callers send on a session and what they must get: inputs with different numbers
// of passes, where no two inputs have the same passes.
type load struct {
	groups [][]string             // ids of each group
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

// decided checks the passes that the daemon has when it decides an input.
func (l *load) decided(in *fakeInput) {
	if !slices.EqualFunc(in.passes, l.passes[in.id], slices.Equal[[]float32]) {
		l.fault("the daemon decides on %s with passes %v, expected %v", in.id, in.passes, l.passes[in.id])
	}
}

// send sends a group: each pass by rows in random order, or for all inputs at once if all have it.
// It finishes the inputs that the daemon does not; with close, those with the most passes are left
// to Close.
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
			clear(values) // the caller may change its slice
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

// check expects exactly one answer for every input, the right one.
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

// run lets several callers send the load on one session and returns what went wrong. With
// leaveToClose, some inputs wait for Close.
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

// breaker breaks the streams of a fake at random, and refuses inputs and groups. It spares the first
// stream until it is welcomed, because Session does not try for it again.
type breaker struct {
	mu      sync.Mutex // guards the fields below
	random  *rand.Rand
	oneIn   int // a break in so many boundaries
	left    int // breaks to come
	spare   bool
	happens *atomic.Int64 // counts breaks
}

// breakRandomly makes a fake break its streams as often as drawn.
func breakRandomly(rt *rapid.T, f *fake, random *rand.Rand, happens *atomic.Int64) {
	b := &breaker{random: random, spare: true, happens: happens}
	b.oneIn = rapid.IntRange(2, 12).Draw(rt, "a break in so many boundaries")
	b.left = rapid.IntRange(0, 20).Draw(rt, "breaks")
	f.at = func(m moment) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.spare = b.spare && m <= welcomed; !b.breaks() {
			return nil
		}
		return []error{errGone, errKill, draining.Err(), errBusy}[random.IntN(4)]
	}
	refuses := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.breaks()
	}
	f.crowds, f.drains = func(string) bool { return refuses() }, refuses
}

// breaks reports whether to break something now. The caller holds mu.
func (b *breaker) breaks() bool {
	if b.spare || b.left == 0 || b.random.IntN(b.oneIn) > 0 {
		return false
	}
	b.left--
	b.happens.Add(1)
	return true
}

// scatter makes the daemon answer in any order, in several messages with several policies.
func scatter(f *fake, seed uint64) {
	f.deliver = func(send send, r *reply) error {
		random := rand.New(rand.NewPCG(seed, uint64(len(r.Results))))
		random.Shuffle(len(r.Results), func(i, j int) { r.Results[i], r.Results[j] = r.Results[j], r.Results[i] })
		for len(r.Results) > 1 {
			first := r.Results[0]
			first.Policy, r.Results = 1, r.Results[1:]
			if err := send(&reply{Policies: []*ckdv1.PolicyRef{{Version: "other"}, fakePolicy}, Results: []*ckdv1.Result{first}}); err != nil {
				return err
			}
		}
		return send(r)
	}
}

// TestReconnectRandomly checks that every input gets one answer, on its own passes in their order,
// however often the stream breaks, whether or not answers were lost, and in whatever order they come.
func TestReconnectRandomly(t *testing.T) {
	var broke atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		expected := rapid.SampledFrom([]int{0, 3}).Draw(rt, "expected passes")
		leaveToClose := expected == 0 && rapid.Bool().Draw(rt, "Close finishes")
		random := rand.New(rand.NewPCG(seed, 0))
		l := newLoad(random, rapid.IntRange(1, 6).Draw(rt, "groups"), 8, expected)

		f := newFake(uint32(expected))
		scatter(f, seed)
		breakRandomly(rt, f, random, &broke)
		f.info.Limits.MessageBytes = rapid.Uint32Range(250, 500).Draw(rt, "message bytes")
		if faults := l.run(f, client.SessionConfig{Reconnect: hasty}, seed, leaveToClose); len(faults) > 0 {
			rt.Fatal(strings.Join(faults, "\n"))
		}
	})
	if broke.Load() == 0 {
		t.Error("nothing broke")
	}
}

// TestReconnectNot checks the errors that end the session. The table says what inputs without an
// answer get.
func TestReconnectNot(t *testing.T) {
	const (
		changed = ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED
		stalled = ckdv1.ErrorReason_ERROR_REASON_SEND_STALLED
		tooMany = ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS
		busy    = ckdv1.ErrorReason_ERROR_REASON_OVERLOADED
		drained = ckdv1.ErrorReason_ERROR_REASON_DRAINING
	)
	terms := func(change func(*ckdv1.StreamInfo)) func(*fake) { return func(f *fake) { f.terms = change } }
	at := func(act func(moment) error) func(*fake) { return func(f *fake) { f.at = act } }
	for _, c := range []struct {
		name    string
		how     client.Reconnect
		breaks  error // error of the first stream; nil for a stream that end ends
		end     func(*fake, context.CancelFunc)
		reopens func(*fake) // how later streams differ
		streams int64       // 0 allows any number
		want    fault
	}{
		{name: "policy removed", breaks: fail(codes.FailedPrecondition, changed, "the policy was removed", nil).Err(),
			streams: 1, want: fault{codes.FailedPrecondition, changed, "the policy was removed"}},
		{name: "stalled", breaks: errSlow, streams: 1, want: fault{codes.ResourceExhausted, stalled, ""}},
		{name: "a limit that stays", breaks: errLarge, streams: 1, want: fault{codes.ResourceExhausted, tooMany, ""}},
		{name: "token refused", breaks: status.Error(codes.Unauthenticated, "revoked"), streams: 1,
			want: fault{codes.Unauthenticated, 0, "revoked"}},
		{name: "full for long", breaks: busyFor(time.Hour), streams: 1,
			want: fault{codes.ResourceExhausted, busy, "to be tried again in 1h0m0s, later than the limit of 30s"}},
		{name: "disabled", how: client.Reconnect{Disabled: true}, breaks: errGone, streams: 1,
			want: fault{codes.Unavailable, 0, "the daemon is gone"}},
		{name: "other classes", breaks: errGone, streams: 2,
			reopens: terms(func(i *ckdv1.StreamInfo) { i.Classes[1], i.Classes[2] = i.Classes[2], i.Classes[1] }),
			want:    fault{codes.FailedPrecondition, changed, `classes ["normal" "pathological" "suspect"], expected ["normal"`}},
		{name: "other kind", breaks: errGone, streams: 2,
			reopens: terms(func(i *ckdv1.StreamInfo) { i.Kind = ckdv1.Kind_KIND_LOGITS }),
			want:    fault{codes.FailedPrecondition, changed, "kind KIND_LOGITS, expected KIND_PROBABILITIES"}},
		{name: "other passes", breaks: errGone, streams: 2,
			reopens: terms(func(i *ckdv1.StreamInfo) { i.ExpectedPasses = 5 }),
			want:    fault{codes.FailedPrecondition, changed, "5 passes, expected 2"}},
		{name: "small messages", breaks: errGone, streams: 2,
			reopens: terms(func(i *ckdv1.StreamInfo) { i.Limits.MessageBytes = 130 }), want: saying("messages of 130 bytes, too few")},
		{name: "model unknown elsewhere", breaks: errGone, streams: 2, want: fault{codes.NotFound, 0, "elsewhere"},
			reopens: at(func(moment) error { return status.Error(codes.NotFound, "unknown elsewhere") })},
		{name: "gone", how: client.Reconnect{Limit: 20 * time.Millisecond}, breaks: errKill,
			reopens: at(func(moment) error { return errGone }), want: fault{codes.Unavailable, 0, "tried again for 20ms"}},
		{name: "broken at once", how: client.Reconnect{Limit: 20 * time.Millisecond},
			breaks: draining.Err(), want: fault{codes.Unavailable, drained, "the daemon is stopping; tried again for 20ms"},
			reopens: at(func(m moment) error {
				if m == welcomed {
					return draining.Err()
				}
				return nil
			})},
		{name: "the session's context", end: func(_ *fake, cancel context.CancelFunc) { cancel() }, streams: 1,
			want: fault{code: codes.Canceled}},
		{name: "Client.Close", end: func(f *fake, _ context.CancelFunc) { _ = f.client.Close() }, streams: 1,
			want: fault{code: codes.Canceled}},
		{name: "a reply that would be too large", end: func(*fake, context.CancelFunc) {}, streams: 1,
			want: fault{code: codes.ResourceExhausted, reason: ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			if c.want.reason == ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE {
				f.deliver = func(send send, r *reply) error {
					tooLarge := fail(c.want.code, c.want.reason, "too large", nil).Proto()
					return errors.Join(send(r), send(&reply{Faults: []*rpcstatus.Status{tooLarge}}))
				}
			}
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
				case reopening.Load():
					return then.reach(m)
				case m == answered && c.breaks != nil:
					reopening.Store(true)
					return c.breaks
				}
				return nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := f.dial(t).Session(ctx, client.SessionConfig{Model: model, Reconnect: c.how})
			ok(t, err)
			g, unsent := open(t, s, "a", "b"), open(t, s, "c")
			ok(t, g.Send(every(low, 2)))
			ok(t, g.SendRows([]int{0}, low))
			for range g.Results() {
				if c.end != nil {
					c.end(f, cancel)
				}
				break
			}
			results := wait(t, g)
			if e := (*client.InputError)(nil); !results[0].Retained() && (!errors.As(results[0].Err, &e) || !errors.Is(c.breaks, errKill)) {
				t.Errorf("result %+v, expected the answer that came", results[0])
			}
			unanswered(t, c.want, append(results[1:], wait(t, unsent)...)...)
			for name, err := range map[string]error{"Err": s.Err(), "Close": s.Close(), "Send": g.Send(every(low, 2)), "Open": openOne(s)} {
				c.want.check(t, name, err)
			}
			if n := f.streams.Load(); c.streams != 0 && n != c.streams {
				t.Errorf("%d streams, expected %d", n, c.streams)
			}
		})
	}
}

// TestReconnectWithoutInputs checks that a session without waiting inputs survives an outage longer
// than the limit.
func TestReconnectWithoutInputs(t *testing.T) {
	f := newFake(2)
	gone, tried, back := f.outOfReach(errGone)
	how := client.Reconnect{Limit: 5 * time.Millisecond, MaxDelay: time.Millisecond}
	s := f.session(t, client.SessionConfig{Reconnect: how})
	started := time.Now()
	gone()
	until(t, "the limit is over", func() bool { return tried.Load() >= 5 && time.Since(started) >= 4*how.Limit })
	ok(t, s.Err())
	back()
	// The daemon is back once the session has another stream; until then the limit would count.
	until(t, "another stream", func() bool { return f.streams.Load() == tried.Load()+2 })
	decideOne(t, s)
	ok(t, s.Close())
}

// TestCloseWhileReconnecting checks that Close ends at once where no input waits, and else when the
// daemon is back or the context ends.
func TestCloseWhileReconnecting(t *testing.T) {
	for _, c := range []struct {
		name string
		open bool // whether an input waits
		end  func(back, cancel func())
		code codes.Code
	}{
		{"nothing waits", false, func(_, _ func()) {}, codes.OK},
		{"the daemon is back", true, func(back, _ func()) { back() }, codes.OK},
		{"the context ends", true, func(_, cancel func()) { cancel() }, codes.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(0)
			gone, tried, back := f.outOfReach(errGone)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := f.dial(t).Session(ctx, client.SessionConfig{Model: model, Reconnect: hasty})
			ok(t, err)
			over := open(t, s, "over")
			ok(t, over.Finish())
			wait(t, over)
			var sent, unsent *client.Group
			if c.open {
				sent, unsent = open(t, s, "a"), open(t, s, "b")
				ok(t, sent.SendPasses(2, every(low, 2)))
			}
			gone()
			until(t, "the second attempt", func() bool { return tried.Load() >= 2 })
			closed := make(chan error)
			go func() { closed <- s.Close() }()
			until(t, "Close has begun", func() bool { return errors.Is(over.Send(low), client.ErrClosed) })
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

// TestCloseAmongSends checks that Close keeps what was sent before it, and nothing that comes
// later.
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

// TestDrainingIsAnAnswerWhereReconnectIsOff checks that inputs which a stopping daemon refuses get
// its error if the session may not reconnect.
func TestDrainingIsAnAnswerWhereReconnectIsOff(t *testing.T) {
	f := newFake(2)
	f.drains = func() bool { return true }
	s := f.session(t, client.SessionConfig{Reconnect: client.Reconnect{Disabled: true}})
	g := open(t, s, "a")
	ok(t, g.Send(low))
	refused(t, ckdv1.ErrorReason_ERROR_REASON_DRAINING, wait(t, g)...)
	if err := s.Close(); status.Code(err) != codes.Unavailable {
		t.Errorf("Close: %v, expected Unavailable", err)
	}
}

// TestReconnectArguments checks that negative times are refused.
func TestReconnectArguments(t *testing.T) {
	c := newFake(2).dial(t)
	for _, how := range []client.Reconnect{{Limit: -1}, {MaxDelay: -1}} {
		_, session := c.Session(t.Context(), client.SessionConfig{Model: model, Reconnect: how})
		_, unary := c.Decompose(t.Context(), client.Batch{Passes: 2, Reconnect: how})
		saying("expected none below 0").check(t, "Session", session)
		saying("expected none below 0").check(t, "Decompose", unary)
	}
}

// TestDecomposeTriesAgain checks which errors make Decompose call again.
func TestDecomposeTriesAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		how    client.Reconnect
		errors []error // errors that the first calls return
		calls  int
		want   fault
	}{
		{"until it works", hasty, []error{errGone, draining.Err(), errBusy, errFull, crowded.Err()}, 6, fault{}},
		{"while the context lasts", hasty, []error{busyFor(30 * time.Second)}, 1,
			fault{codes.DeadlineExceeded, 0, "before that: too many calls"}},
		{"not where it is off", client.Reconnect{Disabled: true}, []error{errGone}, 1, fault{codes.Unavailable, 0, "the daemon is gone"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // synctest makes connecting instant
				f := newFake(0)
				calls := 0
				f.unary = func(r *ckdv1.DecomposeResponse) (*ckdv1.DecomposeResponse, error) {
					calls++
					if calls <= len(c.errors) {
						return nil, c.errors[calls-1]
					}
					return r, nil
				}
				batch := one()
				batch.Reconnect = c.how
				results, err := f.dial(t).Decompose(within(t, time.Second), batch)
				c.want.check(t, "Decompose", err)
				retained(t, results...)
				if calls != c.calls {
					t.Errorf("%d calls, expected %d", calls, c.calls)
				}
			})
		})
	}
}
