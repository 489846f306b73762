package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

var nan = float32(math.NaN())

// Rows of three classes that the fake's policy retains and defers.
var (
	low  = []float32{0.9, 0.1, 0}
	high = []float32{0.1, 0.9, 0}
)

type (
	reply = ckdv1.DecomposeStreamResponse
	send  = func(*reply) error
)

func open(t testing.TB, s *client.Session, ids ...string) *client.Group {
	t.Helper()
	g, err := s.Open(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func wait(t testing.TB, g *client.Group) []client.Result {
	t.Helper()
	results, err := g.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func inputError(t testing.TB, r client.Result) *client.InputError {
	t.Helper()
	var e *client.InputError
	if !errors.As(r.Err, &e) {
		t.Fatalf("result %+v has no *InputError", r)
	}
	if r.Decomposition != nil || r.Retained() {
		t.Errorf("result %+v has an error and an outcome", r)
	}
	return e
}

// canceledSoon is a context that ends while what waits for it still waits.
func canceledSoon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestSessionDecides(t *testing.T) {
	f := newFake(30)
	s := f.session(t, client.SessionConfig{Passes: 2, Detail: client.Vectors, InFlight: 10})
	if got := s.Info(); got.GetExpectedPasses() != 2 || len(got.GetClasses()) != 3 {
		t.Errorf("info %v, expected 2 passes and 3 classes", got)
	}
	ids := []string{"a0", "a1"}
	a, b := open(t, s, ids...), open(t, s, "")
	clear(ids) // ours again
	ok(t, b.Send(low))
	ok(t, a.SendPasses(2, slices.Concat(low, high, low, low)))
	ok(t, b.Send(low))

	got := wait(t, a)
	if len(got) != 2 || !got[0].Retained() || got[1].Retained() {
		t.Fatalf("results %+v, expected the first of two retained", got)
	}
	for i, r := range got {
		if want := fmt.Sprintf("a%d", i); r.ID != want || r.Row != i || r.Err != nil {
			t.Errorf("result %d is %+v, expected id %q", i, r, want)
		}
		if !proto.Equal(r.Policy, fakePolicy) {
			t.Errorf("result %d names policy %v, expected %v", i, r.Policy, fakePolicy)
		}
	}
	// (0.9f + 0.1f)/2 in float64, as the fake computes it.
	if got, want := got[1].Decomposition.GetMean()[1], (float64(float32(0.9))+float64(float32(0.1)))/2; got != want {
		t.Errorf("mean %v, expected %v", got, want)
	}
	clear(got)
	if got := wait(t, a); !got[0].Retained() {
		t.Errorf("results %+v, expected that Wait's slice is its caller's own", got)
	}
	if got := wait(t, b); len(got) != 1 || !got[0].Retained() {
		t.Errorf("results %+v, expected one retained", got)
	}
	ok(t, s.Close())
	ok(t, s.Err())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blocks != 3 {
		t.Errorf("%d blocks, expected one for each call", f.blocks)
	}
}

// Whatever the shapes, and however the daemon orders and cuts its answers, every
// input is answered once, on the passes that were sent for it.
func TestSessionAnyShape(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		classes := rapid.IntRange(2, 40).Draw(rt, "classes")
		passes := rapid.IntRange(2, 6).Draw(rt, "passes")
		f := newFake(uint32(passes))
		f.info.Classes = make([]string, classes)
		f.info.Limits.MessageBytes = uint32(rapid.IntRange(128+4*classes+5, 128+4*classes*40).Draw(rt, "message bytes"))
		seed := rapid.Uint64().Draw(rt, "seed")
		shuffle(f, seed)
		c, stop := f.start()
		defer stop()
		s, err := c.Session(context.Background(), client.SessionConfig{Model: model, Detail: client.Vectors})
		if err != nil {
			rt.Fatal(err)
		}
		random := rand.New(rand.NewPCG(seed, 1))
		type sent struct {
			group  *client.Group
			values [][][]float32 // [input][pass][class]
		}
		var all []sent
		// No more than fits the window, as nothing is answered before its last pass.
		for range rapid.IntRange(1, 4).Draw(rt, "groups") {
			room := int(f.info.Limits.MessageBytes) - 128
			width := rapid.IntRange(2, min(100, room-6)).Draw(rt, "bytes of an id")
			most := min(16, room/(width+6))
			ids := make([]string, rapid.IntRange(1, most).Draw(rt, "inputs"))
			for i := range ids {
				ids[i] = fmt.Sprintf("%0*d", width, i)
			}
			g, err := s.Open(context.Background(), ids)
			if err != nil {
				rt.Fatal(err)
			}
			values := make([][][]float32, len(ids))
			for i := range values {
				for range passes {
					row := make([]float32, classes)
					for c := range row {
						row[c] = random.Float32()
					}
					values[i] = append(values[i], row)
				}
			}
			all = append(all, sent{g, values})
		}
		for _, g := range all {
			for p := 0; p < passes; {
				n := rapid.IntRange(1, passes-p).Draw(rt, "passes at once")
				if n == 1 && rapid.Bool().Draw(rt, "by rows") {
					rows := random.Perm(len(g.values))
					cut := random.IntN(len(rows) + 1)
					for _, rows := range [][]int{rows[:cut], rows[cut:]} {
						var flat []float32
						for _, r := range rows {
							flat = append(flat, g.values[r][p]...)
						}
						if len(rows) > 0 {
							err = errors.Join(err, g.group.SendRows(rows, flat))
						}
					}
				} else {
					var flat []float32
					for q := range n {
						for _, in := range g.values {
							flat = append(flat, in[p+q]...)
						}
					}
					err = g.group.SendPasses(n, flat)
					clear(flat) // ours again
				}
				if err != nil {
					rt.Fatal(err)
				}
				p += n
			}
		}
		if err := s.Close(); err != nil {
			rt.Fatal(err)
		}
		for _, g := range all {
			seen := map[int]bool{}
			for r := range g.group.Results() {
				if r.Err != nil || seen[r.Row] || !slices.Equal(r.Decomposition.GetMean(), means(g.values[r.Row])) {
					rt.Fatalf("result %+v, expected means %v, once", r, means(g.values[r.Row]))
				}
				seen[r.Row] = true
			}
			if len(seen) != len(g.values) {
				rt.Fatalf("%d results, expected %d", len(seen), len(g.values))
			}
		}
		if len(f.faults) > 0 {
			rt.Fatal(f.faults)
		}
	})
}

// shuffle has the daemon keep answers back now and then, mix them, and cut them
// into several messages with several policies.
func shuffle(f *fake, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	var held []*ckdv1.Result
	f.half = func(send send) error {
		random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		for len(held) > 0 {
			n := 1 + random.IntN(len(held))
			part := &reply{Policies: []*ckdv1.PolicyRef{{Version: "other"}, fakePolicy}, Results: held[:n]}
			for _, r := range part.Results {
				r.Policy = 1
			}
			if err := send(part); err != nil {
				return err
			}
			held = held[n:]
		}
		return nil
	}
	f.deliver = func(send send, r *reply) error {
		if r.GetInfo() != nil {
			return send(r)
		}
		held = append(held, r.GetResults()...)
		if random.IntN(2) == 0 {
			return nil
		}
		return f.half(send)
	}
}

func TestSessionManyGoroutines(t *testing.T) {
	f := newFake(3)
	f.info.Limits.OpenInputsPerStream = 20
	f.info.Limits.OpenGroupsPerStream = 5
	s := f.session(t, client.SessionConfig{})
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for batch := range 10 {
				ids := make([]string, 1+(worker+batch)%7)
				var pass []float32
				for i := range ids {
					ids[i] = fmt.Sprintf("%d-%d-%d", worker, batch, i)
					pass = append(pass, [][]float32{low, high}[(worker+i)%2]...)
				}
				results, err := s.Do(t.Context(), ids, func(yield func([]float32) bool) {
					for range 3 {
						if !yield(pass) {
							return
						}
					}
				})
				if err != nil || len(results) != len(ids) {
					t.Errorf("%d results, expected %d, error %v", len(results), len(ids), err)
					return
				}
				for i, r := range results {
					if r.ID != ids[i] || r.Err != nil || r.Retained() != ((worker+i)%2 == 0) {
						t.Errorf("result %+v, expected id %s", r, ids[i])
					}
				}
			}
		})
	}
	wg.Wait()
	ok(t, s.Close())
}

