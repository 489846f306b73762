package server

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestDeferred: each deferred input is told of once, with its own id and scores, by
// whatever way it came; those that are retained or refused are not. Nobody waits for a
// shard of the metrics meanwhile.
func TestDeferred(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	var mu sync.Mutex
	var told []string
	h.server.deferred = func(p *policy.Policy, id []byte, o *engine.Outcome) {
		scraped := make(chan struct{})
		go func() {
			defer close(scraped)
			if _, err := h.registry.Gather(); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-scraped:
		case <-time.After(time.Minute):
			t.Errorf("%q is told of while a scrape waits for it to be counted", id)
		}
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf("%s %q %s %v", p.Name, id, o.Decision.Action, o.Decision.Value > 0))
	}
	calm, torn := []float32{0.9, 0.05, 0.05}, []float32{0.1, 0.1, 0.8}
	wrong := []float32{0.9, 0.9, 0.9}
	var values []float32 // [passes][inputs][classes]: retained, deferred, refused, deferred
	for s := range 30 {
		moving := calm
		if s%2 == 1 {
			moving = torn
		}
		steady := []float32{0.9, 0.05, 0.05}
		if s%2 == 1 {
			steady = []float32{0.91, 0.05, 0.04}
		}
		for _, row := range [][]float32{steady, moving, wrong, moving} {
			values = append(values, row...)
		}
	}
	ids := []string{"calm", "torn", "wrong", ""}
	want := []string{`ctg "" defer true`, `ctg "torn" defer true`}
	if _, err := h.client.Decompose(t.Context(), &ckdv1.DecomposeRequest{Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 30, Inputs: 4, InputIds: ids, Values: values}); err != nil {
		t.Fatal(err)
	}
	stream, err := h.client.DecomposeStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*ckdv1.DecomposeStreamRequest{
		{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "ctg"}}},
		{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{InputIds: ids, Passes: 30, Values: values, Final: true}}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for way, got := range map[string][]string{"Decompose": told[:min(2, len(told))], "DecomposeStream": told[min(2, len(told)):]} {
		got = slices.Sorted(slices.Values(got))
		if !slices.Equal(got, want) {
			t.Errorf("%s: told of %q, want %q", way, got, want)
		}
	}
}
