package decomp

import (
	"math"

	"github.com/ckd-project/ckd/internal/kernel"
)

// sums holds what the passes of an input give beside the columns that a Result has.
type sums struct {
	passes  int
	divisor float64   // divisor of the sums in co
	co      coSums    // per pair: sum of d_a d_b, d = p - mean
	roots   []float64 // per class, 1/sqrt(mu+Epsilon)
	rest    rest      // for the critical classes, if the plan computes ova_mi
}

// finish computes all of r but the columns, which r has already.
func (p *Plan) finish(s *sums, r *Result) {
	r.Passes = s.passes
	if len(p.pairs) > 0 {
		p.finishPairs(s, r)
	}
	r.Entropy = 0 - kernel.Sum(r.meanLogMean) // 0 minus, so that it is never -0
	ova := math.NaN()
	if p.ovaMI {
		ova = 0
		for i, k := range p.critical {
			ova += r.M[k] + s.rest.m[i]
		}
	}
	p.finishScores(ova, r)
	r.ExpectedEntropy = max(0, r.Entropy-r.MI)
	r.Degenerate = r.Spread < leastSpread(s.passes)
	r.Saturated = r.Degenerate && r.Mean[r.Predicted] == 1 && r.Entropy == 0
}

// finishPairs computes the vectors over pairs, and the shares of critical classes in cbec.
func (p *Plan) finishPairs(s *sums, r *Result) {
	half := 0.5 / s.divisor
	for i := range r.PairTerm {
		r.PairTerm[i] = 0
		if co := s.co.pair(p, i); co < 0 {
			pair := p.pairs[i]
			r.PairTerm[i] = -co * (half * s.roots[pair.A]) * s.roots[pair.B]
		}
	}
	if p.pairing.matrix {
		r.share, r.terms = s.co.shares, s.co.terms
	} else {
		p.shares(r)
	}
	if p.lean {
		return
	}
	for i, pair := range p.pairs {
		a, b := pair.A, pair.B
		r.Correlation[i] = 0
		if spread := math.Sqrt(r.Variance[a]) * math.Sqrt(r.Variance[b]); spread > 0 {
			r.Correlation[i] = min(max(s.co.pair(p, i)/s.divisor/spread, -1), 1)
		}
	}
}

// shares computes the shares of critical classes in cbec from the terms of pairs.
func (p *Plan) shares(r *Result) {
	clear(r.share)
	for _, x := range p.cross {
		r.share[x.critical] += x.weight * r.PairTerm[x.pair]
	}
}

// finishScores computes what follows from the vectors alone.
func (p *Plan) finishScores(ova float64, r *Result) {
	r.Predicted, r.Dominant, r.CCritMaxClass, r.CBECClass = 0, -1, -1, -1
	sums := p.classSums(r)
	r.MI, r.SumC = sums.mi, sums.c
	r.Scores = undefinedScores
	r.Scores[Entropy] = r.Entropy
	r.Scores[MI] = r.MI
	r.Scores[MaxProb] = 1 - r.Mean[r.Predicted]
	r.Scores[EUVar] = sums.variance

	if len(p.critical) > 0 {
		var varMax, varSum, cMax, cSum, probability float64
		r.CCritMaxClass = p.critical[0]
		for _, k := range p.critical {
			variance, c := r.Variance[k], r.C[k]
			if variance > varMax {
				varMax = variance
			}
			if c > cMax {
				cMax = c
			}
			varSum += variance
			cSum += c
			probability += r.Mean[k]
			if exceeds(r.C[k], r.C[r.CCritMaxClass]) {
				r.CCritMaxClass = k
			}
		}
		r.Scores[VarCrit] = varMax
		r.Scores[EUVarCrit] = varSum
		r.Scores[OvAMI] = ova
		r.Scores[CCritSum] = cSum
		r.Scores[CCritMax] = cMax
		r.Scores[PCritical] = probability
	}
	if len(p.cross) > 0 {
		cbec, best := 0.0, 0.0
		for i, k := range p.critical {
			cbec += r.share[i]
			if exceeds(r.share[i], best) {
				best, r.CBECClass = r.share[i], k
			}
		}
		r.Scores[CBEC] = cbec
	}
}

// classSums returns the sums over the classes of C, M and variance. It sets r.Predicted and
// r.Dominant.
func (p *Plan) classSums(r *Result) (s struct{ c, mi, variance float64 }) {
	most, largest := r.Mean[0], 0.0
	if p.classes < kernel.ManyValues {
		// For few classes one loop is faster than a loop for each sum.
		c, m, variance := r.C[:len(r.Mean)], r.M[:len(r.Mean)], r.Variance[:len(r.Mean)]
		for k, mu := range r.Mean {
			s.c += c[k]
			s.mi += m[k]
			s.variance += variance[k]
			if exceeds(mu, most) {
				r.Predicted, most = k, mu
			}
			if exceeds(c[k], largest) {
				r.Dominant, largest = k, c[k]
			}
		}
		return s
	}
	for k, mu := range r.Mean {
		if exceeds(mu, most) {
			r.Predicted, most = k, mu
		}
	}
	for k, c := range r.C {
		if exceeds(c, largest) {
			r.Dominant, largest = k, c
		}
	}
	s.c, s.mi, s.variance = kernel.Sum(r.C), kernel.Sum(r.M), kernel.Sum(r.Variance)
	return s
}

// exceeds reports whether a > b >= 0 by more than rounding. Classes that have the same
// probabilities in another order of passes are tied, though their sums may differ in the last
// digits: an arg max must depend neither on these nor on how the passes arrived.
func exceeds(a, b float64) bool { return a > b*(1+1e-12) }

// undefinedScores has NaN for every score.
var undefinedScores = func() (s [NumScores]float64) {
	for i := range s {
		s[i] = math.NaN()
	}
	return s
}()