func TestOpenWaitsForRoom(t *testing.T) {
	for _, c := range []struct {
		name     string
		inFlight int
		limits   *ckdv1.Limits
		window   int
	}{
		{"the caller's", 3, &ckdv1.Limits{OpenInputsPerStream: 5}, 3},
		{"the daemon's", 5, &ckdv1.Limits{OpenInputsPerStream: 3}, 3},
		{"the daemon's by default", 0, &ckdv1.Limits{OpenInputsPerStream: 3}, 3},
		{"the daemon's of groups", 0, &ckdv1.Limits{OpenInputsPerStream: 9, OpenGroupsPerStream: 1}, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			f.info.Limits = c.limits
			f.info.Limits.MessageBytes = 1 << 20
			slow := make(chan struct{})
			f.deliver = func(send send, r *reply) error {
				if r.GetInfo() == nil {
					<-slow
				}
				return send(r)
			}
			s := f.session(t, client.SessionConfig{InFlight: c.inFlight})
			if s.Window() != c.window {
				t.Errorf("window %d, expected %d", s.Window(), c.window)
			}
			a := open(t, s, "a", "b")
			ok(t, a.SendPasses(2, slices.Concat(low, low, low, low)))
			if _, err := s.Open(canceledSoon(t), []string{"c", "d"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v, expected the context's", err)
			}
			// What gave up holds no room, and an answer makes some.
			opened := make(chan *client.Group)
			go func() {
				g, err := s.Open(t.Context(), []string{"c", "d"})
				if err != nil {
					t.Error(err)
				}
				opened <- g
			}()
			close(slow)
			wait(t, a)
			b := <-opened
			if b == nil {
				return
			}
			ok(t, b.SendPasses(2, slices.Concat(low, low, low, low)))
			wait(t, b)
			ok(t, s.Close())
		})
	}
}

