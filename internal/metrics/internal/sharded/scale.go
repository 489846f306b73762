package sharded

import "sync"

// Scale says how a histogram divides its range: into a few classic buckets, which every Prometheus
// can read, and into native ones. All models share the edges, so that their histograms aggregate.
//
// The native buckets have schema 3: eight to a doubling, each 9% wide. Their number needs no dynamic
// limit, which would change the resolution behind the reader's back: the zero threshold and Top
// bound it. Values up to the zero threshold share one bucket.
type Scale struct {
	Edges         []float64 // upper edges of the classic buckets, ascending, at most 12
	ZeroThreshold float64
	Top           float64 // a power of two that values seldom reach; larger ones are observed as this one
}

// zeroNats is a hundredth of the lowest classic edge. Thresholds on C_k and its sums lie between 1e-4
// and 1 nat, so values under 1e-6 make no difference. Classes that are nearly impossible have many
// such values, spread over ten decades. From zeroNats up to 1 nat there are 160 native buckets.
const zeroNats = 1e-6

var (
	// Contribution is for C_k in nats, at most S/(2(S-1)) for S passes: 1 at S = 2, near 0.5 for
	// many. Thresholds lie between 1e-4 and 1.
	Contribution = Scale{
		[]float64{1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1},
		zeroNats, 2,
	}

	// Total is for mutual information and the sum of C_k, in nats, so that they compare side by side.
	// Mutual information is at most log K for K classes; the sum can exceed it.
	Total = Scale{
		[]float64{1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5},
		zeroNats, 1 << 10,
	}

	// Entropy is for entropies in nats, at most log K for K classes. The edges from 0.7 on lie just
	// above log K of 2, 3, 4, 10, 100 and 1000 classes.
	Entropy = Scale{
		[]float64{0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.1, 1.4, 2.4, 4.7, 7},
		zeroNats, 1 << 5,
	}

	// Ratio is for skewness, at most (S-1)(S-2)/(3S) for S passes: 0.8 at S = 5, 9 at 30, 32 at 100.
	// The default reliability threshold is 0.3; 0.1, 0.2 and 0.5 are in use, too. Under a thousandth,
	// hundreds of times below them, C_k is as good as exact. Concentrations near 0 have ratios up to the
	// largest float, which would spoil the sum.
	Ratio = Scale{
		[]float64{0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1, 2, 4, 8, 16, 32},
		1e-3, 1 << 19,
	}
)

// LayoutSet holds the layouts of the four scales.
type LayoutSet struct{ Contribution, Total, Entropy, Ratio *Layout }

// Layouts returns the layouts of the four scales. They are made once, when first needed.
var Layouts = sync.OnceValue(func() (l LayoutSet) {
	l.Contribution, l.Total = NewLayout(Contribution), NewLayout(Total)
	l.Entropy, l.Ratio = NewLayout(Entropy), NewLayout(Ratio)
	return l
})
