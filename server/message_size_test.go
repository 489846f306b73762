package server

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// sizedPolicy returns a policy with a number of classes and passes, none for no expected passes.
func sizedPolicy(name string, classes, passes int) string {
	expected := ""
	if passes > 0 {
		expected = fmt.Sprintf("expected: %d", passes)
	}
	var names strings.Builder
	for k := range classes {
		fmt.Fprintf(&names, "c%d, ", k)
	}
	return fmt.Sprintf("  - name: %s\n    version: '1'\n    classes: [%s]\n    critical: [c0]\n    passes: {fewest: 5, %s}\n    primary: {score: mi, threshold: 0.5}\n    fallback: {score: mi, threshold: 0.5}\n",
		name, names.String(), expected)
}

// TestMessageFitsPolicies checks the largest message by the policies in force: 512 KiB held four
// inputs of ImageNet, which clients of Triton and KServe do not split. It grows with a reload and
// never shrinks.
func TestMessageFitsPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		policies []string
		change   func(*Limits)
		want     int
	}{
		"small models":                {[]string{sizedPolicy("a", 3, 30), sizedPolicy("b", 10, 0)}, func(*Limits) {}, 512 << 10},
		"ImageNet":                    {[]string{sizedPolicy("a", 3, 30), sizedPolicy("b", 1000, 30)}, func(*Limits) {}, 7552 << 10}, // 64 x (4 x 30000 + 640)
		"an eighth of the budget":     {[]string{sizedPolicy("a", 1000, 30)}, func(l *Limits) { l.OpenInputBytes = 32 << 20 }, 4 << 20},
		"an input larger than that":   {[]string{sizedPolicy("a", 1000, 300)}, func(l *Limits) { l.OpenInputBytes = 4 << 20 }, 1216 << 10}, // 4 x 300000 + 640
		"the setting":                 {[]string{sizedPolicy("a", 1000, 30)}, func(l *Limits) { l.MessageBytes = 1 << 20 }, 1 << 20},
		"a setting above the default": {[]string{sizedPolicy("a", 3, 30)}, func(l *Limits) { l.MessageBytes = 200 << 20 }, 200 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, func(o *Options) { c.change(&o.Limits) })
			set := func(policies ...string) {
				t.Helper()
				if err := h.server.SetPolicies(parsePolicies(t, "models:\n"+strings.Join(policies, ""))); err != nil {
					t.Fatal(err)
				}
			}
			said := func() int {
				t.Helper()
				m, err := h.client.GetModel(t.Context(), &ckdv1.GetModelRequest{Model: "a"})
				if err != nil {
					t.Fatal(err)
				}
				return int(m.GetModel().GetLimits().GetMessageBytes())
			}
			set(c.policies...)
			if got := said(); got != c.want {
				t.Errorf("%d bytes, want %d", got, c.want)
			}
			set(sizedPolicy("a", 3, 30))
			if got := said(); got != c.want {
				t.Errorf("%d bytes after a reload with smaller inputs, want %d still", got, c.want)
			}
		})
	}
}

// TestOversizeMessage checks that a message over the limit is refused in words that name the
// setting, in calls and on streams, compressed or not, and is taken once a reload has raised the
// limit. gRPC's own refusal named none.
func TestOversizeMessage(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.OpenInputBytes = 128 << 20 })
	const inputs, passes, classes = 64, 30, 1000
	values := make([]float32, inputs*passes*classes)
	for i := range values {
		values[i] = 1.0 / classes
	}
	tensor := &ckdv1.DecomposeRequest{Model: "large", Layout: ckdv1.Layout_LAYOUT_NSK, Inputs: inputs, Passes: passes, Values: values}
	refused := func(name string, err error) {
		t.Helper()
		if text := status.Convert(err).Message(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(text, "max-message-bytes, 524288") {
			t.Errorf("%s: %v, want max-message-bytes and its value named", name, err)
		}
	}
	_, err := h.client.Decompose(t.Context(), tensor)
	refused("a call", err)
	_, err = h.client.Decompose(t.Context(), tensor, grpc.UseCompressor(grpcgzip.Name))
	refused("a compressed call", err)
	stream := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	_ = stream.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{Values: values}}}) // Recv says why not
	_, err = stream.Recv()
	refused("a stream", err)
	if held := h.server.budget.total; !within(func() bool { return held() == 0 }) {
		t.Errorf("%d bytes are held", held())
	}

	if err := h.server.SetPolicies(parsePolicies(t, "models:\n"+sizedPolicy("large", classes, passes))); err != nil {
		t.Fatal(err)
	}
	answer, err := h.client.Decompose(t.Context(), tensor)
	if err != nil || len(answer.GetResults()) != inputs {
		t.Errorf("%d inputs in one call: %d results, %v", inputs, len(answer.GetResults()), err)
	}
}