func TestOpenThatGaveUpHoldsNoRoom(t *testing.T) {
	f := newFake(2)
	f.info.Limits.OpenGroupsPerStream = 3
	s := f.session(t, client.SessionConfig{InFlight: 3})
	a, b := open(t, s, "a"), open(t, s, "b")
	for range 5 {
		if _, err := s.Open(canceledSoon(t), []string{"c", "d"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, expected the context's", err)
		}
	}
	c := open(t, s, "c")
	for _, g := range []*client.Group{a, b, c} {
		ok(t, g.SendPasses(2, slices.Concat(low, low)))
		wait(t, g)
	}
	ok(t, s.Close())
}

func TestOpenWaitingIsEnded(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*fake, *client.Session)
		want func(error) bool
	}{
		{"by Close", func(_ *fake, s *client.Session) { _ = s.Close() },
			func(err error) bool { return errors.Is(err, client.ErrClosed) }},
		{"by the end of the stream", func(f *fake, _ *client.Session) { f.server.Stop() },
			func(err error) bool { return status.Code(err) == codes.Unavailable }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			s := f.session(t, client.SessionConfig{InFlight: 1, Reconnect: client.Reconnect{Disabled: true}})
			g := open(t, s, "a")
			failed := make(chan error)
			for range 3 {
				go func() {
					// Either it waits, or it comes after the end: the same error.
					_, err := s.Open(t.Context(), []string{"b"})
					failed <- err
				}()
			}
			if _, err := s.Open(canceledSoon(t), []string{"c"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v, expected the context's", err)
			}
			c.end(f, s)
			for range 3 {
				if err := <-failed; !c.want(err) {
					t.Errorf("unexpected error %v", err)
				}
			}
			_ = inputError(t, wait(t, g)[0])
			if err := g.Send(low); !c.want(err) {
				t.Errorf("Send: unexpected error %v", err)
			}
		})
	}
}

