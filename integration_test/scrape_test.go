package integration_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestScrapersBeside checks that fifty clients that scrape without a pause at most double the
// median time of small calls, and that probes are answered. It measures the medians side by side;
// the best of three rounds counts.
func TestScrapersBeside(t *testing.T) {
	timed.Only(t)
	d := serve(t, "--policy", "../deploy/policy/fetal-health.yaml")
	calls := ckdv1.NewUncertaintyServiceClient(d.dial())
	request := &ckdv1.DecomposeRequest{Model: "fetal-health", Layout: ckdv1.Layout_LAYOUT_NSK, Inputs: 1, Passes: 30}
	for range 30 {
		request.Values = append(request.Values, 0.5, 0.3, 0.2)
	}
	median := func() time.Duration {
		took := make([]time.Duration, 3000)
		for i := range took {
			begun := time.Now()
			if _, err := calls.Decompose(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			took[i] = time.Since(begun)
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	var ratios []float64
	for range 3 {
		median() // warm up
		alone := median()
		beside, answered := withScrapers(t, d, 50, median)
		t.Logf("median of small calls %v alone, %v with 50 scrapers, who got %d answers", alone, beside, answered)
		ratios = append(ratios, float64(beside)/float64(alone))
	}
	if best := slices.Min(ratios); best > 2 {
		t.Errorf("small calls take %.2f times as long with 50 scrapers, expected at most 2", best)
	}
}

// withScrapers runs measure while clients scrape, and returns the number of their answers too.
func withScrapers(t *testing.T, d *daemon, clients int, measure func() time.Duration) (time.Duration, int64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var answered atomic.Int64
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	get := func(path string) int {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.Admin+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		answer, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			return 0 // the measurement is over
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return 0 // the measurement is over
		}
		answered.Add(1)
		return answer.StatusCode
	}
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				if code := get("/metrics"); code != http.StatusOK && code != http.StatusServiceUnavailable && ctx.Err() == nil {
					t.Errorf("a scrape is answered with %d", code)
					return
				}
			}
		})
	}
	all.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			if code := get("/healthz"); code != http.StatusOK && ctx.Err() == nil {
				t.Errorf("/healthz is answered with %d", code)
			}
		}
	})
	took := measure()
	stop()
	all.Wait()
	return took, answered.Load()
}
