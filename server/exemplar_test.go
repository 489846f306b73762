package server

import (
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
		stream bool
		want   int
	}{
		"sampled and deferred":      {parent("01"), true, false, 1},
		"sampled and deferred, too": {parent("01"), true, true, 1},
		"sampled and retained":      {parent("01"), false, false, 0},
		"deferred and unsampled":    {parent("00"), true, false, 0},
		"deferred, of no trace":     {"", true, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h, values := newHarness(t), slices.Concat(moving(c.jumps)...)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", c.parent)
			if c.stream {
				st := h.openIn(ctx, t, &ckdv1.StreamHeader{Model: "ctg"})
				st.sendBlock(&ckdv1.Block{InputIds: []string{"a"}, Passes: 30, Values: values, Final: true})
				st.rest()
			} else if _, err := h.client.Decompose(ctx, &ckdv1.DecomposeRequest{
				Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 30, Inputs: 1, Values: values,
			}); err != nil {
				t.Fatal(err)
			}
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