func TestRowsFinishOnTheirOwn(t *testing.T) {
	f := newFake(0)
	s := f.session(t, client.SessionConfig{})
	g := open(t, s, "a", "b", "c")
	ok(t, g.SendPasses(2, slices.Concat(low, high, low, low, high, low)))
	ok(t, g.SendRows([]int{2, 0}, slices.Concat(high, low)))
	ok(t, g.Finish(2))
	ok(t, g.Finish(1))
	var order []string
	for r := range g.Results() {
		order = append(order, fmt.Sprintf("%s %d %v", r.ID, r.Decomposition.GetPasses(), r.Retained()))
		if r.ID == "b" {
			ok(t, g.Send(slices.Concat(low, low, low))) // late for two of them
			ok(t, g.Finish())
		}
	}
	if want := []string{"c 3 false", "b 2 false", "a 4 true"}; !slices.Equal(order, want) {
		t.Errorf("results %v, expected %v", order, want)
	}
	<-g.Done()
	ok(t, g.Send(slices.Concat(low, low, low)))
	for range g.Results() { // again, and given up
		break
	}
	ok(t, s.Close())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blocks != 6 {
		t.Errorf("%d blocks, expected 6: nothing is sent for an answered group", f.blocks)
	}
}

func TestCloseFinishesWhatIsOpen(t *testing.T) {
	f := newFake(30)
	s := f.session(t, client.SessionConfig{})
	enough, few, none := open(t, s, "enough"), open(t, s, "few"), open(t, s, "none", "none2")
	ok(t, few.Send(low))
	ok(t, enough.SendPasses(2, slices.Concat(low, low)))
	ok(t, s.Close())
	if r := wait(t, enough)[0]; !r.Retained() {
		t.Errorf("result %+v, expected it retained", r)
	}
	for _, r := range slices.Concat(wait(t, few), wait(t, none)) {
		if e := inputError(t, r); e.Reason != ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES || e.Unanswered {
			t.Errorf("%s: %v, expected too few passes", r.ID, e)
		}
	}
	ok(t, s.Close())
	for name, err := range map[string]error{
		"Send": openOne(s), "Open": openOne(s), "Finish": none.Finish(),
	} {
		if !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s: %v, expected ErrClosed", name, err)
		}
	}
}

func openOne(s *client.Session) error {
	_, err := s.Open(context.Background(), []string{"x"})
	return err
}

func TestInputErrors(t *testing.T) {
	f := newFake(2)
	s := f.session(t, client.SessionConfig{})
	g := open(t, s, "good", "bad")
	ok(t, g.Send(slices.Concat(low, low)))
	ok(t, g.Send(slices.Concat(low, []float32{0.1, 0.2, nan})))
	results := wait(t, g)
	if !results[0].Retained() {
		t.Errorf("result %+v, expected it retained: errors are of one input", results[0])
	}
	e := inputError(t, results[1])
	if e.Code != codes.InvalidArgument || e.Reason != ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE || e.Unanswered ||
		e.Fields["pass"] != "1" || e.Fields["class"] != "2" || e.Fields["value"] != "NaN" ||
		e.Fields["expected"] != "a finite value" {
		t.Errorf("error %+v, expected code, reason and fields of a value that is not finite", e)
	}
	if want := "pass 1: class 2 is NaN, expected a finite value (InvalidArgument, NOT_FINITE)"; e.Error() != want {
		t.Errorf("error %q, expected %q", e, want)
	}
	if status.Code(e) != codes.InvalidArgument || client.Reason(fmt.Errorf("wrapped: %w", e)) != e.Reason {
		t.Errorf("the status of %v does not have its code and reason", e)
	}
	ok(t, s.Close())
}

