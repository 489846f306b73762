package metrics

import "math"

// scale is how a histogram divides its range, twice over: into the few classic
// buckets that every Prometheus can read, and into native ones. All models share
// the edges, so that their histograms aggregate.
//
// The native buckets are of schema 3, eight to every doubling, each 9% wide.
// Their number is not limited dynamically, which would change the resolution
// behind the reader's back: it is bounded by the zero threshold below and by
// what the values can be above, at 8 per doubling in between. What lies at or
// under the zero threshold is one bucket.
type scale struct {
	edges         []float64 // classic, at most 12
	zeroThreshold float64
	top           float64 // a power of two, at most largest, that values seldom come up to: see layout
	largest       float64 // value that is observed, larger ones being taken for it
}

// zeroNats is a hundredth of the lowest classic edge. Thresholds on C_k and its
// sums lie between 1e-4 and 1 nat; what is under 1e-6 makes no difference to
// any, but classes that are nearly impossible have many such values, spread over
// ten decades. Up to 1 nat there are then 160 native buckets.
const zeroNats = 1e-6

var (
	// contribution is for C_k, at most S/(2(S-1)): 1 at S = 2, near 0.5 for many
	// passes. Thresholds lie between 1e-4 and 1.
	contribution = scale{
		[]float64{1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1},
		zeroNats, 2, math.Inf(1),
	}

	// total is for sums over classes, mutual information and sum_c, side by side
	// so that they can be compared. The first is at most log K; the second can
	// exceed it.
	total = scale{
		[]float64{1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5},
		zeroNats, 1 << 10, math.Inf(1),
	}

	// entropy is at most log K. From 0.7 on the edges are just above log K of 2,
	// 3, 4, 10, 100 and 1000 classes.
	entropy = scale{
		[]float64{0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.1, 1.4, 2.4, 4.7, 7},
		zeroNats, 1 << 5, math.Inf(1),
	}

	// ratio is for skewness, at most (S-1)(S-2)/(3S): 0.8 at S = 5, 9 at 30, 32 at
	// 100. 0.3 is the default reliability threshold; 0.1, 0.2 and 0.5 are others
	// that have been in use. Under a thousandth, hundreds of times below them,
	// C_k is as good as exact.
	ratio = scale{
		[]float64{0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1, 2, 4, 8, 16, 32},
		1e-3, 1 << 19, largestSkewness,
	}
)

// largestSkewness that is observed, larger ones being taken for it. Passes reach
// S/3 and so never come here, but concentrations near 0 have ratios up to the
// largest float, which would spoil the sum and make thousands of native buckets.
const largestSkewness = 1e6
