package server

import (
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/metadata"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestExemplars: the trace of an input is an exemplar if it is sampled and the
// input deferred, of the C_k of the class that decided, by calls and by streams.
func TestExemplars(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent := func(flags string) string { return "00-" + trace + "-00f067aa0ba902b7-" + flags }
	for name, c := range map[string]struct {
		parent string
		moves  bool // every other pass, so that it is deferred
		want   int
	}{
		"sampled and deferred":   {parent("01"), true, 1},
		"sampled and retained":   {parent("01"), false, 0},
		"deferred and unsampled": {parent("00"), true, 0},
		"deferred, of no trace":  {"", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, streamed := range []bool{false, true} {
				h := newHarness(t, DefaultLimits())
				ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", c.parent)
				calm, other := []float32{0.9, 0.05, 0.05}, []float32{0.91, 0.05, 0.04}
				if c.moves {
					other = []float32{0.1, 0.1, 0.8}
				}
				var values []float32
				for s := range 30 {
					row := calm
					if s%2 == 1 {
						row = other
					}
					values = append(values, row...)
				}
				if streamed {
					stream, err := h.client.DecomposeStream(ctx)
					if err != nil {
						t.Fatal(err)
					}
					for _, m := range []*ckdv1.DecomposeStreamRequest{
						{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "ctg"}}},
						{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{InputIds: []string{"a"}, Passes: 30, Values: values, Final: true}}},
					} {
						if err := stream.Send(m); err != nil {
							t.Fatal(err)
						}
						if _, err := stream.Recv(); err != nil {
							t.Fatal(err)
						}
					}
				} else if _, err := h.client.Decompose(ctx, &ckdv1.DecomposeRequest{
					Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 30, Inputs: 1, Values: values,
				}); err != nil {
					t.Fatal(err)
				}
				if got := exemplars(t, h); len(got) != c.want {
					t.Errorf("streamed %v: exemplars %v, want %d", streamed, got, c.want)
				} else if len(got) > 0 && (got[0].GetLabel()[0].GetName() != "trace_id" || got[0].GetLabel()[0].GetValue() != trace || got[0].GetValue() <= 0) {
					t.Errorf("streamed %v: %v", streamed, got)
				}
			}
		})
	}
}

// exemplars of C_k, which must be the same in classic and native buckets.
func exemplars(t *testing.T, h *harness) (found []*dto.Exemplar) {
	t.Helper()
	families, err := h.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			native := m.GetHistogram().GetExemplars()
			for _, bucket := range m.GetHistogram().GetBucket() {
				if e := bucket.GetExemplar(); e != nil {
					if e.GetValue() > bucket.GetUpperBound() || len(native) == 0 || native[0] != e {
						t.Errorf("%s: bucket up to %v has %v beside %v", family.GetName(), bucket.GetUpperBound(), e, native)
					}
					native = native[1:]
					if family.GetName() != "ckd_class_epistemic_nats" {
						t.Errorf("an exemplar of %s", family.GetName())
					}
					found = append(found, e)
				}
			}
		}
	}
	return found
}