// What has no answer when the stream ends gets an error, what has one keeps it.
func TestStreamBreaks(t *testing.T) {
	drain := fail(codes.FailedPrecondition, ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED, "the policy changed its classes", nil)
	for _, c := range []struct {
		name    string
		deliver error // after the first answer
		end     func(f *fake, cancel func())
		code    codes.Code
		reason  ckdv1.ErrorReason
	}{
		{name: "by a status", deliver: drain.Err(), code: codes.FailedPrecondition,
			reason: ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED},
		{name: "by the end of the daemon", end: func(f *fake, _ func()) { f.server.Stop() }, code: codes.Unavailable},
		{name: "by the session's context", end: func(_ *fake, cancel func()) { cancel() }, code: codes.Canceled},
		{name: "by Client.Close", end: func(f *fake, _ func()) { _ = f.client.Close() }, code: codes.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			f.deliver = func(send send, r *reply) error {
				if err := send(r); err != nil || r.GetInfo() != nil {
					return err
				}
				return c.deliver
			}
			var stop func()
			f.client, stop = f.start()
			defer stop()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := f.client.Session(ctx, client.SessionConfig{
				Model: model, Reconnect: client.Reconnect{Disabled: c.code == codes.Unavailable},
			})
			ok(t, err)
			sent, unsent := open(t, s, "a", "b"), open(t, s, "c")
			results := sent.Results()
			ok(t, sent.Send(slices.Concat(low, low)))
			ok(t, sent.SendRows([]int{0}, low))
			for r := range results {
				if !r.Retained() || r.ID != "a" {
					t.Errorf("result %+v, expected the answer that came", r)
				}
				break
			}
			if c.end != nil {
				c.end(f, cancel)
			}
			if r := wait(t, sent)[0]; !r.Retained() {
				t.Errorf("result %+v, expected the answer that came", r)
			}
			for _, r := range append(wait(t, sent)[1:], wait(t, unsent)...) {
				e := inputError(t, r)
				if e.Code != c.code || e.Reason != c.reason || !e.Unanswered || !strings.HasPrefix(e.Error(), "no answer: ") {
					t.Errorf("%s: error %+v, expected code %v, reason %v, unanswered", r.ID, e, c.code, c.reason)
				}
			}
			for name, err := range map[string]error{
				"Err": s.Err(), "Close": s.Close(), "Send": sent.Send(slices.Concat(low, low)), "Open": openOne(s),
			} {
				if status.Code(err) != c.code || client.Reason(err) != c.reason {
					t.Errorf("%s: %v, expected code %v, reason %v", name, err, c.code, c.reason)
				}
			}
		})
	}
}

// A daemon that stops reading blocks writers, and only them.
func TestSendBlockedByTheDaemon(t *testing.T) {
	f := newFake(0)
	stuck := make(chan struct{})
	f.deliver = func(send send, r *reply) error {
		if r.GetInfo() == nil {
			<-stuck
		}
		return send(r)
	}
	c, stop := f.start()
	defer stop()
	defer close(stuck)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.Session(ctx, client.SessionConfig{Model: model})
	ok(t, err)
	g := open(t, s, make([]string, 32)...)
	ok(t, g.Finish(0)) // answered, which gets stuck
	blocked := make(chan error)
	go func() {
		pass := make([]float32, 32*3)
		for {
			if err := g.Send(pass); err != nil {
				blocked <- err
				return
			}
		}
	}()
	if _, err := s.Open(canceledSoon(t), make([]string, 33)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, expected the context's", err)
	}
	cancel()
	if err := <-blocked; status.Code(err) != codes.Canceled {
		t.Errorf("error %v, expected that the session was cancelled", err)
	}
	wait(t, g)
}

// A message that grpc refuses on this side ends the stream, with its reason.
func TestSendFailsHere(t *testing.T) {
	f := newFake(2)
	c, stop := f.start(client.WithDialOptions(grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(50))))
	defer stop()
	s, err := c.Session(t.Context(), client.SessionConfig{Model: model})
	ok(t, err)
	g := open(t, s, "a")
	err = g.SendPasses(10, make([]float32, 30))
	for name, err := range map[string]error{"SendPasses": err, "Err": s.Err(), "result": wait(t, g)[0].Err, "Close": s.Close()} {
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") {
			t.Errorf("%s: %v, expected that the message is too large", name, err)
		}
	}
}

