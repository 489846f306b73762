package decomp

import "math"

// divergence returns the Bregman divergence of x log x,
//
//	a log(a/b) - a + b,
//
// for a, b >= 0, and 0 only for a = b. The caller passes d = a-b, which it knows more exactly than
// the difference of the rounded a and b. The mean over the passes, with b the mean of a, is M_k.
//
// Near a = b the two terms cancel. With r = d/(a+b) = (a-b)/(a+b) and log(a/b) = 2 atanh r = 2(r +
// t), t = r^3/3 + r^5/5 + ...,
//
//	a log(a/b) - a + b = 2b (r^2 + (1+r) t) / (1-r),
//
// in which nothing cancels.
func divergence(a, b, d float64) float64 {
	switch {
	case d == 0 || b == 0: // b is a mean of values >= 0: if it is 0, so is a
		return 0
	case a == 0:
		return b
	case math.Abs(d) < 0.25*b:
		r := d / (a + b)
		q := r * r
		// |r| < 1/7: the first term left out is below 2^-53 of r^2.
		t := r * q * (1./3 + q*(1./5+q*(1./7+q*(1./9+q*(1./11+q*(1./13+q*(1./15+q*(1./17+q*(1./19)))))))))
		return 2 * b * (q + (1+r)*t) / (1 - r)
	}
	return a*math.Log(a/b) - d
}
