package follow

import "math"

// logarithm returns log(v) to 0.006. It is continuous, rising, and exact at powers of 2, and costs
// a tenth of math.Log. It returns NaN unless v is a positive normal number.
func logarithm(v float64) float64 {
	const oneBits, unit = 1023 << 52, 1.0 / (1 << 52)
	bits := math.Float64bits(v)
	if bits-1<<52 >= 0x7ff<<52-1<<52 {
		return math.NaN()
	}
	// v = 2^n (1+x) with 0 <= x < 1. The bits give n+x, and log2(1+x)-x is nearly a parabola.
	x := math.Float64frombits(bits&(1<<52-1)|oneBits) - 1
	return (unit*math.Ln2)*float64(int64(bits)-oneBits) + (0.34655539*math.Ln2)*(x-x*x)
}

// entropy returns -sum_k p_k log p_k in nats, where 0 log 0 = 0.
func entropy[T float32 | float64](p []T) float64 {
	h := 0.0
	for _, t := range p {
		if v := float64(t); v > 0 {
			h -= v * math.Log(v)
		}
	}
	return h
}

// softmax replaces logits by their probabilities. It shifts them by the largest, so that nothing
// overflows.
func softmax(z []float64) {
	top, sum := math.Inf(-1), 0.0
	for _, v := range z {
		top = max(top, v)
	}
	for k, v := range z {
		z[k] = math.Exp(v - top)
		sum += z[k]
	}
	for k := range z {
		z[k] /= sum
	}
}
