package fullpass

import "math"

// bets lists the log odds ratios that Interval bets on: 1/64, 1/32, ... 8, each with the same share
// of the capital. At n checks of mean m the best one is near sqrt(12/(n m (1-m))): these suit a few
// checks as well as tens of thousands of disagreements. Beyond, the interval hardly gets narrower
// than about 1% of the mean to either side.
var bets = func() (all [10]bet) {
	for j := range all {
		s := math.Ldexp(1, j-6)
		all[j] = bet{s, math.Expm1(s), math.Expm1(-s)}
	}
	return all
}()

// bet is a log odds ratio s with exp(s) - 1 and exp(-s) - 1.
type bet struct{ s, up, down float64 }

// interval returns a confidence interval of the share of inputs that disagree, in [0, 1], given how
// many checked inputs did. It holds at all times at once: the probability that the share is ever
// outside is at most 1 - confidence, however often one looks and whenever one stops. The share is
// the mean over the checked inputs of the probability to disagree, given all checks before; it may
// change over time.
//
// It is the betting interval with hedged capital (Waudby-Smith and Ramdas, "Estimating means of
// bounded random variables by betting", JRSS B 86, 2024, theorem 3), with a mixture of constant
// bets (their dKelly). Against the hypothesis that the mean is m, with k disagreements in n checks,
// the capital is
//
//	W±(m) = mean over s of exp(±s k - n log(1 + m (exp(±s) - 1)))
//
// which is what the bets lambda = (e^s - 1)/(1 + m (e^s - 1)) have made of 1 in the product of the
// 1 + lambda (x - m). The interval holds the m for which both W+(m) and W-(m) are below 2/(1 -
// confidence). As log(1 + m (e^s - 1)) is concave in m, capital against the mean of the true
// probabilities is at most that against each of them in turn, which is a martingale: so the
// probability need not be constant. (Their plug-in bets need it constant, and a grid of m with a
// history; interval needs only the two counts.)
//
// At 95%, up to 30000 disagreements, it is at most 1.8 times as wide as the interval of Clopper and
// Pearson, which holds only at a number of checks fixed beforehand. Without a disagreement in n >=
// 100 checks it is [0, 5/n].
//
// Low and high round outwards. They are 0 and 1 without checks, and for arguments that make no
// sense: more disagreements than checks, or a confidence outside (0, 1).
func interval(disagreements, checked uint64, confidence float64) (low, high float64) {
	if checked == 0 || disagreements > checked || !(confidence > 0 && confidence < 1) {
		return 0, 1
	}
	k, n, threshold := float64(disagreements), float64(checked), math.Log(2/(1-confidence))
	low = end(0, k/n, func(m float64) bool { return logCapital(m, k, n, false) >= threshold })
	high = end(1, k/n, func(m float64) bool { return logCapital(m, k, n, true) >= threshold })
	return low, high
}

// logCapital returns log W+(m), or log W-(m) if lower.
func logCapital(m, k, n float64, lower bool) float64 {
	var logs [len(bets)]float64
	most := math.Inf(-1)
	for j, b := range bets {
		if lower {
			logs[j] = -b.s*k - n*math.Log1p(m*b.down)
		} else {
			logs[j] = b.s*k - n*math.Log1p(m*b.up)
		}
		most = max(most, logs[j])
	}
	sum := 0.0
	for _, l := range logs {
		sum += math.Exp(l - most)
	}
	return most + math.Log(sum/float64(len(bets)))
}

// end returns the end of the interval between out, which is 0 or 1, and in, a mean inside it: the
// last m that is refuted, or out if out is not.
func end(outside, inside float64, refuted func(m float64) bool) float64 {
	if !refuted(outside) {
		return outside
	}
	for {
		m := (outside + inside) / 2
		if m == outside || m == inside {
			return outside
		}
		if refuted(m) {
			outside = m
		} else {
			inside = m
		}
	}
}
