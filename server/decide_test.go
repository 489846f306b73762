package server

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/ckd-project/ckd/decomp"
)

// foreign returns the first inputs of the recording as a call by another protocol.
func foreign(t testing.TB, inputs int) *Call {
	t.Helper()
	p := ctg(t)
	values := tensor(p, inputs).GetValues()
	return &Call{
		Model: "ctg", Classes: 3, ReplyBytes: 100, Bytes: 4 * len(values),
		Tensor: decomp.Tensor{Passes: p.S, Inputs: inputs}, Read: func(to *decomp.Tensor) { to.Float32 = values },
	}
}

// TestDecideAllOrNone checks that a bad row refuses the call, and only that input is counted, or
// fails its input alone.
func TestDecideAllOrNone(t *testing.T) {
	h := newHarness(t)
	call := foreign(t, 3)
	read := call.Read
	call.Read = func(to *decomp.Tensor) {
		read(to)
		to.Float32 = slices.Clone(to.Float32)
		to.Float32[5] = float32(math.Inf(1)) // pass 0, input 1
	}
	call.AllOrNone = true
	_, err := h.server.Decide(t.Context(), call, func(i int, _ *Decided, _ error) { t.Errorf("input %d is answered", i) })
	if got := expectFault(t, err, "NOT_FINITE").Metadata["row"]; got != "1" {
		t.Errorf("row %s is at fault, want 1", got)
	}
	h.eventually(t, 1, "ckd_inputs_rejected_total")
	h.eventually(t, 0, "ckd_decisions_total")

	call.AllOrNone = false
	var bad []int
	if _, err := h.server.Decide(t.Context(), call, func(i int, _ *Decided, err error) {
		if err != nil {
			bad = append(bad, i)
		}
	}); err != nil || !slices.Equal(bad, []int{1}) {
		t.Errorf("%v, %v", bad, err)
	}
	h.eventually(t, 2, "ckd_inputs_rejected_total")
	h.eventually(t, 2, "ckd_decisions_total")
}

// TestDecideCancelled checks that the rest of a cancelled call counts as abandoned, not as refused.
func TestDecideCancelled(t *testing.T) {
	h := newHarness(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := h.server.Decide(ctx, foreign(t, 10), func(i int, _ *Decided, _ error) {
		if i == 3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	h.eventually(t, 4, "ckd_decisions_total")
	h.eventually(t, 6, "ckd_inputs_abandoned_total", "model", "ctg")
	h.eventually(t, 0, "ckd_inputs_rejected_total")
}

// TestDecideHolds checks that values are read only once there is room for them, and that the call
// gives back all that it held.
func TestDecideHolds(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.OpenInputBytes = 100_000 })
	call := foreign(t, 10)
	read, held := call.Read, int64(0)
	call.Read = func(to *decomp.Tensor) { held = h.server.budget.total(); read(to) }
	if _, err := h.server.Decide(t.Context(), call, func(int, *Decided, error) {}); err != nil {
		t.Error(err)
	}
	if want := int64(2*3600 + 30*passBytes + 10*100*replyCostFactor); held != want {
		t.Errorf("held %d bytes, want %d", held, want)
	}
	call.Bytes = 1 << 20
	call.Read = func(*decomp.Tensor) { t.Error("read although there was no room") }
	_, err := h.server.Decide(t.Context(), call, func(int, *Decided, error) {})
	expectFault(t, err, "OUT_OF_MEMORY_BUDGET")
	h.eventually(t, 10, "ckd_inputs_rejected_total", "reason", "out_of_memory_budget")
}
