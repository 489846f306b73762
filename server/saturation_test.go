package server

import (
	"context"
	"runtime"
	"testing"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestSaturation: a scrape tells what is held, beside how much may be.
func TestSaturation(t *testing.T) {
	limits := DefaultLimits()
	limits.OpenInputBytes, limits.Streams, limits.Calls = 1<<20, 7, 5
	h := newHarness(t, limits)
	held := func(bytes, calls int64) map[string]float64 {
		return map[string]float64{
			"ckd_open_bytes": float64(bytes), "ckd_open_bytes_limit": 1 << 20,
			"ckd_calls_open": float64(calls), "ckd_calls_limit": 5, "ckd_streams_limit": 7,
		}
	}
	check := func(want map[string]float64) {
		t.Helper()
		for name, value := range want {
			if got := h.metric(t, name); got != value {
				t.Errorf("%s is %v, want %v", name, got, value)
			}
		}
	}
	check(held(0, 0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := h.client.DecomposeStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*ckdv1.DecomposeStreamRequest{
		{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "ctg"}}},
		{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{InputIds: []string{"a"}, Values: []float32{0.5, 0.25, 0.25}}}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	h.server.calls.Add(2) // calls are over before they could be looked at
	for h.metric(t, "ckd_open_bytes") == 0 && t.Context().Err() == nil {
		runtime.Gosched()
	}
	if open := h.metric(t, "ckd_open_bytes"); !(open > 0 && open < 1<<20) {
		t.Errorf("an open input holds %v bytes", open)
	}
	if calls := h.metric(t, "ckd_calls_open"); calls != 2 {
		t.Errorf("%v calls open, want 2", calls)
	}
	cancel()
	h.server.calls.Add(-2)
	h.eventually(t, 0, "ckd_open_bytes")
	check(held(0, 0))
}
