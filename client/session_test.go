package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestOpenWaitsForRoom checks that Open waits until the window has room, and that calls which were
// cancelled meanwhile hold none.
func TestOpenWaitsForRoom(t *testing.T) {
	for _, c := range []struct {
		name     string
		inFlight int
		limits   *ckdv1.Limits
		window   int
	}{
		{"the caller's", 3, &ckdv1.Limits{OpenInputsPerStream: 5, OpenGroupsPerStream: 2}, 3},
		{"the daemon's", 5, &ckdv1.Limits{OpenInputsPerStream: 3, OpenGroupsPerStream: 8}, 3},
		{"the daemon's by default", 0, &ckdv1.Limits{OpenInputsPerStream: 3, OpenGroupsPerStream: 8}, 3},
		{"the daemon's of groups", 0, &ckdv1.Limits{OpenInputsPerStream: 9, OpenGroupsPerStream: 1}, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			f.info.Limits = c.limits
			f.info.Limits.MessageBytes = 1 << 20
			slow := f.hold()
			s := f.session(t, client.SessionConfig{InFlight: c.inFlight})
			if s.Window() != c.window {
				t.Errorf("window %d, expected %d", s.Window(), c.window)
			}
			a := open(t, s, "a", "b")
			ok(t, a.SendPasses(2, every(low, 4)))
			noRoom(t, s, "c", "d")
			if c.window == 3 {
				open(t, s, "e") // the cancelled call holds no group
			}
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
			ok(t, b.SendPasses(2, every(low, 4)))
			wait(t, b)
			ok(t, s.Close())
		})
	}
}

// TestOpenWaitingIsEnded checks that the end of the session ends calls of Open, whether they wait
// or come afterwards.
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
				go func() { failed <- openOne(s) }()
			}
			noRoom(t, s, "c")
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

func openOne(s *client.Session) error {
	_, err := s.Open(context.Background(), []string{"x"})
	return err
}

// TestInputErrors checks what the error of one input says, and that the other inputs are decided.
func TestInputErrors(t *testing.T) {
	f := newFake(2)
	s := f.session(t, client.SessionConfig{})
	g := open(t, s, "good", "bad")
	ok(t, g.Send(every(low, 2)))
	ok(t, g.Send(slices.Concat(low, []float32{0.1, 0.2, nan})))
	results := wait(t, g)
	retained(t, results[0])
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

// TestSendBlockedByTheDaemon checks that a daemon that stops reading blocks only the goroutines
// that write.
func TestSendBlockedByTheDaemon(t *testing.T) {
	f := newFake(0)
	stuck := f.hold()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := f.dial(t).Session(ctx, client.SessionConfig{Model: model})
	ok(t, err)
	defer close(stuck)
	g := open(t, s, make([]string, 32)...)
	ok(t, g.Finish(0)) // the answer gets stuck in the daemon
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
	noRoom(t, s, make([]string, 33)...)
	cancel()
	if err := <-blocked; status.Code(err) != codes.Canceled {
		t.Errorf("error %v, expected that the session was cancelled", err)
	}
	wait(t, g)
}

// TestSendFailsHere checks that a message refused by the client's own gRPC library ends the stream
// with that reason.
func TestSendFailsHere(t *testing.T) {
	c := newFake(2).dial(t, client.WithDialOptions(grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(50))))
	s := newSession(t, c, client.SessionConfig{})
	g := open(t, s, "a")
	err := g.SendPasses(10, make([]float32, 30))
	for name, err := range map[string]error{"SendPasses": err, "Err": s.Err(), "result": wait(t, g)[0].Err, "Close": s.Close()} {
		fault{code: codes.ResourceExhausted, text: "larger than max"}.check(t, name, err)
	}
}

// TestManyRows checks that row numbers count towards the size of a message.
func TestManyRows(t *testing.T) {
	f := newFake(2)
	f.info.Limits.OpenInputsPerStream = 1000
	f.info.Limits.MessageBytes = 6200 // empty ids take 6000 bytes at most
	s := f.session(t, client.SessionConfig{})
	g := open(t, s, make([]string, 1000)...)
	rows := make([]int, 1000)
	for i := range rows {
		rows[i] = 999 - i
	}
	for range 2 {
		ok(t, g.SendRows(rows, every(low, 1000)))
	}
	retained(t, wait(t, g)...)
	ok(t, s.Close())
}

