package eval

import (
	"math"
	"slices"
)

// ranks returns the ranks of values from 1, the lowest. Equal values share the mean of their ranks.
func ranks(values []float64) []float64 {
	ranks := make([]float64, len(values))
	order := ascending(values)
	for from := 0; from < len(order); {
		end := from + 1
		for end < len(order) && values[order[end]] == values[order[from]] {
			end++
		}
		for _, i := range order[from:end] {
			ranks[i] = float64(from+1+end) / 2
		}
		from = end
	}
	return ranks
}

// pearson returns the correlation of two columns of one length, in [-1,1]. It is 0 where one of
// them is constant or empty.
func pearson(a, b []float64) float64 {
	da, db := deviations(a), deviations(b)
	var ab, aa, bb float64
	for i := range da {
		ab += da[i] * db[i]
		aa += da[i] * da[i]
		bb += db[i] * db[i]
	}
	return max(-1, min(1, ratio(ab, math.Sqrt(aa)*math.Sqrt(bb))))
}

// deviations returns the deviations of values from their mean, as shares of the largest, so that
// their squares do not underflow. All are 0 where the values are equal, even if their mean is
// rounded.
func deviations(values []float64) []float64 {
	d := make([]float64, len(values))
	if len(values) == 0 || slices.Min(values) == slices.Max(values) {
		return d
	}
	m, largest := mean(values), 0.0
	for i, v := range values {
		d[i] = v - m
		largest = max(largest, math.Abs(d[i]))
	}
	for i := range d {
		d[i] = ratio(d[i], largest)
	}
	return d
}

// spearman returns the correlation of the ranks of two columns of one length.
func spearman(a, b []float64) float64 { return pearson(ranks(a), ranks(b)) }

// quantile returns the quantile of ascending values at p in [0,1], linear between two of them
// (NumPy's default, type 7 of Hyndman and Fan). It is 0 of no values.
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := p * float64(len(sorted)-1)
	low := min(int(rank), len(sorted)-1)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (rank-float64(low))*(sorted[high]-sorted[low])
}

// sampleSD returns the standard deviation of values, with divisor n-1. It is 0 of fewer than two.
func sampleSD(values []float64) float64 {
	m, sum := mean(values), 0.0
	for _, v := range values {
		sum += (v - m) * (v - m)
	}
	return math.Sqrt(ratio(sum, float64(len(values)-1)))
}

// mannWhitney compares values inside a distribution with values outside of it; there must be some of each.
// auroc is the chance that an outside value is above an inside one; equal values count half. p is the
// p-value of the two-sided Mann-Whitney test, by the normal approximation with corrections for ties and
// continuity; 1 where all values are equal.
func mannWhitney(inside, outside []float64) (auroc, p float64) {
	nIn, nOut := float64(len(inside)), float64(len(outside))
	n := nIn + nOut
	above, squares := -nOut*(nOut+1)/2, 0.0
	for i, rank := range ranks(slices.Concat(inside, outside)) {
		squares += rank * rank
		if i >= len(inside) {
			above += rank
		}
	}
	tied := 12 * (n*(n+1)*(2*n+1)/6 - squares) // the sum of t^3 - t over ties of t values
	u := max(above, nIn*nOut-above)
	sd := math.Sqrt(nIn * nOut / 12 * (n + 1 - tied/(n*(n-1))))
	p = 1
	if z := (u - nIn*nOut/2 - 0.5) / sd; sd > 0 && z > 0 {
		p = math.Erfc(z / math.Sqrt2)
	}
	return above / nIn / nOut, p
}
