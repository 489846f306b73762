package server

import "testing"

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
	h.server.openBytes.Add(1000)
	h.server.calls.Add(2)
	check(held(1000, 2))
	h.server.openBytes.Add(-1000)
	h.server.calls.Add(-2)
	check(held(0, 0))
}