// Row numbers take their place in a message as well.
func TestManyRows(t *testing.T) {
	f := newFake(2)
	f.info.Limits.OpenInputsPerStream = 1000
	f.info.Limits.MessageBytes = 6200 // ids without text take 6000 at most
	s := f.session(t, client.SessionConfig{})
	g := open(t, s, make([]string, 1000)...)
	rows := make([]int, 1000)
	for i := range rows {
		rows[i] = 999 - i
	}
	for range 2 {
		ok(t, g.SendRows(rows, slices.Repeat(low, 1000)))
	}
	for _, r := range wait(t, g) {
		if !r.Retained() {
			t.Fatalf("result %+v, expected it retained", r)
		}
	}
	ok(t, s.Close())
}

func TestProtocolErrors(t *testing.T) {
	anError := func(reason ckdv1.ErrorReason, group uint64) *reply {
		return &reply{Faults: []*rpcstatus.Status{fail(codes.InvalidArgument, reason, fmt.Sprintf("group %d refused", group), nil).Proto()}}
	}
	change := func(do func(*ckdv1.Result)) func(send, *reply) error {
		return func(send send, r *reply) error {
			do(r.Results[0])
			return send(r)
		}
	}
	instead := func(r *reply) func(send, *reply) error {
		return func(send send, _ *reply) error { return send(r) }
	}
	for _, c := range []struct {
		name     string
		deliver  func(send, *reply) error // of the first answer
		want     string
		answered bool // whether the first answer stands
	}{
		{"answered twice", func(send send, r *reply) error {
			again := proto.CloneOf(r)
			if d := again.GetResults()[0].GetDecomposition().GetDecision(); d != nil { // none where the end finds an input without passes
				d.Action = ckdv1.Action_ACTION_DEFER
			}
			return errors.Join(send(r), send(again))
		}, "row 0 of group 1 is answered more than once", true},
		{"answered twice in one message", func(send send, r *reply) error {
			r.Results = append(r.Results, r.Results[0])
			return send(r)
		}, "row 0 of group 1 is answered more than once", true},
		{"unknown row", change(func(r *ckdv1.Result) { r.Row = 2 }), "row 2 of group 1 is answered, expected rows below 2", false},
		{"huge row", change(func(r *ckdv1.Result) { r.Row = math.MaxUint32 }), "row 4294967295 of group 1", false},
		{"unknown group", change(func(r *ckdv1.Result) { r.Group = 7 }), "group 7 is answered and was never opened", false},
		{"no group", change(func(r *ckdv1.Result) { r.Group = 0 }), "group 0 is answered and was never opened", false},
		{"another id", change(func(r *ckdv1.Result) { r.InputId = "b" }), `row 0 is answered as input "b", expected "a"`, false},
		{"no outcome", change(func(r *ckdv1.Result) { r.Outcome = nil }), "neither a decomposition nor an error", false},
		{"unknown policy", change(func(r *ckdv1.Result) { r.Policy = 1 }), `input "a" names policy 1 of 1`, false},
		{"a passes' group unknown", instead(anError(ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP, 1)),
			"refused a message: group 1 refused (InvalidArgument, UNKNOWN_GROUP)", false},
		{"a group that never was", instead(anError(ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP, 9)), "UNKNOWN_GROUP", false},
		{"an empty message", instead(anError(ckdv1.ErrorReason_ERROR_REASON_EMPTY_MESSAGE, 0)), "EMPTY_MESSAGE", false},
		{"another header", instead(anError(ckdv1.ErrorReason_ERROR_REASON_HEADER_CHANGED, 0)), "HEADER_CHANGED", false},
		{"an open group", instead(anError(ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN, 1)), "GROUP_OPEN", false},
		{"ended early", func(send, *reply) error { return errEnd }, "ended the stream before it was half-closed", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			f.deliver = func(send send, r *reply) error {
				if r.GetInfo() != nil {
					return send(r)
				}
				return c.deliver(send, r)
			}
			s := f.session(t, client.SessionConfig{})
			g := open(t, s, "a", "b")
			unsent := open(t, s, "c")
			ok(t, g.Send(slices.Concat(low, low)))
			ok(t, g.SendRows([]int{0}, low))
			results := wait(t, g)
			if results[0].Retained() != c.answered {
				t.Errorf("result %+v, expected an answer to stand: %v", results[0], c.answered)
			}
			for _, r := range append(results[1:], wait(t, unsent)...) {
				if e := inputError(t, r); e.Code != codes.Internal || !e.Unanswered || !strings.Contains(e.Error(), c.want) {
					t.Errorf("error %v, expected Internal with %q", e, c.want)
				}
			}
			var broken *client.ProtocolError
			if err := s.Err(); !errors.As(err, &broken) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected a *ProtocolError with %q", err, c.want)
			}
			if err := s.Close(); !errors.As(err, &broken) {
				t.Errorf("Close: %v, expected a *ProtocolError", err)
			}
			f.server.GracefulStop() // the daemon is not left with it
		})
	}
}

