package kernel

import "math"

// Narrow is the sum over the passes of (p/mean-1)^2 under which Moments takes M
// from the other moments.
const Narrow = narrow

// InverseRoots writes 1/sqrt(mean + Epsilon) to dst.
func InverseRoots(dst, mean []float64) {
	_ = dst[:len(mean)]
	if !vectorInverseRoots(dst, mean) {
		scalarInverseRoots(dst, mean)
	}
}

// Confusion writes max(0, -sums[j]) scale roots[j] to terms[j], and returns the
// sum of weights[j] terms[j].
func Confusion(terms, sums, roots, weights []float64, scale float64) float64 {
	n := len(terms)
	sums, roots, weights = sums[:n], roots[:n], weights[:n]
	if total, ok := vectorConfusion(terms, sums, roots, weights, scale); ok {
		return total
	}
	return scalarConfusion(terms, sums, roots, weights, scale)
}

// Sum is the sum of values: of few from the first to the last, of many in eight
// parts, of every eighth each.
func Sum(values []float64) float64 {
	if len(values) < 2*lanes {
		total := 0.0
		for _, v := range values {
			total += v
		}
		return total
	}
	if total, ok := vectorSum(values); ok {
		return total
	}
	return scalarSum(values)
}

func scalarInverseRoots(dst, mean []float64) {
	for j, mu := range mean {
		dst[j] = 1 / math.Sqrt(mu+Epsilon)
	}
}

func scalarConfusion(terms, sums, roots, weights []float64, scale float64) float64 {
	var parts [lanes]float64
	for j, sum := range sums {
		terms[j] = float64(float64(max(-sum, 0)*scale) * roots[j])
		parts[j%lanes] = math.FMA(weights[j], terms[j], parts[j%lanes])
	}
	return together(parts)
}

func scalarSum(values []float64) float64 {
	var parts [lanes]float64
	for j, v := range values {
		parts[j%lanes] += v
	}
	return together(parts)
}

// together adds the parts as halves of registers are.
func together(p [lanes]float64) float64 {
	return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]))
}

func vectorInverseRoots(_, _ []float64) bool                          { return false }
func vectorConfusion(_, _, _, _ []float64, _ float64) (float64, bool) { return 0, false }
func vectorSum(_ []float64) (float64, bool)                           { return 0, false }
