package decomp

import "math"

// dirichletScratch holds the concentrations, and their sums before and after each class.
type dirichletScratch struct{ alpha, before, after []float64 }

func newDirichletScratch(k int) dirichletScratch {
	return dirichletScratch{make([]float64, k), make([]float64, k), make([]float64, k)}
}

// finishDirichlet computes r from one row of checked concentrations, scratch.alpha. With alpha_0 =
// sum_k alpha_k and mu_k = alpha_k/alpha_0, over rows p ~ Dirichlet(alpha):
//
//	Var_k = mu(1-mu)/(alpha_0+1)           Cov_ij = -mu_i mu_j/(alpha_0+1)
//	m3_k  = 2mu(1-mu)(1-2mu)/((alpha_0+1)(alpha_0+2))
//	C_k   = Var_k/(2mu) = (1-mu)/(2(alpha_0+1))
//	skewness_k = |m3|/(3 mu Var) = 2|1-2mu|/(3(alpha_k+2mu))
//	E[p log p] = mu (psi(alpha_k+1) - psi(alpha_0+1))
//	pair_ij    = sqrt(mu_i mu_j)/(2(alpha_0+1))
//
// Without passes there is neither a Bessel correction nor Epsilon. 1-mu_k is taken from the sum of
// the other concentrations, so that it stays exact as mu_k approaches 1.
func (p *Plan) finishDirichlet(scratch *dirichletScratch, r *Result) {
	alpha, before, after := scratch.alpha, scratch.before, scratch.after
	total := 0.0
	for k, a := range alpha {
		before[k] = total
		total += a
	}
	tail := 0.0
	for k := len(alpha) - 1; k >= 0; k-- {
		after[k] = tail
		tail += alpha[k]
	}

	r.Passes = 1
	excess0 := digammaExcess(total)
	for k, a := range alpha {
		others := before[k] + after[k]
		mu, rest := a/total, others/total
		r.Mean[k] = mu
		r.Variance[k] = mu * rest / (total + 1)
		r.ThirdMoment[k] = 2 * mu * rest * (rest - mu) / (total + 1) / (total + 2)
		r.C[k] = rest / (2 * (total + 1))
		// The ratio of the smallest concentrations would overflow.
		r.Skewness[k] = min(2*math.Abs(rest-mu)/(3*(a+2*mu)), math.MaxFloat64)
		// psi(alpha_k+1) - psi(alpha_0+1) - log mu is the difference of excesses.
		r.M[k] = max(0, mu*(digammaExcess(a)-excess0))
	}
	for i, pair := range p.pairs {
		mu, nu := r.Mean[pair.A], r.Mean[pair.B]
		r.PairTerm[i] = math.Sqrt(mu*nu) / (2 * (total + 1))
		restA := (before[pair.A] + after[pair.A]) / total
		restB := (before[pair.B] + after[pair.B]) / total
		r.Correlation[i] = 0
		if spread := math.Sqrt(restA) * math.Sqrt(restB); spread > 0 {
			r.Correlation[i] = max(-1, -math.Sqrt(mu*nu)/spread)
		}
	}
	p.shares(r)
	ova := 0.0
	for _, k := range p.critical {
		// The marginal of class k is Beta(alpha_k, others).
		others := before[k] + after[k]
		ova += r.M[k] + max(0, others/total*(digammaExcess(others)-excess0))
	}
	r.Entropy = rowEntropy(r.Mean)
	r.Spread, r.Degenerate, r.Saturated, r.Squashed = math.NaN(), false, false, false
	p.finishScores(ova, r)
	// psi(alpha_0+1) - sum_k mu_k psi(alpha_k+1) cancels if the concentrations are large; Entropy -
	// MI cancels if they are small.
	r.ExpectedEntropy = max(0, r.Entropy-r.MI)
	if total < asymptotic {
		r.ExpectedEntropy = 0
		psi0 := digammaNext(total)
		for k, a := range alpha {
			r.ExpectedEntropy += r.Mean[k] * max(0, psi0-digammaNext(a))
		}
	}
}

// digammaExcess returns psi(x+1) - log x for x > 0: positive, decreasing, about -log x as x goes to
// 0 and 1/(2x) as x grows. M_k is a difference of two of them, in which psi and log by themselves
// would cancel.
func digammaExcess(x float64) float64 {
	excess := 0.0
	// psi(x+1) = psi(x+2) - 1/(x+1), log x = log(x+1) - log1p(1/x).
	for x < asymptotic {
		excess += log1pInverse(x) - 1/(x+1)
		x++
	}
	return excess + digammaSeries(x)
}

// digammaNext returns psi(x+1) for 0 < x < asymptotic, with an error of some 1e-16.
func digammaNext(x float64) float64 {
	psi := 0.0
	for x < asymptotic {
		x++
		psi -= 1 / x
	}
	return psi + math.Log(x) + digammaSeries(x)
}

// asymptotic is the least x for which digammaSeries is exact to rounding.
const asymptotic = 16

// digammaSeries returns psi(x+1) - log x for x >= asymptotic, by the asymptotic series of psi(x) +
// 1/x - log x. The first term left out is below 1e-17 of the sum.
func digammaSeries(x float64) float64 {
	y := 1 / x
	q := y * y
	return y/2 - q*(1./12-q*(1./120-q*(1./252-q*(1./240-q*(1./132-q*(691./32760-q/12))))))
}

// log1pInverse returns log(1+1/x), even if 1/x overflows.
func log1pInverse(x float64) float64 {
	if x < 1 {
		return math.Log(x+1) - math.Log(x)
	}
	return math.Log1p(1 / x)
}
