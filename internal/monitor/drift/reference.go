package drift

import (
	"math"
	"slices"
	"sort"

	"github.com/ckd-project/ckd/policy"
)

// Quantiles is a distribution: element i of n is the quantile of level i/(n-1), so that the first
// is the smallest value seen and the last the largest.
type Quantiles []float64

// NewQuantiles returns the quantiles of values: at least one, and none NaN. Level q is the value of
// rank q(n-1) in ascending order, interpolated linearly between neighbours. It does not change
// values.
func NewQuantiles(values []float64) Quantiles {
	sorted := slices.Sorted(slices.Values(values))
	q := make(Quantiles, policy.Levels)
	for i := range q {
		rank := float64(i) / (policy.Levels - 1) * float64(len(sorted)-1)
		index := int(rank)
		q[i] = sorted[index]
		if within := rank - float64(index); within > 0 && sorted[index+1] > sorted[index] { // the difference of two infinities would be NaN
			q[i] += within * (sorted[index+1] - sorted[index])
		}
	}
	return q
}

// below returns the share of the distribution below x: P(Y < x).
func (q Quantiles) below(x float64) float64 {
	n := len(q) - 1
	index := sort.SearchFloat64s(q, x) // of the first quantile that is not below x
	switch {
	case index == 0:
		return 0
	case index > n:
		return 1
	}
	low, high := q[index-1], q[index]
	within := 0.0
	if high > low && !math.IsInf(high, 0) {
		within = (x - low) / (high - low)
	}
	return (float64(index-1) + min(max(within, 0), 1)) / float64(n)
}

// Ranks tabulates the rank of a value in a distribution, which is the share below it plus half of what
// equals it: for all values with the same exponent and first bits of the mantissa it has their mean.
type Ranks [(maxOctave - minOctave) << perOctave]float32

const (
	perOctave = 3   // bits: eight cells to an octave, each 6 to 12% wide
	minOctave = -47 // values under 2^-46, about 1e-14, count as 0
	maxOctave = 17  // values from 2^17 on count as the same
	rankShift = 52 - perOctave
	minRank   = (1023 + minOctave) << perOctave
)

// NewRanks returns the table of a distribution.
func NewRanks(q Quantiles) *Ranks {
	r := new(Ranks)
	low := 0.0
	for cell := range r {
		high := 1.0
		if cell < len(r)-1 {
			high = q.below(math.Float64frombits(uint64(minRank+cell+1) << rankShift))
		}
		r[cell] = float32((low + high) / 2)
		low = high
	}
	return r
}

// Of returns the mean rank of the values in the cell of v, which is at least 0; the result is
// in [0,1]. For NaN it is 1/2, as if nothing had moved.
func (r *Ranks) Of(v float64) float64 {
	if v != v {
		return 0.5
	}
	cell := int(math.Float64bits(v)>>rankShift) - minRank
	return float64(r[min(max(cell, 0), len(r)-1)])
}
