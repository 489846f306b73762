package decomp

import "math"

// sums is what an input's passes leave behind; both ways in end here.
type sums struct {
	passes    int
	m2, m3    []float64 // per class: sums of d^2 and d^3, d = p - mean
	div       []float64 // per class: sum of divergence(p, mean)
	restDiv   []float64 // per critical class: sum of divergence(1-p, 1-mean)
	co        []float64 // per pair: sum of d_a d_b
	entropy   float64   // sum of the entropies of the passes
	identical bool      // all passes are equal
}

// finish fills r from s and the means, which are in r already.
func (p *Plan) finish(s *sums, r *Result) {
	n, divisor := float64(s.passes), p.divisor(s.passes)
	r.Passes = s.passes
	for k, mu := range r.Mean {
		variance, m3 := s.m2[k]/divisor, s.m3[k]/n
		r.Variance[k] = variance
		r.ThirdMoment[k] = m3
		r.C[k] = 0
		if mu > 0 {
			r.C[k] = 0.5 * variance / (mu + Epsilon)
		}
		r.Skewness[k] = 0
		if mu > 0 && variance > 0 {
			r.Skewness[k] = math.Abs(m3) / variance / (3 * mu)
		}
		r.M[k] = s.div[k] / n
	}
	for i, pair := range p.pairs {
		a, b := pair.A, pair.B
		r.PairTerm[i] = max(0, -s.co[i]/divisor) / (2 * math.Sqrt((r.Mean[a]+Epsilon)*(r.Mean[b]+Epsilon)))
		r.Correlation[i] = 0
		if spread := math.Sqrt(s.m2[a]) * math.Sqrt(s.m2[b]); spread > 0 {
			r.Correlation[i] = min(max(s.co[i]/spread, -1), 1)
		}
	}
	r.Entropy = rowEntropy(r.Mean)
	r.ExpectedEntropy = s.entropy / n
	r.Degenerate = s.identical
	ova := 0.0
	for i, k := range p.critical {
		ova += r.M[k] + s.restDiv[i]/n
	}
	p.finishScores(ova, r)
	r.Saturated = s.identical && r.Mean[r.Predicted] == 1 && r.Entropy == 0
}

// finishScores fills what follows from the vectors alone.
func (p *Plan) finishScores(ova float64, r *Result) {
	r.Predicted, r.Dominant, r.CCritMaxClass, r.CBECClass = 0, -1, -1, -1
	r.MI, r.SumC = 0, 0
	eu := 0.0
	for k, c := range r.C {
		if r.Mean[k] > r.Mean[r.Predicted] {
			r.Predicted = k
		}
		if c > 0 && (r.Dominant < 0 || exceeds(c, r.C[r.Dominant])) {
			r.Dominant = k
		}
		r.MI += r.M[k]
		r.SumC += c
		eu += r.Variance[k]
	}
	r.Scores = undefinedScores
	r.Scores[Entropy] = r.Entropy
	r.Scores[MI] = r.MI
	r.Scores[MaxProb] = 1 - r.Mean[r.Predicted]
	r.Scores[EUVar] = eu

	if len(p.critical) > 0 {
		var varMax, varSum, cMax, cSum float64
		r.CCritMaxClass = p.critical[0]
		for _, k := range p.critical {
			varMax = max(varMax, r.Variance[k])
			varSum += r.Variance[k]
			cMax = max(cMax, r.C[k])
			cSum += r.C[k]
			if exceeds(r.C[k], r.C[r.CCritMaxClass]) {
				r.CCritMaxClass = k
			}
		}
		r.Scores[VarCrit] = varMax
		r.Scores[EUVarCrit] = varSum
		r.Scores[OvAMI] = ova
		r.Scores[CCritSum] = cSum
		r.Scores[CCritMax] = cMax
	}
	if len(p.cross) > 0 {
		clear(r.share)
		cbec := 0.0
		for _, x := range p.cross {
			term := x.weight * r.PairTerm[x.pair]
			cbec += term
			r.share[x.critical] += term
		}
		r.Scores[CBEC] = cbec
		best := 0.0
		for i, k := range p.critical {
			if exceeds(r.share[i], best) {
				best, r.CBECClass = r.share[i], k
			}
		}
	}
}

// exceeds reports whether a > b >= 0 by more than rounding. Classes whose passes
// are the same numbers in another order are tied, though their sums may differ
// in the last digits: an arg max must not depend on those, nor on which way the
// passes came in.
func exceeds(a, b float64) bool { return a > b*(1+1e-12) }

// undefinedScores has NaN everywhere.
var undefinedScores = func() (s [NumScores]float64) {
	for i := range s {
		s[i] = math.NaN()
	}
	return s
}()
