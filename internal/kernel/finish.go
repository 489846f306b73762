package kernel

import "math"

// Narrow is the sum over the passes of (p/mean-1)^2 under which Moments takes M
// from the other moments.
const Narrow = narrow

// InverseRoots writes 1/sqrt(mean + Epsilon) to dst.
func InverseRoots(dst, mean []float64) {
	dst = dst[:len(mean)]
	done := vectorInverseRoots(dst, mean)
	scalarInverseRoots(dst[done:], mean[done:])
}

// Confusion writes max(0, -sums[j]) scale roots[j] to terms[j], and returns the
// sum of weights[j] terms[j]; see Sum for its order.
func Confusion(terms, sums, roots, weights []float64, scale float64) float64 {
	n := len(terms)
	sums, roots, weights = sums[:n], roots[:n], weights[:n]
	var parts [lanes]float64
	done := vectorConfusion(&parts, terms, sums, roots, weights, scale)
	scalarConfusion(&parts, terms[done:], sums[done:], roots[done:], weights[done:], scale)
	return together(&parts)
}

// ManyValues is from how many on Sum adds up in parts.
const ManyValues = 2 * lanes

// Sum is the sum of values: of few from the first to the last, of many in eight
// parts, of every eighth each.
func Sum(values []float64) float64 {
	if len(values) < ManyValues {
		total := 0.0
		for _, v := range values {
			total += v
		}
		return total
	}
	var parts [lanes]float64
	done := vectorSum(&parts, values)
	scalarSum(&parts, values[done:])
	return together(&parts)
}

func scalarInverseRoots(dst, mean []float64) {
	for j, mu := range mean {
		dst[j] = 1 / math.Sqrt(mu+Epsilon)
	}
}

func scalarConfusion(parts *[lanes]float64, terms, sums, roots, weights []float64, scale float64) {
	for j, sum := range sums {
		terms[j] = float64(float64(max(-sum, 0)*scale) * roots[j])
		parts[j%lanes] = math.FMA(weights[j], terms[j], parts[j%lanes])
	}
}

func scalarSum(parts *[lanes]float64, values []float64) {
	for j, v := range values {
		parts[j%lanes] += v
	}
}

// together adds up the parts.
func together(p *[lanes]float64) float64 {
	return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]))
}