// The same after a group is complete, where its state is gone.
func TestProtocolErrorsAfterTheGroup(t *testing.T) {
	for _, c := range []struct {
		name, want string
		reason     ckdv1.ErrorReason
	}{
		{"answered twice", "group 1 is answered more than once in row 0", ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			f.half = func(send send) error {
				st := fail(codes.InvalidArgument, c.reason, "late", nil).Proto()
				return send(&reply{Results: []*ckdv1.Result{{Group: 1, InputId: "a", Outcome: &ckdv1.Result_Error{Error: st}}}})
			}
			s := f.session(t, client.SessionConfig{})
			g := open(t, s, "a")
			ok(t, g.SendPasses(2, slices.Concat(low, low)))
			if !wait(t, g)[0].Retained() {
				t.Error("not retained")
			}
			err := s.Close()
			if c.want == "" {
				ok(t, err)
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected %q", err, c.want)
			}
			if !wait(t, g)[0].Retained() {
				t.Error("the first answer does not stand")
			}
		})
	}
}

func TestHalfCloseWithoutAnswers(t *testing.T) {
	f := newFake(2)
	f.deliver = func(send send, r *reply) error {
		if r.GetInfo() != nil {
			return send(r)
		}
		return nil // never
	}
	s := f.session(t, client.SessionConfig{})
	g := open(t, s, "a")
	ok(t, g.SendPasses(2, slices.Concat(low, low)))
	var broken *client.ProtocolError
	if err := s.Close(); !errors.As(err, &broken) || !strings.Contains(err.Error(), "inputs unanswered") {
		t.Errorf("error %v, expected a *ProtocolError of inputs unanswered", err)
	}
	if e := inputError(t, wait(t, g)[0]); !e.Unanswered {
		t.Errorf("error %+v, expected it unanswered", e)
	}
}

func TestArguments(t *testing.T) {
	f := newFake(2)
	f.info.Limits.MessageBytes = 1000
	s := f.session(t, client.SessionConfig{InFlight: 4})
	g := open(t, s, "a", "b")
	open1 := func(ids ...string) error {
		_, err := s.Open(t.Context(), ids)
		return err
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{g.Send(low), "3 values, expected 1 passes x 2 inputs x 3 classes"},
		{g.SendPasses(0, nil), "0 passes, expected at least 1"},
		{g.SendPasses(2, slices.Concat(low, low)), "6 values, expected 2 passes x 2 inputs x 3 classes"},
		{g.SendPasses(4, slices.Concat(low, low)), "6 values, expected 4 passes"},
		{g.SendRows(nil, nil), "no rows, expected at least one"},
		{g.SendRows([]int{2}, low), "row 2, expected 0 to 1"},
		{g.SendRows([]int{-1}, low), "row -1, expected 0 to 1"},
		{g.SendRows([]int{1, 1}, slices.Concat(low, low)), "row 1 twice"},
		{g.SendRows([]int{1}, slices.Concat(low, low)), "6 values, expected 1 passes x 1 inputs x 3 classes"},
		{g.Finish(5), "row 5, expected 0 to 1"},
		{open1(), "a group of 0 inputs, expected 1 to 4"},
		{open1("1", "2", "3", "4", "5"), "a group of 5 inputs, expected 1 to 4"},
		{open1("\xff"), "expected UTF-8"},
		{open1(strings.Repeat("x", 1000)), "the ids of a group take 1006 bytes, expected at most 872"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v, expected %q", c.err, c.want)
		}
	}
	// None of it was sent, and none did harm.
	ok(t, g.SendPasses(2, slices.Concat(low, low, low, low)))
	for _, r := range wait(t, g) {
		if !r.Retained() {
			t.Errorf("result %+v, expected it retained", r)
		}
	}
	ok(t, s.Close())
}

