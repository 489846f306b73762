package learn

import (
	"math"

	"github.com/ckd-project/ckd/calibrate/internal/logistic"
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

// regression is a penalised logistic regression, over all numbers of passes at once. Its rows have
// the columns and then the powers of log(t).
type regression struct {
	*logistic.Regression
	columns []column
}

func newRegression(columns []column) *regression {
	return &regression{logistic.New(len(columns)+powers, len(columns)), columns}
}

// add adds a row.
func (r *regression) add(x *earlystop.Statistics, t int, overturned bool) {
	logT := math.Log(float64(t))
	for _, c := range r.columns {
		r.X = append(r.X, c.value(x, logT))
	}
	r.X = append(r.X, 1, logT, logT*logT, logT*logT*logT)
	r.Y = append(r.Y, overturned)
}

// fit fits the log-odds of being overturned, and returns the weight of each column. The rows are
// standardised in place.
func (r *regression) fit() []float64 {
	_, deviation := r.Standardise()
	for j := range r.Penalty {
		penalty := freePenalty
		if j < len(r.columns) {
			penalty = r.columns[j].penalty()
		}
		r.Penalty[j] = penalty * float64(max(len(r.Y), 1))
	}
	b := make([]float64, len(r.Penalty))
	r.Fit(b, 1e-3)
	w := b[:len(r.columns)]
	for j := range w {
		if deviation[j] == 0 || math.Abs(b[j]) < negligible {
			w[j] = 0
		} else {
			w[j] /= deviation[j]
		}
	}
	return w
}
