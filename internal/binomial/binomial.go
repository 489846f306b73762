package binomial

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Tail returns P(X <= k), in [0,1], for X from a binomial distribution of n events of chance p
// each. It returns 0 for k < 0 and 1 for k >= n. Counts that are not whole interpolate, by the
// regularised incomplete beta function I_{1-p}(n-k, k+1).
func Tail[N int | float64](k, n N, p float64) float64 {
	switch {
	case k < 0:
		return 0
	case k >= n:
		return 1
	}
	return mathext.RegIncBeta(float64(n-k), float64(k+1), 1-p)
}

// Interval returns the exact interval (Clopper and Pearson) of a share, of which k of n were seen.
// It holds the true share with at least the confidence, and splits the rest between both sides. For
// n = 0 it is [0,1]. Counts that are not whole interpolate.
func Interval[N int | float64](k, n N, confidence float64) (low, high float64) {
	tail := (1 - confidence) / 2
	return atLeast(k, n, tail), 1 - atLeast(n-k, n, tail)
}

// Upper returns the upper end of the exact one-sided interval: the share at which k or fewer of n
// have the chance 1-confidence. It is 1 for k >= n.
func Upper(k, n int, confidence float64) float64 {
	if k >= n {
		return 1
	}
	return mathext.InvRegIncBeta(float64(k+1), float64(n-k), confidence)
}

// atLeast returns the share at which k or more of n have the chance tail: 0 for k = 0, tail^(1/n)
// for k = n.
func atLeast[N int | float64](k, n N, tail float64) float64 {
	switch k {
	case 0:
		return 0
	case n:
		return math.Pow(tail, 1/float64(n))
	}
	return mathext.InvRegIncBeta(float64(k), float64(n-k+1), tail)
}
