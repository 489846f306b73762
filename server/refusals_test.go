package server

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// timers holds the callbacks that Refusals has asked for.
type timers struct {
	mu      sync.Mutex
	waiting []func()
}

func (c *timers) after(_ time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, f)
}

// pass runs the callbacks, as if a minute had passed.
func (c *timers) pass() {
	c.mu.Lock()
	due := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for _, f := range due {
		f()
	}
}

// refusedLines returns the log lines about refusals outside streams since the last look.
func refusedLines(t *testing.T, logs *observer.ObservedLogs) (lines []string) {
	t.Helper()
	for _, e := range logs.TakeAll() {
		if !strings.Contains(e.Message, "refused") {
			continue
		}
		if e.Level != zapcore.WarnLevel {
			t.Errorf("%v is no warning", e)
		}
		m := e.ContextMap()
		what, _, _ := strings.Cut(e.Message, ";")
		lines = append(lines, fmt.Sprintf("%s: %v %v x %v", what, m["model"], m["reason"], m["count"]))
		if all := fmt.Sprint(m); strings.Contains(all, "patient") || strings.Contains(all, "nobody") {
			t.Errorf("a line has words of the client's: %v", all)
		}
	}
	slices.Sort(lines)
	return lines
}

// TestRefusalsAreLogged checks that the first refused call or input of a model and reason is logged
// at once, and the others once a minute with their number.
func TestRefusalsAreLogged(t *testing.T) {
	h := newHarness(t)
	clock := &timers{}
	h.server.decider.refusals.after = clock.after
	call := func(change func(*ckdv1.DecomposeRequest)) {
		t.Helper()
		r := &ckdv1.DecomposeRequest{
			Model: "open-ended", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 2, Inputs: 2, InputIds: []string{"patient-1", "patient-2"},
			Values: slices.Concat(safeRow, safeRow, criticalRow, criticalRow),
		}
		change(r)
		_, _ = h.client.Decompose(t.Context(), r)
	}
	expect := func(want ...string) {
		t.Helper()
		if got := refusedLines(t, h.logs); !slices.Equal(got, want) {
			t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	unknown := func(r *ckdv1.DecomposeRequest) { r.Model = "nobody" }
	classes := func(r *ckdv1.DecomposeRequest) { r.Values = append(r.Values, 0, 0, 0, 0) }
	negative := func(r *ckdv1.DecomposeRequest) {
		r.Values = slices.Clone(r.Values)
		r.Values[0], r.Values[2] = -1, -1
	}
	for range 50 {
		call(unknown)
		call(classes)
		call(negative)
	}
	call(func(*ckdv1.DecomposeRequest) {})
	expect("calls were refused: <nil> unknown_model x 1", "calls were refused: open-ended wrong_length x 1",
		"inputs were refused: open-ended negative x 2")
	clock.pass()
	expect("calls were refused: <nil> unknown_model x 49", "calls were refused: open-ended wrong_length x 49",
		"inputs were refused: open-ended negative x 98")
	call(negative)
	clock.pass()
	expect("inputs were refused: open-ended negative x 2")
	clock.pass()
	expect()
	if n := len(h.server.decider.refusals.more); n != 0 {
		t.Errorf("%d refusals are kept when all is quiet", n)
	}
	call(unknown)
	expect("calls were refused: <nil> unknown_model x 1")
}

// TestRefusalsAreBounded checks that Refusals keeps a bounded number of lines apart, and loses no
// count.
func TestRefusalsAreBounded(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	r, clock := NewRefusals(zap.New(core)), &timers{}
	r.after = clock.after
	const n = 3 * mostRefusals
	for i := range n {
		r.Call(fmt.Sprint("identity-", i), "overloaded")
	}
	if got := len(r.more); got > mostRefusals+1 {
		t.Errorf("%d refusals are kept", got)
	}
	r.HTTP(400)
	r.HTTP(400)
	clock.pass()
	total := -2 // leaves out the two HTTP refusals
	for _, e := range logs.All() {
		total += int(e.ContextMap()["count"].(int64))
	}
	if total != n {
		t.Errorf("%d refusals are told, want %d", total, n)
	}
}

// TestOtherClasses checks that a stream whose client has another number of classes names the pass and both
// numbers, in the error and in the log.
func TestOtherClasses(t *testing.T) {
	h := newHarness(t)
	const found = `found 4 classes, expected 3, as the policy of model "ctg" has`
	st := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Passes: 2, Values: []float32{0, 0, 1, 0, 0, 1}})
	st.sendBlock(&ckdv1.Block{Group: 1, Passes: 1, Values: []float32{0.25, 0.25, 0.25, 0.25}})
	results := st.rest()
	if len(results) != 1 || !strings.Contains(results[0].GetError().GetMessage(), `input "a": pass 2: `+found) {
		t.Errorf("on a stream: %v", results)
	}
	if n := h.logs.FilterLevelExact(zapcore.WarnLevel).Filter(func(e observer.LoggedEntry) bool {
		cause, _ := e.ContextMap()["cause"].(string)
		return strings.Contains(cause, found)
	}).Len(); n != 1 {
		t.Errorf("%d lines of the log have both numbers, want 1", n)
	}
}
