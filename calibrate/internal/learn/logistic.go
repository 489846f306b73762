package learn

import (
	"context"
	"math"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// Penalties apply to the squares of standardised coefficients, per order of passes, against the
// log-likelihood. They were chosen on the CTG recordings, where a tenth to five times as much
// changes savings by 2% at most. Far larger ones ignore what late passes know.
const (
	freePenalty    = 1e-3
	linearPenalty  = 0.02
	productPenalty = 0.2
)

// place returns the index of a product of two statistics, i <= j, among the terms.
func place(i, j int) int {
	at := 1 + earlystop.Count
	for a := range i {
		at += earlystop.Count - a
	}
	return at + j - i
}

// penalties returns the penalty of each term.
func penalties(orders int) (p [earlystop.Terms]float64) {
	for j := range p {
		p[j] = productPenalty
	}
	for i := range earlystop.Count {
		p[1+i] = linearPenalty
	}
	p[0], p[1+earlystop.Own], p[place(earlystop.Own, earlystop.Own)] = freePenalty, freePenalty, freePenalty
	for j := range p {
		p[j] *= float64(orders)
	}
	return p
}

// terms fills in the terms of the quadratic form.
func terms(x *earlystop.Statistics, to *[earlystop.Terms]float64) {
	to[0] = 1
	at := 1 + earlystop.Count
	for i, a := range x.Values {
		to[1+i] = a
		for _, b := range x.Values[i:] {
			to[at] = a * b
			at++
		}
	}
}

// regression is a penalised logistic regression on standardised terms. The next one, with one pass
// more, starts at its coefficients.
type regression struct {
	b    [earlystop.Terms]float64
	rows [][earlystop.Terms]float64
}

// fit fits the log-odds of being overturned, and returns the coefficients of the terms before they
// were standardised. The error is that of ctx.
func (r *regression) fit(ctx context.Context, x []*earlystop.Statistics, overturned []bool, penalty *[earlystop.Terms]float64) (
	w [earlystop.Terms]float64, err error,
) {
	if cap(r.rows) < len(x) {
		r.rows = make([][earlystop.Terms]float64, len(x))
	}
	r.rows = r.rows[:len(x)]
	mean, deviation := r.standardise(x)
	for range 25 {
		if err := ctx.Err(); err != nil {
			return w, err
		}
		if r.step(overturned, penalty) < 1e-3 {
			break
		}
	}
	w[0] = r.b[0]
	for j := 1; j < earlystop.Terms; j++ {
		if deviation[j] > 0 {
			w[j] = r.b[j] / deviation[j]
			w[0] -= w[j] * mean[j]
		}
	}
	return w, nil
}

// standardise standardises the terms in place. Those that do not vary become 0.
func (r *regression) standardise(x []*earlystop.Statistics) (mean, deviation [earlystop.Terms]float64) {
	n := max(float64(len(x)), 1)
	for i := range x {
		terms(x[i], &r.rows[i])
		for j, v := range r.rows[i] {
			mean[j] += v / n
		}
	}
	for i := range r.rows {
		for j, v := range r.rows[i] {
			deviation[j] += (v - mean[j]) * (v - mean[j]) / n
		}
	}
	for j := range deviation {
		if deviation[j] = math.Sqrt(deviation[j]); deviation[j] < 1e-9 {
			deviation[j] = 0
		}
	}
	for i := range r.rows {
		row := &r.rows[i]
		for j := 1; j < earlystop.Terms; j++ {
			if row[j] -= mean[j]; deviation[j] > 0 {
				row[j] /= deviation[j]
			} else {
				row[j] = 0
			}
		}
	}
	return mean, deviation
}

// step takes one step of Newton's method, which moves no coefficient by more than 5. It returns how
// far the one that moved most wanted to go.
func (r *regression) step(overturned []bool, penalty *[earlystop.Terms]float64) float64 {
	var g [earlystop.Terms]float64
	var h [earlystop.Terms][earlystop.Terms]float64
	for i := range r.rows {
		x := &r.rows[i]
		z := 0.0
		for j, v := range x {
			z += r.b[j] * v
		}
		p := 1 / (1 + math.Exp(-min(max(z, -30), 30)))
		e := p
		if overturned[i] {
			e--
		}
		w := max(p*(1-p), 1e-6)
		for j, v := range x {
			g[j] += e * v
			v *= w
			for l := range j + 1 {
				h[j][l] += v * x[l]
			}
		}
	}
	for j := range h {
		g[j] += penalty[j] * r.b[j]
		h[j][j] += penalty[j]
	}
	solve(&h, &g)
	most := 0.0
	for _, v := range g {
		most = max(most, math.Abs(v))
	}
	scale := min(1, 5/max(most, 1e-300))
	for j, v := range g {
		r.b[j] -= v * scale
	}
	return most
}

// solve solves h x = g in place (Cholesky). h is positive definite and given by its lower half.
func solve(h *[earlystop.Terms][earlystop.Terms]float64, g *[earlystop.Terms]float64) {
	const n = earlystop.Terms
	for j := range n {
		for i := j; i < n; i++ {
			sum := h[i][j]
			for k := range j {
				sum -= h[i][k] * h[j][k]
			}
			if i == j {
				h[j][j] = math.Sqrt(max(sum, 1e-12))
			} else {
				h[i][j] = sum / h[j][j]
			}
		}
	}
	for i := range n {
		for k := range i {
			g[i] -= h[i][k] * g[k]
		}
		g[i] /= h[i][i]
	}
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			g[i] -= h[k][i] * g[k]
		}
		g[i] /= h[i][i]
	}
}
