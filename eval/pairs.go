package eval

import "math"

// sameRanking reports whether two keys order some inputs alike, up to rounding. The orders have the
// inputs by ascending keys.
func sameRanking(a, b []float64, orderA, orderB []int32) bool {
	return follows(a, b, orderA) && follows(b, a, orderB)
}

// follows reports whether key b rises along the order of key a and is tied where a is tied, up to
// rounding: rows that sum to one in float32 move scores that are equal by definition by some
// millionths of themselves.
func follows(a, b []float64, order []int32) bool {
	const relative, absolute = 1e-5, 1e-6
	largest := 0.0
	for _, i := range order {
		if v := math.Abs(b[i]); v > largest && !math.IsInf(v, 0) {
			largest = v
		}
	}
	near := func(x, y float64) bool {
		return x == y || math.Abs(x-y) <= relative*max(math.Abs(x), math.Abs(y))+absolute*largest
	}
	highest := math.Inf(-1)
	for j, i := range order {
		v := b[i]
		if v < highest && !near(v, highest) {
			return false
		}
		if j > 0 && a[i] == a[order[j-1]] && !near(v, b[order[j-1]]) {
			return false
		}
		highest = max(highest, v)
	}
	return true
}
