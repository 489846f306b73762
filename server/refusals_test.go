package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestRefusalsAreLogged checks that the first refused call or input of a model and reason is logged, without
// the words of the client, and further ones within a minute are not.
func TestRefusalsAreLogged(t *testing.T) {
	h := newHarness(t)
	call := func(change func(*ckdv1.DecomposeRequest)) {
		t.Helper()
		r := &ckdv1.DecomposeRequest{
			Model: "open-ended", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 2, Inputs: 2, InputIds: []string{"patient-1", "patient-2"},
			Values: slices.Concat(safeRow, safeRow, criticalRow, criticalRow),
		}
		change(r)
		_, _ = h.client.Decompose(t.Context(), r)
	}
	for range 50 {
		call(func(r *ckdv1.DecomposeRequest) { r.Model = "nobody" })
		call(func(r *ckdv1.DecomposeRequest) { r.Classes = []string{"a", "mallory", "c"} })
		call(func(r *ckdv1.DecomposeRequest) { r.Posterior = "mallory's own" })
		call(func(r *ckdv1.DecomposeRequest) { r.Values = append(r.Values, 0, 0, 0, 0) })
		call(func(r *ckdv1.DecomposeRequest) { r.Values = slices.Clone(r.Values); r.Values[0], r.Values[2] = -1, -1 })
	}
	call(func(*ckdv1.DecomposeRequest) {})
	var got []string
	for _, e := range h.logs.FilterMessageSnippet("refused").FilterLevelExact(zapcore.WarnLevel).All() {
		m := e.ContextMap()
		what, _, _ := strings.Cut(e.Message, ";")
		got = append(got, fmt.Sprintf("%s: %v %v", what, m["model"], m["reason"]))
	}
	for _, e := range h.logs.All() {
		line := fmt.Sprint(e.Message, e.ContextMap())
		if slices.ContainsFunc([]string{"patient", "nobody", "mallory"}, func(word string) bool { return strings.Contains(line, word) }) {
			t.Errorf("a line has words of the client's: %v", line)
		}
	}
	want := []string{
		"calls were refused: <nil> unknown_model", "calls were refused: open-ended wrong_classes", "calls were refused: open-ended wrong_posterior",
		"calls were refused: open-ended wrong_length", "inputs were refused: open-ended negative",
	}
	if !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// TestRefusalsAreBounded checks that Refusals keeps a bounded number of lines apart.
func TestRefusalsAreBounded(t *testing.T) {
	r := NewRefusals(zap.NewNop())
	for i := range 3 * mostRefusals {
		r.Call(fmt.Sprint("identity-", i), "overloaded")
	}
	if got := len(r.lines); got > mostRefusals {
		t.Errorf("%d lines are kept", got)
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
