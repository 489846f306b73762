package decomp

import (
	"cmp"
	"slices"

	"github.com/ckd-project/ckd/internal/kernel"
)

// Result holds what the passes of one input give. Slices over classes have length K, with class k
// at index k; they belong to the Batch that computed them and are valid until its next call. A
// Result is overwritten by each call that it is passed to.
type Result struct {
	plan *Plan

	// Passes is S.
	Passes int
	// Predicted is argmax_k mu_k. Here and below, values that agree to 1e-12 are tied, and the
	// lowest class wins.
	Predicted int

	// Mean is mu_k = (1/S) sum_s p_k[s], in [0,1] (app-mu). For Dirichlet concentrations it is
	// alpha_k/alpha_0.
	Mean []float64
	// Variance is Var_k = sum_s (p_k[s]-mu_k)^2/(S-1), or /S if the plan says so; >= 0 (app-var).
	// For Dirichlet concentrations it is mu(1-mu)/(alpha_0+1).
	Variance []float64
	// ThirdMoment is m3_k = (1/S) sum_s (p_k[s]-mu_k)^3 (app-m3). For Dirichlet concentrations it
	// is 2mu(1-mu)(1-2mu)/((alpha_0+1)(alpha_0+2)).
	ThirdMoment []float64
	// C is the epistemic contribution C_k = Var_k/(2(mu_k+Epsilon)), nats, in [0, S/(2(S-1))];
	// exactly 0 if mu_k = 0 (app-Ck). For Dirichlet concentrations it is (1-mu)/(2(alpha_0+1)).
	C []float64
	// Skewness is the ratio |m3_k|/(3 mu_k Var_k) of the third to the second order term, without
	// unit, in [0, SkewnessCap]; 0 if the denominator is 0 (app-rho). Above the reliability
	// threshold C_k is not to be trusted. For Dirichlet concentrations it is
	// 2|1-2mu|/(3(alpha_k+2mu)), which has no cap.
	//
	// If all p of a class are below about 1e-107, the third moment and the ratio underflow to 0;
	// float32 values are never that small.
	Skewness []float64
	// M is the exact class-wise MI, M_k = mean_s[p log(p/mu) - p + mu], nats, >= 0
	// (exact-classwise-mi-term). For Dirichlet concentrations it is mu(psi(alpha_k+1) -
	// psi(alpha_0+1) - log mu).
	M []float64

	// Entropy is the entropy of the mean, H[mu] = -sum_k mu_k log mu_k, in nats (app-ent).
	Entropy float64
	// ExpectedEntropy is the mean entropy of the passes, nats: the aleatoric part.
	ExpectedEntropy float64
	// MI is the mutual information sum_k M_k = Entropy - ExpectedEntropy, nats, >= 0 (app-mi). It
	// is computed without the cancellation of that difference.
	MI float64
	// SumC is sum_k C_k, nats: close to MI if skewness is small. With the sample variance it is
	// larger than MI by a factor of S/(S-1): 1.25 at S=5.
	SumC float64

	// Scores has an element for each Score; NaN if the plan does not define it: see Plan.Defines.
	Scores [NumScores]float64
	// PairTerm has an element for each of Plan.Pairs, without weights, nats, >= 0 (app-eij,
	// app-cbec):
	//
	//	sqrt(C_a C_b) max(0,-rho_ab) = max(0,-Cov_ab)/(2 sqrt((mu_a+Epsilon)(mu_b+Epsilon)))
	//
	// Lean plans may leave it empty: see Confusion.
	PairTerm []float64
	// Correlation is rho_ab of each of Plan.Pairs, in [-1,1]; 0 if a variance is 0. Lean plans
	// leave it empty.
	Correlation []float64

	// Dominant is argmax_k C_k; -1 if all C_k are 0.
	Dominant int
	// CCritMaxClass is the critical class with the largest C_k; -1 without critical classes.
	CCritMaxClass int
	// CBECClass is the critical class with the largest share of cbec; -1 if cbec is 0 or undefined.
	CBECClass int

	// Spread is the coefficient of variation over the passes of the second most probable class j,
	// sqrt(Var_j)/mu_j: without the Epsilon of C_j, sqrt(2 C_j/mu_j). It has no unit and is in
	// [0, sqrt(S)]; 0 if mu_j = 0. The runner-up keeps its relative precision in float32 where the most
	// probable class has lost it, so that Spread tells passes of a sampled model from one pass repeated
	// with rounding noise. It is NaN for Dirichlet rows.
	Spread float64
	// Degenerate says that the passes hardly differ: Spread is below leastSpread, as where dropout is
	// off and only rounding differs. Uncertainty is then absent, not zero. Dirichlet rows are never
	// degenerate.
	Degenerate bool
	// Saturated says that the input is degenerate and its passes are one-hot.
	Saturated bool
	// Squashed says that every probability lies where a softmax maps probabilities: see squashedRange.
	// Of an input with more passes than an Accumulator keeps it looks at those kept last. Dirichlet
	// rows are never squashed.
	Squashed bool

	meanLogMean []float64 // mu log mu

	share []float64 // by critical class: its part of cbec
	terms []float64 // terms of pairs, by their place in the plan's matrix
	order []int     // scratch: classes
}

