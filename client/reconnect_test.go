package client_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// TestReconnect breaks the first stream in each way, when some inputs are answered. Every input must
// get one answer, on its own passes in their order. TestSimulatedClients of package server breaks
// streams of real daemons at random.
func TestReconnect(t *testing.T) {
	once := func(is func() bool) func() bool {
		var done atomic.Bool
		return func() bool { return is() && done.CompareAndSwap(false, true) }
	}
	at := func(err error) func(*fake) {
		return func(f *fake) {
			first := once(func() bool { return true })
			f.at = func(m moment) error {
				if m == answered && first() {
					return err
				}
				return nil
			}
		}
	}
	for name, breaks := range map[string]func(*fake){
		"status": at(errGone),
		"kill":   at(errKill),
		"busy":   at(errBusy),
		"drains": func(f *fake) {
			var groups atomic.Int64
			f.drains = once(func() bool { return groups.Add(1) == 2 })
		},
		"no room": func(f *fake) {
			first := once(func() bool { return true })
			f.crowds = func(id string) bool { return id == "b" && first() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			pass := func(p int, rows ...int) (values []float32) {
				for _, row := range rows {
					values = append(values, float32(row), float32(p), 0)
				}
				return values
			}
			f := newFake(3)
			breaks(f)
			f.finished = func(in *fakeInput) {
				for p, values := range in.passes {
					if want := pass(p, int(in.id[0]-'a')); !slices.Equal(values, want) {
						f.fault("pass %d of %s is %v, expected %v", p, in.id, values, want)
					}
				}
			}
			f.deliver = func(send send, r *reply) error { // in another order, and with several policies
				slices.Reverse(r.Results)
				r.Policies = []*ckdv1.PolicyRef{{Hash: "another"}, fakePolicy}
				for _, result := range r.GetResults() {
					result.Policy = 1
				}
				return send(r)
			}
			s := f.session(t, client.SessionConfig{Detail: client.Vectors, Reconnect: hasty})
			g, other := open(t, s, "a", "b", "c"), open(t, s, "d")
			ok(t, g.SendPasses(2, append(pass(0, 0, 1, 2), pass(1, 0, 1, 2)...)))
			ok(t, g.SendRows([]int{0}, pass(2, 0)))
			ok(t, other.SendPasses(3, append(append(pass(0, 3), pass(1, 3)...), pass(2, 3)...)))
			ok(t, g.SendRows([]int{2, 1}, pass(2, 2, 1)))
			for i, r := range append(wait(t, g), wait(t, other)...) {
				if r.Err != nil || r.ID != string(rune('a'+i)) || r.Policy.GetHash() != "abc" || !slices.Equal(r.Decomposition.GetMean(), []float64{float64(i), 1, 0}) {
					t.Errorf("input %d: %+v", i, r)
				}
			}
			ok(t, s.Close())
			if want := int64(2); name != "no room" && f.streams.Load() != want {
				t.Errorf("%d streams, expected %d", f.streams.Load(), want)
			}
		})
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
				batch := oneInput()
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
