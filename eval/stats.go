package eval

import (
	"cmp"
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

// tie counts the values of each of two columns that are equal.
type tie struct{ a, b int }

// ties returns the ties of two columns from the highest value to the lowest.
func ties(a, b []float64) []tie {
	descending := func(x, y float64) int { return cmp.Compare(y, x) }
	a, b = slices.SortedFunc(slices.Values(a), descending), slices.SortedFunc(slices.Values(b), descending)
	var all []tie
	for len(a) > 0 || len(b) > 0 {
		value := math.Inf(-1)
		if len(a) > 0 {
			value = a[0]
		}
		if len(b) > 0 {
			value = max(value, b[0])
		}
		var t tie
		for t.a < len(a) && a[t.a] == value {
			t.a++
		}
		for t.b < len(b) && b[t.b] == value {
			t.b++
		}
		a, b = a[t.a:], b[t.b:]
		all = append(all, t)
	}
	return all
}

// separation says how well a score tells two columns apart, if it should be higher outside. All
// figures are 0 where either column is empty.
type separation struct {
	// auroc is the chance that an outside value is above an inside one; equal values count half.
	auroc float64
	// aupr is the average precision: the sum over thresholds of the gain in recall times the
	// precision, a step for each tie.
	aupr float64
	// fpr95 is the share of inside values at or above the highest threshold that has at least 0.95
	// of the outside ones at or above it.
	fpr95 float64
	// p is the p-value of the two-sided Mann-Whitney test, by the normal approximation with
	// corrections for ties and continuity; 1 where all values are equal. It may underflow; log10p
	// does not.
	p, log10p float64
}

// separate compares values inside a distribution with values outside of it.
func separate(inside, outside []float64) separation {
	if len(inside) == 0 || len(outside) == 0 {
		return separation{}
	}
	nIn, nOut := float64(len(inside)), float64(len(outside))
	n := nIn + nOut
	var s separation
	var below, out, above, tied float64 // below and out: values so far; tied: the sum of t^3 - t
	found := false
	for _, t := range ties(outside, inside) {
		hitOut, hitIn := float64(t.a), float64(t.b)
		above += hitIn * (out + hitOut/2)
		below, out = below+hitIn, out+hitOut
		s.aupr += hitOut / nOut * (out / (below + out))
		if !found && out/nOut >= 0.95 {
			s.fpr95, found = below/nIn, true
		}
		both := hitIn + hitOut
		tied += both * (both*both - 1)
	}
	s.auroc = above / nIn / nOut

	u := max(above, nIn*nOut-above)
	sd := math.Sqrt(nIn * nOut / 12 * (n + 1 - tied/(n*(n-1))))
	s.p, s.log10p = 1, 0
	if z := (u - nIn*nOut/2 - 0.5) / sd; sd > 0 && z > 0 {
		s.p = math.Erfc(z / math.Sqrt2)
		s.log10p = log10Erfc(z / math.Sqrt2)
	}
	return s
}

// log10Erfc returns log10(erfc(x)) for x >= 0. Beyond 20 it uses the asymptotic series, whose error
// there is under 1e-11.
func log10Erfc(x float64) float64 {
	if x < 20 {
		return math.Log10(math.Erfc(x))
	}
	y := 1 / (2 * x * x)
	series := 1 - y*(1-3*y*(1-5*y*(1-7*y)))
	return (-x*x-math.Log(x*math.Sqrt(math.Pi)))/math.Ln10 + math.Log10(series)
}
