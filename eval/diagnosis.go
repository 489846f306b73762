package eval

import (
	"slices"

	"github.com/ckd-project/ckd/decomp"
)

// profiles returns the mean C_k by true class.
func profiles(t *Table, labels []int, a *classCounts) Profiles {
	p := Profiles{N: a.support, Raw: [][]Figure{}, Normalised: [][]Figure{}}
	if t.K > maxMatrixClasses {
		return p
	}
	p.Raw, p.Normalised = square[Figure](t.K), square[Figure](t.K)
	for i, label := range labels {
		sum := 0.0
		for _, v := range t.c(i) {
			sum += v
		}
		for k, v := range t.c(i) {
			p.Raw[label][k] += Figure(v)
			p.Normalised[label][k] += Figure(ratio(v, sum))
		}
	}
	for label, n := range a.support {
		for k := range t.K { // undefined for a class without inputs
			p.Raw[label][k] /= Figure(n)
			p.Normalised[label][k] /= Figure(n)
		}
	}
	return p
}

// signatures returns one signature for every pair of true and predicted class that has inputs. It
// returns none beyond maxMatrixClasses.
func signatures(t *Table, labels []int, names []string) []Signature {
	all := []Signature{}
	if t.K > maxMatrixClasses {
		return all
	}
	sums := square[*Signature](t.K)
	for i, label := range labels {
		s := &sums[label][t.Predicted[i]]
		if *s == nil {
			*s = &Signature{True: names[label], Predicted: names[t.Predicted[i]], C: make([]float64, t.K)}
		}
		(*s).N++
		(*s).MI += t.Scores[decomp.MI][i]
		for k, v := range t.c(i) {
			(*s).C[k] += v
		}
	}
	for _, s := range slices.Concat(sums...) {
		if s == nil {
			continue
		}
		s.MI /= float64(s.N)
		divide(s.C, s.N)
		s.Dominant = names[largest(s.C)]
		all = append(all, *s)
	}
	return all
}

// dominant returns, for each class, the share of inputs in which the class has the largest C_k.
func dominant(t *Table) []float64 {
	shares := make([]float64, t.K)
	for i := range t.Inputs {
		shares[largest(t.c(i))]++
	}
	divide(shares, t.Inputs)
	return shares
}

// confusion returns the epistemic confusion matrix with its blocks, or nil beyond maxMatrixClasses.
func confusion(t *Table) *Confusion {
	if t.PairMean == nil {
		return nil
	}
	c := &Confusion{Matrix: square[float64](t.K)}
	for k := range c.Matrix {
		copy(c.Matrix[k], t.PairMean[k*t.K:])
	}
	c.CrossBoundary = c.block(t.Spec.Safe, t.Spec.Critical)
	c.WithinSafe = c.block(t.Spec.Safe, t.Spec.Safe)
	c.WithinCritical = c.block(t.Spec.Critical, t.Spec.Critical)
	c.CrossToSafe = quotient(float64(c.CrossBoundary), float64(c.WithinSafe))
	c.CrossToCritical = quotient(float64(c.CrossBoundary), float64(c.WithinCritical))
	return c
}

// block returns the mean over the pairs of two different classes, one from each set. It is undefined
// without such pairs.
func (c *Confusion) block(rows, columns []int) Figure {
	sum, n := 0.0, 0
	for _, i := range rows {
		for _, j := range columns {
			if i != j {
				sum += c.Matrix[i][j]
				n++
			}
		}
	}
	return quotient(sum, float64(n))
}

// c returns the contributions C_k of input i.
func (t *Table) c(i int) []float64 { return t.C[i*t.K : (i+1)*t.K] }

// largest returns the class of the largest value. Values that agree to 1e-12 are tied, and ties go
// to the lowest class.
func largest(values []float64) int {
	const tied = 1e-12
	best := 0
	for k, v := range values {
		if v > values[best]*(1+tied) {
			best = k
		}
	}
	return best
}

// divide divides values by n, unless n is 0.
func divide(values []float64, n int) {
	for k := range values {
		values[k] = ratio(values[k], float64(n))
	}
}
