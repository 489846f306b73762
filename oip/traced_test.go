package oip_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server"
)

// TestSpanAttributes checks what the spans of calls and of streams say, by both protocols: a team that
// followed a slow call through three services could not see which model it was for, nor how much of it
// went to people.
func TestSpanAttributes(t *testing.T) {
	const inputs = 40
	passes := ctg(t, inputs)
	each := passes.passes * passes.classes
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	h := newHarness(t, server.DefaultLimits(), func(o *server.Options) {
		o.Tracing = otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(provider))
	})
	request := &ckdv1.DecomposeRequest{
		Model: "ctg", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: uint32(passes.passes), Inputs: inputs, Values: passes.values,
	}
	reply, err := h.native.Decompose(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	deferred := int64(0)
	for _, r := range reply.GetResults() {
		if r.GetDecomposition().GetDecision().GetAction() == ckdv1.Action_ACTION_DEFER {
			deferred++
		}
	}
	if deferred == 0 || deferred == inputs {
		t.Fatalf("%d of %d are deferred, expected some", deferred, inputs)
	}
	decided := map[string]any{
		"ckd.model": "ctg", "ckd.policy_hash": reply.GetPolicy().GetHash(), "ckd.inputs": int64(inputs), "ckd.deferred": deferred,
	}
	for name, c := range map[string]struct {
		call func(context.Context) error
		want map[string]any
	}{
		"call": {func(ctx context.Context) error {
			_, err := h.native.Decompose(ctx, request)
			return err
		}, decided},
		"unknown model": {func(ctx context.Context) error {
			_, _ = h.native.Decompose(ctx, &ckdv1.DecomposeRequest{Model: "secret"})
			return nil
		}, map[string]any{}},
		"stream": {func(ctx context.Context) error {
			st, err := h.native.DecomposeStream(ctx)
			if err != nil {
				return err
			}
			if err := st.Send(&ckdv1.DecomposeStreamRequest{
				Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "ctg"}},
			}); err != nil {
				return err
			}
			for i := range inputs {
				block := &ckdv1.Block{Group: uint64(i), Passes: uint32(passes.passes), InputIds: []string{"a"}, Values: passes.values[i*each:][:each], Final: true}
				if err := st.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: block}}); err != nil {
					return err
				}
			}
			if err := st.CloseSend(); err != nil {
				return err
			}
			for err == nil {
				_, err = st.Recv()
			}
			return nil
		}, decided},
		"inference": {func(ctx context.Context) error {
			_, err := h.client.ModelInfer(ctx, passes.request("ctg", "", "FP32"))
			return err
		}, decided},
	} {
		t.Run(name, func(t *testing.T) {
			spans.Reset()
			if err := c.call(t.Context()); err != nil {
				t.Fatal(err)
			}
			for len(spans.GetSpans()) == 0 { // a span ends after its call
				time.Sleep(time.Millisecond)
			}
			got := map[string]any{}
			for _, a := range spans.GetSpans()[0].Attributes {
				if _, ours := decided[string(a.Key)]; ours {
					got[string(a.Key)] = a.Value.AsInterface()
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("attributes, want - and got +:\n%s", diff)
			}
		})
	}
}
