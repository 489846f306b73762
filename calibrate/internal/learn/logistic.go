package learn

import (
	"context"
	"math"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// Penalties apply to the squares of standardised weights, per row, against the log-likelihood.
const (
	freePenalty    = 1e-6
	linearPenalty  = 2e-5
	productPenalty = 2e-4
)

// negligible is the standardised weight, in log-odds, below which a column is left out of a rule:
// nobody has to read what changes nothing.
const negligible = 0.1

// column is a column of the regression: one term of the form, as it is or times log(t).
type column struct {
	of, times int // places of statistics; times is -1 for none
	moves     bool
}

// columnsOf returns the columns of the learned rules: all statistics and products of two. The
// weights of the statistics and of the square of the score's move with log(t); those of the other
// products stay: were they to move too, rules would have half as many numbers again.
func columnsOf() (c []column) {
	for i := range earlystop.Count {
		c = append(c, column{i, -1, false}, column{i, -1, true})
	}
	for i := range earlystop.Count {
		for j := i; j < earlystop.Count; j++ {
			c = append(c, column{i, j, false})
			if i == earlystop.Own && j == earlystop.Own {
				c = append(c, column{i, j, true})
			}
		}
	}
	return c
}

func (c column) penalty() float64 {
	switch own := c.of == earlystop.Own; {
	case own && (c.times < 0 || c.times == earlystop.Own):
		return freePenalty
	case c.times < 0:
		return linearPenalty
	}
	return productPenalty
}

// value returns the column's value of an input after t passes; logT is log(t).
func (c column) value(x *earlystop.Statistics, logT float64) float64 {
	v := x.Values[c.of]
	if c.times >= 0 {
		v *= x.Values[c.times]
	}
	if c.moves {
		v *= logT
	}
	return v
}

// powers counts the columns without statistics: powers of log(t) from 0 to 3. They say how
// seldom a decision is overturned after more passes, which the boundaries say in a rule.
const powers = 4

// regression is a penalised logistic regression, over all numbers of passes at once.
type regression struct {
	columns []column
	width   int // of a row
	rows    []float64
	wrong   []bool // by row
}

// add adds a row.
func (r *regression) add(x *earlystop.Statistics, t int, overturned bool) {
	logT := math.Log(float64(t))
	for _, c := range r.columns {
		r.rows = append(r.rows, c.value(x, logT))
	}
	r.rows = append(r.rows, 1, logT, logT*logT, logT*logT*logT)
	r.wrong = append(r.wrong, overturned)
}

func newRegression(columns []column) *regression {
	return &regression{columns: columns, width: len(columns) + powers}
}

// fit fits the log-odds of being overturned, and returns the weight of each column. The rows are
// standardised in place. The error is that of ctx.
func (r *regression) fit(ctx context.Context) ([]float64, error) {
	n := r.width
	deviation := r.standardise()
	b := make([]float64, n)
	for range 25 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if r.step(b) < 1e-3 {
			break
		}
	}
	w := b[:len(r.columns)]
	for j := range w {
		if deviation[j] == 0 || math.Abs(b[j]) < negligible {
			w[j] = 0
		} else {
			w[j] /= deviation[j]
		}
	}
	return w, nil
}

// standardise standardises the columns in place, and returns their deviations, which are 0 for
// those that do not vary; these become 0.
func (r *regression) standardise() []float64 {
	n, rows := r.width, max(len(r.wrong), 1)
	mean, deviation := make([]float64, n), make([]float64, n)
	for i := range r.wrong {
		for j, v := range r.rows[i*n:][:n] {
			mean[j] += v / float64(rows)
		}
	}
	for i := range r.wrong {
		for j, v := range r.rows[i*n:][:n] {
			deviation[j] += (v - mean[j]) * (v - mean[j]) / float64(rows)
		}
	}
	mean[len(r.columns)] = 0 // the constant stays
	for j := range deviation {
		if deviation[j] = math.Sqrt(deviation[j]); deviation[j] < 1e-9 {
			deviation[j] = 0
		}
	}
	for i := range r.wrong {
		row := r.rows[i*n:][:n]
		for j := range row {
			switch {
			case j == len(r.columns):
			case deviation[j] > 0:
				row[j] = (row[j] - mean[j]) / deviation[j]
			default:
				row[j] = 0
			}
		}
	}
	return deviation
}

// step takes one step of Newton's method, which moves no weight by more than 5. It returns how far
// the one that moved most wanted to go.
func (r *regression) step(b []float64) float64 {
	n := r.width
	g, h := make([]float64, n), make([]float64, n*n)
	for i, wrong := range r.wrong {
		x := r.rows[i*n:][:n]
		z := 0.0
		for j, v := range x {
			z += b[j] * v
		}
		p := 1 / (1 + math.Exp(-min(max(z, -30), 30)))
		e := p
		if wrong {
			e--
		}
		w := max(p*(1-p), 1e-6)
		for j, v := range x {
			g[j] += e * v
			v *= w
			to := h[j*n:][:j+1]
			for l := range to {
				to[l] += v * x[l]
			}
		}
	}
	for j := range n {
		penalty := freePenalty
		if j < len(r.columns) {
			penalty = r.columns[j].penalty()
		}
		penalty *= float64(max(len(r.wrong), 1))
		g[j] += penalty * b[j]
		h[j*n+j] += penalty
	}
	solve(h, g)
	most := 0.0
	for _, v := range g {
		most = max(most, math.Abs(v))
	}
	scale := min(1, 5/max(most, 1e-300))
	for j, v := range g {
		b[j] -= v * scale
	}
	return most
}

// solve solves h x = g in place (Cholesky). h is positive definite and given by its lower half, row
// by row.
func solve(h, g []float64) {
	n := len(g)
	for j := range n {
		for i := j; i < n; i++ {
			sum := h[i*n+j]
			for k := range j {
				sum -= h[i*n+k] * h[j*n+k]
			}
			if i == j {
				h[j*n+j] = math.Sqrt(max(sum, 1e-12))
			} else {
				h[i*n+j] = sum / h[j*n+j]
			}
		}
	}
	for i := range n {
		for k := range i {
			g[i] -= h[i*n+k] * g[k]
		}
		g[i] /= h[i*n+i]
	}
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			g[i] -= h[k*n+i] * g[k]
		}
		g[i] /= h[i*n+i]
	}
}