// TestProtocolErrors checks that the session ends when the daemon breaks the contract.
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
		deliver  func(send, *reply) error // sends the first answer
		want     string
		answered bool // whether the first answer stands
	}{
		{"answered twice", func(send send, r *reply) error {
			again := proto.CloneOf(r)
			if d := again.GetResults()[0].GetDecomposition().GetDecision(); d != nil { // the end of a test may find an input without passes, and so without a decision
				d.Action = ckdv1.Action_ACTION_DEFER
			}
			return errors.Join(send(r), send(again))
		}, "row 0 of group 1 is answered more than once", true},
		{"unknown row", change(func(r *ckdv1.Result) { r.Row = 2 }), "row 2 of group 1 is answered, expected rows below 2", false},
		{"unknown group", change(func(r *ckdv1.Result) { r.Group = 7 }), "group 7 is answered and was never opened", false},
		{"another id", change(func(r *ckdv1.Result) { r.InputId = "b" }), `row 0 is answered as input "b", expected "a"`, false},
		{"no outcome", change(func(r *ckdv1.Result) { r.Outcome = nil }), "neither a decomposition nor an error", false},
		{"unknown policy", change(func(r *ckdv1.Result) { r.Policy = 1 }), `input "a" names policy 1 of 1`, false},
		{"a passes' group unknown", instead(anError(ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP, 1)),
			"refused a message: group 1 refused (InvalidArgument, UNKNOWN_GROUP)", false},
		{"an empty message", instead(anError(ckdv1.ErrorReason_ERROR_REASON_EMPTY_MESSAGE, 0)), "EMPTY_MESSAGE", false},
		{"an open group", instead(anError(ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN, 1)), "GROUP_OPEN", false},
		{"ended early", func(send, *reply) error { return errEnd }, "ended the stream before it was half-closed", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			f.deliver = c.deliver
			s := f.session(t, client.SessionConfig{})
			g := open(t, s, "a", "b")
			unsent := open(t, s, "c")
			ok(t, g.Send(every(low, 2)))
			ok(t, g.SendRows([]int{0}, low))
			results := wait(t, g)
			if results[0].Retained() != c.answered {
				t.Errorf("result %+v, expected an answer to stand: %v", results[0], c.answered)
			}
			unanswered(t, fault{code: codes.Internal, text: c.want}, append(results[1:], wait(t, unsent)...)...)
			fault{code: codes.Internal, text: "the contract is broken: "}.check(t, "Err", s.Err())
			fault{code: codes.Internal, text: c.want}.check(t, "Close", s.Close())
			f.server.GracefulStop() // no stream is left open at the daemon
		})
	}
}

// TestHalfCloseWithoutAnswers checks that a daemon which ends a half-closed stream without all
// answers has broken the contract.
func TestHalfCloseWithoutAnswers(t *testing.T) {
	f := newFake(2)
	f.deliver = func(send, *reply) error { return nil }
	s := f.session(t, client.SessionConfig{})
	g := open(t, s, "a")
	ok(t, g.SendPasses(2, every(low, 2)))
	want := fault{code: codes.Internal, text: "inputs unanswered"}
	want.check(t, "Close", s.Close())
	unanswered(t, want, wait(t, g)...)
}

// TestArguments checks that wrong arguments are refused, and that such a call does no harm.
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
		{g.SendPasses(2, every(low, 2)), "6 values, expected 2 passes x 2 inputs x 3 classes"},
		{g.SendPasses(4, every(low, 2)), "6 values, expected 4 passes"},
		{g.SendRows(nil, nil), "no rows, expected at least one"},
		{g.SendRows([]int{2}, low), "row 2, expected 0 to 1"},
		{g.SendRows([]int{-1}, low), "row -1, expected 0 to 1"},
		{g.SendRows([]int{1, 1}, every(low, 2)), "row 1 twice"},
		{g.SendRows([]int{1}, every(low, 2)), "6 values, expected 1 passes x 1 inputs x 3 classes"},
		{g.Finish(5), "row 5, expected 0 to 1"},
		{open1(), "a group of 0 inputs, expected 1 to 4"},
		{open1("1", "2", "3", "4", "5"), "a group of 5 inputs, expected 1 to 4"},
		{open1("\xff"), "expected UTF-8"},
		{open1(strings.Repeat("x", 1000)), "the ids and contexts of a group take 1006 bytes, expected at most 872"},
	} {
		saying(c.want).check(t, "call", c.err)
	}
	ok(t, g.SendPasses(2, every(low, 4)))
	retained(t, wait(t, g)...)
	ok(t, s.Close())
}

// TestSessionRefused checks why a session cannot be opened.
func TestSessionRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		config client.SessionConfig
		change func(*fake)
		want   fault
	}{
		{"unknown model", client.SessionConfig{Model: "other"}, nil,
			fault{codes.NotFound, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, `no policy for model "other"`}},
		{"passes", client.SessionConfig{Passes: -1}, nil, saying("-1 passes, expected 0 to")},
		{"times", client.SessionConfig{Reconnect: client.Reconnect{Limit: -1}}, nil, saying("expected none below 0")},
		{"window", client.SessionConfig{InFlight: -1}, nil, saying("-1 inputs in flight, expected 0 or more")},
		{"model no text", client.SessionConfig{Model: "\xff"}, nil, fault{codes.Internal, 0, "UTF-8"}},
		{"ended", client.SessionConfig{Model: model}, func(f *fake) { f.at = func(moment) error { return errEnd } },
			fault{codes.Internal, 0, "without a first reply"}},
		{"no classes", client.SessionConfig{Model: model}, func(f *fake) { f.info.Classes = nil },
			fault{codes.Internal, 0, "the first reply states no classes"}},
		{"small messages", client.SessionConfig{Model: model}, func(f *fake) { f.info.Limits.MessageBytes = 130 },
			saying("messages of 130 bytes, too few for a row of 3 classes")},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			if c.change != nil {
				c.change(f)
			}
			_, err := f.dial(t).Session(t.Context(), c.config)
			c.want.check(t, "Session", err)
			f.server.GracefulStop() // no stream is left open at the daemon
		})
	}
}