// NewResult returns a Result for inputs of the plan.
func (p *Plan) NewResult() *Result {
	shares, listed, correlated := len(p.critical), len(p.pairs), len(p.pairs)
	if p.lean {
		correlated = 0
	}
	if p.pairing.matrix && p.kind != Dirichlet { // the Batch has them
		shares = 0
		if p.lean {
			listed = 0
		}
	}
	vectors := make([]float64, listed+correlated+shares)
	cut := func(n int) []float64 {
		var s []float64
		s, vectors = vectors[:n:n], vectors[n:]
		return s
	}
	k := p.classes
	return &Result{
		plan:     p,
		PairTerm: cut(listed), Correlation: cut(correlated), share: cut(shares),
		order: make([]int, k),
	}
}

// view makes the vectors of r share the columns from an index on.
func (r *Result) view(c *kernel.Columns, from int) {
	end := from + r.plan.classes
	r.Mean, r.Variance, r.ThirdMoment = c.Mean[from:end:end], c.Variance[from:end:end], c.ThirdMoment[from:end:end]
	r.C, r.Skewness, r.M = c.C[from:end:end], c.Skewness[from:end:end], c.M[from:end:end]
	r.meanLogMean = c.MeanLogMean[from:end:end]
}

// Confusion returns the PairTerm of a pair by its index in Plan.Pairs, nats, >= 0; of a lean plan,
// too.
func (r *Result) Confusion(pair int) float64 {
	if len(r.PairTerm) > 0 {
		return r.PairTerm[pair]
	}
	at := r.plan.pairing.places[pair]
	return r.terms[at.row*r.plan.classes+at.lane]
}

// Deciding returns the class that sets a score: CCritMaxClass for c_crit_max, CBECClass for cbec,
// and -1 for the others, which no single class sets.
func (r *Result) Deciding(s Score) int {
	switch s {
	case CCritMax:
		return r.CCritMaxClass
	case CBEC:
		return r.CBECClass
	}
	return -1
}

// C3 writes the third-order form C_k - m3_k/(6 (mu_k+Epsilon)^2), nats, to dst (length K) and
// returns dst (after EH-third). It is a diagnostic and may be negative. Epsilon is part of it for
// Dirichlet rows, too.
func (r *Result) C3(dst []float64) []float64 {
	for k := range dst {
		m := r.Mean[k] + Epsilon
		dst[k] = r.C[k] - r.ThirdMoment[k]/(6*m*m)
	}
	return dst
}

// SumCTop returns the sum of C_k over the m most probable classes, nats: the first of the paper's
// remedies for the O(K^2) growth of SumC at high K (appendix "Sensitivity to Class Cardinality",
// i). Ties go to the lowest class; m >= K gives SumC up to rounding. It writes to scratch memory of
// r.
func (r *Result) SumCTop(m int) float64 {
	for k := range r.order {
		r.order[k] = k
	}
	slices.SortFunc(r.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(r.Mean[b], r.Mean[a]), cmp.Compare(a, b))
	})
	sum := 0.0
	for _, k := range r.order[:min(max(m, 0), len(r.order))] {
		sum += r.C[k]
	}
	return sum
}

// SumCWeighted returns sum_k mu_k C_k, nats: the second remedy for high K (appendix "Sensitivity to
// Class Cardinality", ii).
func (r *Result) SumCWeighted() float64 {
	sum := 0.0
	for k, c := range r.C {
		sum += r.Mean[k] * c
	}
	return sum
}
