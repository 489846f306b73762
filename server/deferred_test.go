package server

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestDeferred checks that the hook is called once for each deferred input, with its id and scores,
// whatever way it came, and for no other input. Nobody may wait for a shard of the metrics
// meanwhile.
func TestDeferred(t *testing.T) {
	h := newHarness(t)
	var mu sync.Mutex
	var reported []string
	h.server.decider.deferred = func(p *policy.Policy, id []byte, o *engine.Outcome) {
		h.expectScrape(t)
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, fmt.Sprintf("%s %q %s %v", p.Name, id, o.Decision.Action, o.Decision.Value > 0))
	}
	var values []float32 // [passes][inputs][classes]: retained, deferred, refused, deferred
	calm, torn := moving(false), moving(true)
	for s := range calm {
		values = slices.Concat(values, calm[s], torn[s], []float32{0.9, 0.9, 0.9}, torn[s])
	}
	ids := []string{"calm", "torn", "wrong", ""}
	want := []string{`ctg "" defer true`, `ctg "torn" defer true`}
	h.decompose(t, &ckdv1.DecomposeRequest{Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 30, Inputs: 4, InputIds: ids, Values: values})
	stream := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	stream.sendBlock(&ckdv1.Block{InputIds: ids, Passes: 30, Values: values, Final: true})
	stream.rest()
	mu.Lock()
	defer mu.Unlock()
	for way, got := range map[string][]string{"Decompose": reported[:min(2, len(reported))], "DecomposeStream": reported[min(2, len(reported)):]} {
		got = slices.Sorted(slices.Values(got))
		if !slices.Equal(got, want) {
			t.Errorf("%s: reported %q, want %q", way, got, want)
		}
	}
}
