package clustered

import (
	"math"
	"math/cmplx"
	"sort"
)

// Group holds the counts of one group: its cases, and how many of them are misses. Expected misses
// need not be whole.
type Group struct {
	Cases  int
	Misses float64
}

// Tail returns the p-value, in [0,1], of "the share of misses among the cases is above a", for a in
// (0,1), over groups drawn independently as these were. The share is of all cases of all groups, so
// that large groups count for more. No group has more than most cases; how cases of one group hang
// together does not matter. Groups without cases are ignored, and the p-value without any case is 1.
//
// With d_g = misses_g - a cases_g, the share is above a exactly if E[d] > 0. The test is Gaffke's,
// of the mean of a variable that is bounded above ("Three test statistics for a nonparametric
// one-sided hypothesis on the mean of a nonnegative variable", 2005; also Learned-Miller and Thomas,
// "A New Confidence Interval for the Mean of a Bounded Random Variable", 2019): one group of the
// worst kind, d_0 = (1-a) most, is added, and the p-value is
//
//	P(sum_g w_g d_g + w_0 d_0 >= 0)
//
// for weights w drawn uniformly from all that sum to 1. If every group is one case, this is the
// exact binomial.Tail(misses, cases, a). That the level is kept for all distributions is a
// conjecture: no counterexample is known, and none turned up in the simulations of this package's
// tests.
func Tail(groups []Group, a float64, most int) float64 { return newTest(groups, a, most).pValue(1) }

// Interval returns an interval of the share of misses among the cases, with at least the confidence,
// by two tests as Tail has them. If every group is one case, it is the exact binomial.Interval. It is
// [0,1] without any case.
func Interval(groups []Group, most int, confidence float64) (low, high float64) {
	tail := (1 - confidence) / 2
	hits := make([]Group, len(groups))
	for i, g := range groups {
		hits[i] = Group{g.Cases, float64(g.Cases) - g.Misses}
	}
	return 1 - upper(hits, most, tail), upper(groups, most, tail)
}

// upper returns the least share at which the p-value is at most tail, to 1e-12; 1 where there is none.
// The logarithm of the p-value falls with the share, smoothly, so that regula falsi takes far fewer
// steps than bisection.
func upper(groups []Group, most int, tail float64) float64 {
	const near, least = 1e-12, -700 // of shares; logarithm of the least p-value told apart from 0
	above := func(a float64) float64 { return max(math.Log(Tail(groups, a, most)), least) - math.Log(tail) }
	low, high := 0.0, 1-near
	atLow, atHigh := above(low), above(high)
	if atHigh > 0 {
		return 1
	}
	for side := 0; high-low > near; {
		a := high - atHigh*(high-low)/(atHigh-atLow)
		if a = min(max(a, low+near/2), high-near/2); high-low > 0.5 {
			a = (low + high) / 2
		}
		// The Illinois rule halves the value at an end that stays, so that both ends move.
		switch tail := above(a); {
		case tail > 0:
			low, atLow = a, tail
			if side++; side > 1 {
				atHigh /= 2
			}
			side = max(side, 1)
		default:
			high, atHigh = a, tail
			if side--; side < -1 {
				atLow /= 2
			}
			side = min(side, -1)
		}
	}
	return high
}

// Enough returns how many times as many groups like these give a p-value of at most alpha; +Inf if
// no number of them does.
func Enough(groups []Group, a float64, most int, alpha float64) float64 {
	t := newTest(groups, a, most)
	mean := 0.0
	for _, one := range t.terms {
		mean += one.n * one.d
	}
	if mean >= 0 {
		return math.Inf(1)
	}
	low, high := 0.0, 1.0
	for t.pValue(high) > alpha {
		if low, high = high, 2*high; high > 1e9 {
			return math.Inf(1)
		}
	}
	for range 40 {
		if mid := (low + high) / 2; t.pValue(mid) > alpha {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// term holds n groups of the same d.
type term struct{ d, n float64 }

// test holds what a p-value is computed from: the terms, and the group that is added.
type test struct {
	terms []term
	worst float64
}

func newTest(groups []Group, a float64, most int) *test {
	n := map[Group]int{}
	for _, g := range groups {
		if g.Cases > 0 {
			n[g]++
		}
	}
	t := &test{worst: (1 - a) * float64(most)}
	for g, times := range n {
		t.terms = append(t.terms, term{g.Misses - a*float64(g.Cases), float64(times)})
	}
	sort.Slice(t.terms, func(i, j int) bool { return t.terms[i].d < t.terms[j].d }) // for the same sums each time
	return t
}

// pValue returns the p-value with each group repeated the given number of times. Uniform weights are exponential
// variables over their sum, so that it is P(Q >= 0) for Q = sum_j d_j Gamma(n_j) + d_0 Gamma(1),
// whose cumulant function is K(s) = -sum_j n_j log(1 - d_j s). The probability is the integral of
// exp(K(s))/s over s = c + iu, over 2 pi, for a c > 0 at which K is finite.
func (t *test) pValue(times float64) float64 {
	if len(t.terms) == 0 || t.terms[0].d >= 0 {
		return 1
	}
	terms := []term{{t.worst, 1}}
	largest := t.worst
	for _, one := range t.terms {
		terms = append(terms, term{one.d, times * one.n})
		largest = max(largest, one.d)
	}
	// The slope of K(s) - log s rises from -Inf at 0 to +Inf where K ends. At its root the integrand
	// falls fastest to both sides.
	slope := func(s float64) float64 {
		sum := -1 / s
		for _, one := range terms {
			sum += one.n * one.d / (1 - one.d*s)
		}
		return sum
	}
	low, high := 0.0, 1/largest
	for range 200 {
		if mid := (low + high) / 2; slope(mid) < 0 {
			low = mid
		} else {
			high = mid
		}
	}
	c := (low + high) / 2
	curvature := 1 / (c * c)
	for _, one := range terms {
		curvature += one.n * one.d * one.d / ((1 - one.d*c) * (1 - one.d*c))
	}
	width := 1 / math.Sqrt(curvature)
	integrand := func(u float64) complex128 {
		s := complex(c, u)
		sum := -cmplx.Log(s)
		for _, one := range terms {
			sum -= complex(one.n, 0) * cmplx.Log(1-complex(one.d, 0)*s)
		}
		return sum
	}
	// The trapezoidal rule in x, where u = width sinh(x).
	const (
		step     = 1. / 32
		vanished = -40 // exponent beside the middle's
	)
	middle := real(integrand(0))
	sum := 0.5
	for x := step; ; x += step {
		v := integrand(width*math.Sinh(x)) - complex(middle, 0)
		grown := math.Cosh(x)
		if real(v)+math.Log(grown) < vanished {
			break
		}
		sum += real(cmplx.Exp(v)) * grown
	}
	return min(1, max(0, math.Exp(middle)*width*step*sum/math.Pi))
}
