package decomp

import "math"

// spread returns Result.Spread of an input whose means and variances are in r. Where squares of the
// runner-up's probabilities may underflow, it goes over the passes again.
func spread[T float](passes panel[T], r *Result) float64 {
	first, second := 0, 1
	if r.Mean[1] > r.Mean[0] {
		first, second = 1, 0
	}
	for k, mu := range r.Mean[2:] {
		switch k += 2; {
		case mu > r.Mean[first]:
			first, second = k, first
		case mu > r.Mean[second]:
			second = k
		}
	}
	mu := r.Mean[second]
	switch {
	case mu == 0:
		return 0
	case mu > 1e-140:
		return math.Sqrt(r.Variance[second]) / mu
	}
	sum := 0.0
	for s := range passes.passes {
		d := float64(passes.row(s)[second])/mu - 1
		sum += d * d
	}
	return math.Sqrt(sum / float64(passes.passes-1))
}

// leastSpread returns the Spread below which an input with this many passes is degenerate. From five
// passes on it is 0.01: the least of genuine inputs is 0.04, the most of one pass repeated with noise of
// 1e-3 on its logits is below 0.01. Few passes can be close to each other by chance, at a rate that
// grows as Spread^(S-1), so that fewer have a lower bound. BENCHMARKS.md has the measurements.
func leastSpread(passes int) float64 {
	switch {
	case passes <= 2:
		return 1e-4
	case passes == 3:
		return 1e-3
	case passes == 4:
		return 5e-3
	}
	return 1e-2
}

// squashedRange returns the least and the largest value of a softmax over K classes whose arguments are
// probabilities, from 0 to 1:
//
//	1/(1+(K-1)e) and e/(e+K-1)
//
// Both are moved outwards by 0.5%, for values that were rounded to bfloat16.
func squashedRange(classes int) (least, largest float64) {
	const rounding = 0.005
	others := float64(classes - 1)
	return (1 - rounding) / (1 + others*math.E), (1 + rounding) * math.E / (math.E + others)
}

// squashed reports whether every value of an input's passes lies in the squashedRange of the plan. The
// means, which tell in nearly all inputs that it is not so, are looked at first.
func squashed[T float](p *Plan, passes panel[T], mean []float64) bool {
	for _, mu := range mean {
		if mu < p.squashed.least || mu > p.squashed.largest {
			return false
		}
	}
	least, largest := T(p.squashed.least), T(p.squashed.largest)
	for s := range passes.passes {
		for _, v := range passes.row(s) {
			if v < least || v > largest {
				return false
			}
		}
	}
	return true
}
