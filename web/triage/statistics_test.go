package triage

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"
)

// TestWilson compares intervals with table I, method 3, of Newcombe, "Two-sided confidence
// intervals for the single proportion", Statistics in Medicine 17 (1998), to the four digits given
// there.
func TestWilson(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ part, total, low, high float64 }{
		{81, 263, 0.2553, 0.3662},
		{15, 148, 0.0624, 0.1605},
		{0, 20, 0, 0.1611},
		{1, 29, 0.0061, 0.1718},
	} {
		got := wilson(c.part, c.total)
		if got.Value != c.part/c.total || math.Abs(got.Low-c.low) > 5e-5 || math.Abs(got.High-c.high) > 5e-5 {
			t.Errorf("%v of %v: %+v, expected %v to %v", c.part, c.total, *got, c.low, c.high)
		}
	}
	if got := wilson(0, 0); got != nil {
		t.Errorf("of nothing: %+v, expected none", *got)
	}
}

// TestQuantiles compares quantiles of random values with the sorted values, through native
// histograms of client_golang as fine as the daemon's, and finer.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		factor := rapid.SampledFrom([]float64{1.19, 1.1, 1.05, 1.02}).Draw(t, "factor") // schemas 2 to 5
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", NativeHistogramBucketFactor: factor, NativeHistogramZeroThreshold: 1e-6})
		values := rapid.SliceOfN(rapid.OneOf(
			rapid.Float64Range(0, 1),
			rapid.Map(rapid.Float64Range(-20, 0), math.Exp),
			rapid.SampledFrom([]float64{0, 1e-6, 1.05e-6, 1e-3, 0.25, 0.5, 1}),
		), 1, 300).Draw(t, "values")
		for _, v := range values {
			h.Observe(v)
		}
		var m dto.Metric
		if err := h.Write(&m); err != nil {
			t.Fatal(err)
		}
		buckets := make([]uint64, numBuckets)
		readBuckets(buckets, m.GetHistogram())
		holdsQuantiles(t, quantiles(buckets), values)
		total := uint64(0)
		for _, n := range buckets {
			total += n
		}
		if total != uint64(len(values)) {
			t.Fatalf("%d in buckets, expected %d", total, len(values))
		}
	})
}
