package server

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// notPasses are what clients sent for passes of real inputs, which was retained without a word.
var notPasses = map[string]func(rows [][]float32){
	// Dropout was off on a GPU, which rounds the passes of one input differently.
	"rounding noise": func(rows [][]float32) {
		for s := 1; s < len(rows); s++ {
			for k, v := range rows[0] {
				rows[s][k] = min(v*float32(1+1e-7*rand.NormFloat64()), 1)
			}
		}
	},
	// The model's graph ended in a softmax, and the client took another one.
	"softmax was taken twice": func(rows [][]float32) {
		for _, row := range rows {
			sum := 0.0
			for _, v := range row {
				sum += math.Exp(float64(v))
			}
			for k, v := range row {
				row[k] = float32(math.Exp(float64(v)) / sum)
			}
		}
	},
}

// TestNotPasses checks that what only looks like passes is deferred, on a stream and in calls of one
// input each, and that log and state say so until passes come again.
func TestNotPasses(t *testing.T) {
	const inputs, loose = 200, `
models:
  - name: ctg
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    gate: never
    passes: {fewest: 4, expected: 30}
    primary: {score: mi, threshold: 1}
`
	passes := ctg(t)
	for name, change := range notPasses {
		for _, calls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, calls %v", name, calls), func(t *testing.T) {
				h := newHarness(t)
				h.set(t, loose)
				var stream *clientStream
				if !calls {
					stream = h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
				}
				group := uint64(0)
				send := func(change func([][]float32)) (retained, degenerate int) {
					for i := range inputs {
						var rows [][]float32
						for s := range passes.S {
							rows = append(rows, slices.Clone(rowsOfPass(passes, s, i, i+1)))
						}
						change(rows)
						var r *ckdv1.Result
						if calls {
							r = h.decompose(t, &ckdv1.DecomposeRequest{Model: "ctg", Passes: uint32(passes.S), Inputs: 1,
								Layout: ckdv1.Layout_LAYOUT_SNK, Values: slices.Concat(rows...)}).GetResults()[0]
						} else {
							group++
							stream.sendBlock(&ckdv1.Block{Group: group, InputIds: []string{"x"}, Passes: uint32(passes.S), Values: slices.Concat(rows...)})
							r = stream.receive().GetResults()[0]
						}
						d := r.GetDecomposition()
						if d.GetDegenerate() {
							degenerate++
						}
						if d.GetDecision().GetAction() == ckdv1.Action_ACTION_RETAIN {
							retained++
						}
					}
					return retained, degenerate
				}
				before := 0 // inputs that may be retained until a run is complete
				lines, state := 1, "hardly differ"
				if name == "softmax was taken twice" { // of which a few passes hardly differ, which is seen first
					before, lines, state = 63, 2, name
				}
				retained, degenerate := send(change)
				if retained > before || degenerate != inputs-retained {
					t.Errorf("%d retained, %d degenerate of %d, expected at most %d retained", retained, degenerate, inputs, before)
				}
				said := func() int {
					return h.logs.FilterMessageSnippet("does not look like passes").FilterField(zap.String("model", "ctg")).Len()
				}
				if h.eventually(t, float64(degenerate), "ckd_inputs_degenerate_total", "model", "ctg"); said() != lines || !strings.Contains(h.server.Degenerate()["ctg"], state) {
					t.Errorf("%d lines, state %q", said(), h.server.Degenerate())
				}
				if retained, degenerate := send(func([][]float32) {}); retained != inputs || degenerate != 0 {
					t.Errorf("of genuine passes after that %d retained, %d degenerate", retained, degenerate)
				}
				if h.eventually(t, 2*inputs, "ckd_decisions_total", "model", "ctg"); len(h.server.Degenerate()) != 0 || said() != lines {
					t.Errorf("after genuine passes: %q, %d lines", h.server.Degenerate(), said())
				}
			})
		}
	}
}
