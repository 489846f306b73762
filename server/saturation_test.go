package server

import (
	"testing"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestSaturation checks that a scrape shows what is held beside its limits.
func TestSaturation(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.OpenInputBytes, o.Limits.Streams, o.Limits.Calls = 1<<20, 7, 5 })
	expectIdle := func() {
		t.Helper()
		for resource, limit := range map[string]float64{"open_bytes": 1 << 20, "calls": 5, "streams": 7} {
			if held, got := h.metric(t, "ckd_in_use", "resource", resource), h.metric(t, "ckd_limit", "resource", resource); held != 0 || got != limit {
				t.Errorf("%v of %v %s, want none of %v", held, got, resource, limit)
			}
		}
	}
	expectIdle()
	stream := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	stream.sendBlock(&ckdv1.Block{InputIds: []string{"a"}, Values: []float32{0.5, 0.25, 0.25}})
	h.server.admission.calls.Add(2) // stands for calls: real ones would be over before the scrape
	if !within(func() bool { return h.metric(t, "ckd_in_use", "resource", "open_bytes") > 0 }) {
		t.Error("an open input holds no bytes")
	}
	if calls := h.metric(t, "ckd_in_use", "resource", "calls"); calls != 2 {
		t.Errorf("%v calls open, want 2", calls)
	}
	stream.cancel()
	h.server.admission.calls.Add(-2)
	h.eventually(t, 0, "ckd_in_use", "resource", "open_bytes")
	expectIdle()
}
