package server

import (
	"context"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/metadata"

	"github.com/ckd-project/ckd/internal/servertest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestExemplars checks that the trace of an input becomes an exemplar of the C_k of the deciding
// class if it is sampled and the input deferred, by calls and by streams.
func TestExemplars(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent := func(flags string) string { return "00-" + trace + "-00f067aa0ba902b7-" + flags }
	for name, c := range map[string]struct {
		parent string
		jumps  bool // so that it is deferred
		want   int
	}{
		"sampled and deferred":   {parent("01"), true, 1},
		"sampled and retained":   {parent("01"), false, 0},
		"deferred and unsampled": {parent("00"), true, 0},
		"deferred, of no trace":  {"", true, 0},
	} {
		values := slices.Concat(moving(c.jumps)...)
		for way, decide := range map[string]func(context.Context, *testing.T, *harness){
			"call": func(ctx context.Context, t *testing.T, h *harness) {
				if _, err := h.client.Decompose(ctx, &ckdv1.DecomposeRequest{
					Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 30, Inputs: 1, Values: values,
				}); err != nil {
					t.Fatal(err)
				}
			},
			"stream": func(ctx context.Context, t *testing.T, h *harness) {
				st := h.openIn(ctx, t, &ckdv1.StreamHeader{Model: "ctg"})
				st.sendBlock(&ckdv1.Block{InputIds: []string{"a"}, Passes: 30, Values: values, Final: true})
				st.rest()
			},
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				h := newHarness(t)
				decide(metadata.AppendToOutgoingContext(t.Context(), "traceparent", c.parent), t, h)
				got := exemplars(t, h)
				if len(got) != c.want {
					t.Fatalf("exemplars %v, want %d", got, c.want)
				}
				for _, e := range got {
					if label := e.GetLabel()[0]; label.GetName() != "trace_id" || label.GetValue() != trace || e.GetValue() <= 0 {
						t.Errorf("exemplar %v", e)
					}
				}
			})
		}
	}
}

// exemplars returns the exemplars of C_k, which must be the only ones.
func exemplars(t *testing.T, h *harness) (found []*dto.Exemplar) {
	t.Helper()
	all := 0
	for _, m := range servertest.Series(t, h.registry, "") {
		all += len(m.GetHistogram().GetExemplars())
	}
	for _, m := range servertest.Series(t, h.registry, "ckd_class_epistemic_nats") {
		found = append(found, m.GetHistogram().GetExemplars()...)
	}
	if all != len(found) {
		t.Errorf("%d exemplars in all metrics, %d of C_k", all, len(found))
	}
	return found
}