func TestDoGivesUp(t *testing.T) {
	f := newFake(0)
	s := f.session(t, client.SessionConfig{InFlight: 1})
	if _, err := s.Do(t.Context(), []string{"a"}, slices.Values([][]float32{low, {1}})); err == nil ||
		!strings.Contains(err.Error(), "1 values") {
		t.Errorf("error %v, expected the wrong length", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.Do(ctx, []string{"a"}, func(yield func([]float32) bool) {
		yield(low)
		cancel()
		yield(low)
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected the context's", err)
	}
	// Neither keeps its room.
	r, err := s.Do(t.Context(), []string{"a"}, slices.Values([][]float32{low, low}))
	if err != nil || !r[0].Retained() {
		t.Errorf("result %+v, error %v, expected it retained", r, err)
	}
	ok(t, s.Close())
}

func TestDoFinishesWhatHasFewerPasses(t *testing.T) {
	f := newFake(30)
	s := f.session(t, client.SessionConfig{})
	r, err := s.Do(t.Context(), []string{"a"}, slices.Values([][]float32{low, low}))
	if err != nil || !r[0].Retained() {
		t.Errorf("result %+v, error %v, expected it retained", r, err)
	}
	ok(t, s.Close())
}

func TestSessionRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		config client.SessionConfig
		change func(*fake)
		code   codes.Code
		want   string
	}{
		{"unknown model", client.SessionConfig{Model: "other"}, nil, codes.NotFound, `no policy for model "other"`},
		{"passes", client.SessionConfig{Passes: -1}, nil, codes.Unknown, "-1 passes, expected 0 to"},
		{"window", client.SessionConfig{InFlight: -1}, nil, codes.Unknown, "-1 inputs in flight, expected 0 or more"},
		{"model no text", client.SessionConfig{Model: "\xff"}, nil, codes.Internal, "UTF-8"},
		{"ended", client.SessionConfig{Model: model}, func(f *fake) {
			f.deliver = func(send, *reply) error { return errEnd }
		}, codes.Internal, "without a first reply"},
		{"no classes", client.SessionConfig{Model: model}, func(f *fake) { f.info.Classes = nil },
			codes.Internal, "the first reply states no classes"},
		{"small messages", client.SessionConfig{Model: model}, func(f *fake) { f.info.Limits.MessageBytes = 130 },
			codes.Unknown, "messages of 130 bytes, too few for a row of 3 classes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			if c.change != nil {
				c.change(f)
			}
			cl, stop := f.start()
			defer stop()
			_, err := cl.Session(t.Context(), c.config)
			if err == nil || !strings.Contains(err.Error(), c.want) || status.Code(err) != c.code {
				t.Errorf("error %v, expected %v with %q", err, c.code, c.want)
			}
			f.server.GracefulStop() // the daemon is not left with one
		})
	}
}

// A group whose reply would be too large is the caller's doing: its inputs, and
// all others without an answer, fail with that reason.
func TestReplyTooLarge(t *testing.T) {
	f := newFake(2)
	f.deliver = func(send send, r *reply) error {
		if r.GetInfo() != nil {
			return send(r)
		}
		return send(&reply{Faults: []*rpcstatus.Status{
			fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE, "too large", nil).Proto(),
		}})
	}
	s := f.session(t, client.SessionConfig{})
	g := open(t, s, "a")
	ok(t, g.SendPasses(2, slices.Concat(low, low)))
	for _, r := range wait(t, g) {
		if e := inputError(t, r); e.Reason != ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE || !e.Unanswered || r.Retained() {
			t.Errorf("error %v", e)
		}
	}
	if err := s.Close(); client.Reason(err) != ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE {
		t.Errorf("Close: %v", err)
	}
}
