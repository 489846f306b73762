package client_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// tester holds what the helpers need of a test, from package testing or from rapid.
type tester interface {
	Helper()
	Cleanup(func())
	Context() context.Context
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

var nan = float32(math.NaN())

// The fake's policy retains the row low, and defers high.
var (
	low  = []float32{0.9, 0.1, 0}
	high = []float32{0.1, 0.9, 0}
)

// every repeats a row for each of n inputs.
func every(row []float32, n int) []float32 { return slices.Repeat(row, n) }

// oneInput returns a batch of one input that the fake's policy retains.
func oneInput() client.Batch {
	return client.Batch{Model: model, Passes: 2, Inputs: 1, Values: every(low, 2)}
}

func ok(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSession(t tester, c *client.Client, config client.SessionConfig) *client.Session {
	t.Helper()
	config.Model = model
	s, err := c.Session(t.Context(), config)
	ok(t, err)
	return s
}

// open opens a group, whose ids are the caller's again.
func open(t tester, s *client.Session, ids ...string) *client.Group {
	t.Helper()
	own := slices.Clone(ids)
	g, err := s.Open(t.Context(), own)
	clear(own)
	ok(t, err)
	return g
}

func wait(t tester, g *client.Group) []client.Result {
	t.Helper()
	results, err := g.Wait(t.Context())
	ok(t, err)
	return results
}

// until polls a condition that other goroutines make true.
func until(t tester, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// canceledSoon returns a context that ends shortly.
func canceledSoon(t tester) context.Context { return within(t, 20*time.Millisecond) }

// within returns a context that ends after a while.
func within(t tester, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// noRoom expects that a session has no room for a group.
func noRoom(t tester, s *client.Session, ids ...string) {
	t.Helper()
	if _, err := s.Open(canceledSoon(t), ids); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v, expected the context's", err)
	}
}

// decideOne sends one input on a session and expects it to be retained.
func decideOne(t tester, s *client.Session) {
	t.Helper()
	g := open(t, s, "a")
	ok(t, g.SendPasses(2, every(low, 2)))
	retained(t, wait(t, g)...)
}

// retained expects results that let the model's answer stand.
func retained(t tester, results ...client.Result) {
	t.Helper()
	for _, r := range results {
		if !r.Retained() {
			t.Errorf("result %+v, expected it retained", r)
		}
	}
}

// decidedOn expects results that were decided on so many passes.
func decidedOn(t tester, passes int, results ...client.Result) {
	t.Helper()
	for _, r := range results {
		if r.Err != nil || int(r.Decomposition.GetPasses()) != passes {
			t.Errorf("result %+v, expected it decided on %d passes", r, passes)
		}
	}
}

// fault describes the error that a test expects; the zero value stands for none.
type fault struct {
	code   codes.Code
	reason ckdv1.ErrorReason
	text   string // part of the message
}

// saying returns an error without code and reason, or none for an empty text.
func saying(text string) fault {
	if text == "" {
		return fault{}
	}
	return fault{code: codes.Unknown, text: text}
}

func (f fault) check(t tester, what string, err error) {
	t.Helper()
	if status.Code(err) != f.code || client.Reason(err) != f.reason || err != nil && !strings.Contains(err.Error(), f.text) {
		t.Errorf("%s: error %v, expected code %v, reason %v, %q", what, err, f.code, f.reason, f.text)
	}
}

// inputError returns the error of an input.
func inputError(t tester, r client.Result) *client.InputError {
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

// refused expects that the daemon answered inputs with an error.
func refused(t tester, reason ckdv1.ErrorReason, results ...client.Result) {
	t.Helper()
	for _, r := range results {
		if e := inputError(t, r); e.Reason != reason || e.Unanswered {
			t.Errorf("%s: error %+v, expected the daemon's, with reason %v", r.ID, e, reason)
		}
	}
}

// unanswered expects that inputs have no answer, and why.
func unanswered(t tester, why fault, results ...client.Result) {
	t.Helper()
	for _, r := range results {
		why.check(t, r.ID, r.Err)
		if e := inputError(t, r); !e.Unanswered || !strings.HasPrefix(e.Error(), "no answer: ") {
			t.Errorf("%s: error %+v, expected it unanswered", r.ID, e)
		}
	}
}
