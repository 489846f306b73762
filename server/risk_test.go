package server

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// riskPolicy decides by risk, behind a guard.
var riskPolicy = `
models:
  - name: ctg
    version: v1
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 4, expected: 30}
    gate: never
    primary: {score: risk, threshold: 0.1}
    guard: {score: mi, threshold: 0.3}
    calibrated:
      risk:
        called_safe: {intercept: -1, slope: 0.5}
        called_critical: {intercept: 0.25, slope: 2}
        quantiles: [0` + strings.Repeat(", 0.25", 63) + `, 1]
        prevalence: 0.2
`

// TestRisk checks that risk, priority and what the guard finds are answered at every detail as the
// engine computes them, streamed and in a call, and that GetModel tells of both blocks.
func TestRisk(t *testing.T) {
	h := newHarness(t)
	h.set(t, riskPolicy)
	m := h.server.catalog.models()["ctg"].full.Model
	passes, inputs := ctg(t), 400
	values := make([]float32, 0, passes.S*inputs*3)
	for s := range passes.S {
		values = append(values, rowsOfPass(passes, s, 0, inputs)...)
	}
	reference := referenceFor(t, m, decomp.Tensor{Passes: passes.S, Inputs: inputs, Float32: values})
	seen := map[ckdv1.DecisionReason]int{}
	for _, detail := range []ckdv1.Detail{ckdv1.Detail_DETAIL_DECISION, ckdv1.Detail_DETAIL_VECTORS, ckdv1.Detail_DETAIL_FULL} {
		response := h.decompose(t, &ckdv1.DecomposeRequest{Model: "ctg", Detail: detail, Layout: ckdv1.Layout_LAYOUT_SNK,
			Passes: uint32(passes.S), Inputs: uint32(inputs), Values: values})
		for i, r := range response.GetResults() {
			if detail == ckdv1.Detail_DETAIL_FULL {
				compare(t, r, m, reference(i), false)
				seen[r.GetDecomposition().GetDecision().GetReason()]++
				continue
			}
			d, o := r.GetDecomposition(), reference(i)
			if d.GetPriority() != o.Priority || d.GetPriorityPercentile() != o.Percentile || (d.Risk != nil) != (o.Predicted == 0) ||
				d.Risk != nil && d.GetRisk() != o.Risk {
				t.Fatalf("%s: input %d: %v, %v, %v, want %+v", detail, i, d.Risk, d.GetPriority(), d.GetPriorityPercentile(), o.Assessment)
			}
		}
	}
	for _, r := range []ckdv1.DecisionReason{ckdv1.DecisionReason_DECISION_REASON_UNFAMILIAR,
		ckdv1.DecisionReason_DECISION_REASON_PREDICTED_CRITICAL, ckdv1.DecisionReason_DECISION_REASON_ABOVE_THRESHOLD} {
		if seen[r] == 0 {
			t.Errorf("no input is %s", r)
		}
	}

	st := h.open(t, &ckdv1.StreamHeader{Model: "ctg", Detail: ckdv1.Detail_DETAIL_FULL})
	for s := range passes.S {
		b := &ckdv1.Block{Group: 1, Passes: 1, Values: rowsOfPass(passes, s, 0, inputs)}
		for i := range inputs {
			if s == 0 {
				b.InputIds = append(b.InputIds, fmt.Sprint(i))
			}
		}
		st.sendBlock(b)
	}
	misses := 0.0
	for i, r := range st.rest() {
		o := reference(i)
		compare(t, r, m, o, false)
		if o.Decision.Action == policy.Retain && o.Predicted == 0 {
			misses += o.Risk
		}
	}
	// All inputs were decided four times; sums differ by rounding.
	if !within(func() bool { return math.Abs(h.metric(t, "ckd_expected_misses_total", "model", "ctg")-4*misses) < 1e-9 }) {
		t.Errorf("expected misses %v, want 4 times %v", h.metric(t, "ckd_expected_misses_total", "model", "ctg"), misses)
	}

	threshold, prevalence := 0.3, 0.2
	want := &ckdv1.Model{Guard: &ckdv1.ScoreRule{Score: ckdv1.Score_SCORE_MI, Threshold: &threshold}, RiskPrevalence: &prevalence}
	shown := h.model(t, "ctg")
	if diff := cmp.Diff(want, &ckdv1.Model{Guard: shown.GetGuard(), RiskPrevalence: shown.RiskPrevalence}, protocmp.Transform()); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
}
