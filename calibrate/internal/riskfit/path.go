package riskfit

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/ckd-project/ckd/policy/risk"
)

// form is a fitted regression: an intercept, and the weights of some columns.
type form struct {
	intercept float64
	columns   []int
	weights   []float64
}

// logOdds returns the log-odds of a row.
func (f *form) logOdds(p *problem, row int) float64 {
	z := f.intercept
	for a, j := range f.columns {
		z += f.weights[a] * p.columns[j][row]
	}
	return z
}

// model returns the form as policies have it.
func (f *form) model(p *problem) *risk.Model {
	m := &risk.Model{Intercept: f.intercept}
	for a, j := range f.columns {
		term := p.terms[j]
		term.Weight = f.weights[a]
		m.Terms = append(m.Terms, term)
	}
	return m
}

// path fits forms on some rows, from two numbers to a budget, each with one column more than the one
// before it. It stops early where no column helps, and after the form of an index.
func (p *problem) path(rows []int, budget, last int) []form {
	y := make([]bool, len(rows))
	for a, r := range rows {
		y[a] = p.y[r]
	}
	l := logistic{y: y, centre: []float64{0}, penalty: []float64{0}, atLeast0: []bool{false}}
	b := []float64{0}
	var means, deviations []float64
	var used []int
	add := func(j int) {
		mean, deviation := moments(p.columns[j], rows)
		column := make([]float64, len(rows))
		for a, r := range rows {
			column[a] = (p.columns[j][r] - mean) / deviation
		}
		centre, penalty := 0.0, termPenalty
		if p.terms[j].Feature == risk.PCritical {
			centre, penalty = deviation, slopePenalty
		}
		l.columns, l.centre, l.penalty = append(l.columns, column), append(l.centre, centre), append(l.penalty, penalty)
		l.atLeast0 = append(l.atLeast0, p.terms[j].Feature.Rises())
		means, deviations, used, b = append(means, mean), append(deviations, deviation), append(used, j), append(b, centre)
		l.fit(b)
	}
	var forms []form
	for next := 0; next >= 0; next = p.next(&l, b, rows, used) {
		add(next)
		f := form{intercept: b[0]}
		for a, j := range used {
			w := b[a+1] / deviations[a]
			if w == 0 && a+1 < len(used) {
				continue // held at 0: the columns added later say it better
			}
			f.columns, f.weights = append(f.columns, j), append(f.weights, w)
			f.intercept -= w * means[a]
		}
		forms = append(forms, f)
		if len(b) >= budget || len(forms) > last {
			break
		}
	}
	return forms
}

// next returns the column that the score test finds best to add to a fit, or -1 if none would help.
func (p *problem) next(l *logistic, b []float64, rows, used []int) int {
	n := len(b)
	z, gradient, hessian := make([]float64, len(l.y)), make([]float64, n), mat.NewSymDense(n, nil)
	l.loss(b, z)
	l.derive(b, z, gradient, hessian)
	var cholesky mat.Cholesky
	if !cholesky.Factorize(hessian) {
		return -1
	}
	e, w := make([]float64, len(z)), make([]float64, len(z))
	for i, v := range z {
		q := 1 / (1 + math.Exp(-v))
		e[i], w[i] = -q, q*(1-q)
		if l.y[i] {
			e[i]++
		}
	}
	best, statistic := -1, 0.0
	cross, solved := mat.NewVecDense(n, nil), mat.NewVecDense(n, nil)
	weighed := make([]float64, len(z))
	for j, column := range p.columns {
		if slices.Contains(used, j) {
			continue
		}
		mean, deviation := moments(column, rows)
		if deviation <= leastDeviation {
			continue
		}
		score, information := 0.0, 0.0
		for a, r := range rows {
			x := (column[r] - mean) / deviation
			score += e[a] * x
			weighed[a] = w[a] * x
			information += weighed[a] * x
		}
		if p.terms[j].Feature.Rises() && score <= 0 {
			continue
		}
		for k := range n {
			sum := 0.0
			for a, v := range weighed {
				sum += v * l.at(k, a)
			}
			cross.SetVec(k, sum)
		}
		if cholesky.SolveVecTo(solved, cross) != nil {
			continue
		}
		left := max(information-mat.Dot(cross, solved), 0) + termPenalty
		if s := score * score / left; s > statistic {
			best, statistic = j, s
		}
	}
	return best
}

const folds = 10

// folds deals the groups into folds at random, those with a critical row first, so that every fold
// has its share. It returns the fold of each row.
func (p *problem) folds(seed uint64) []int {
	strata := make([][]int, 2)
	has := make([]bool, p.groups)
	for r, y := range p.y {
		has[p.group[r]] = has[p.group[r]] || y
	}
	for g, critical := range has {
		s := 1
		if critical {
			s = 0
		}
		strata[s] = append(strata[s], g)
	}
	const stream = 17 // of the seed, which other draws share
	rng := rand.New(rand.NewPCG(seed, stream))
	of, at := make([]int, p.groups), 0
	for _, s := range strata {
		rng.Shuffle(len(s), func(a, b int) { s[a], s[b] = s[b], s[a] })
		for _, g := range s {
			of[g] = at % folds
			at++
		}
	}
	fold := make([]int, len(p.rows))
	for r := range fold {
		fold[r] = of[p.group[r]]
	}
	return fold
}

// holdOut returns the log-odds of each row by the forms that were fitted without its fold, by index of
// the path. Where a path ends early its last form stands for the larger ones.
func (p *problem) holdOut(fold []int, budget int) [][]float64 {
	held := make([][]float64, budget-1)
	for s := range held {
		held[s] = make([]float64, len(p.rows))
	}
	for f := range folds {
		var rest, out []int
		for r, of := range fold {
			if of == f {
				out = append(out, r)
			} else {
				rest = append(rest, r)
			}
		}
		if len(out) == 0 {
			continue
		}
		forms := p.path(rest, budget, budget)
		for s := range held {
			form := forms[min(s, len(forms)-1)]
			for _, r := range out {
				held[s][r] = form.logOdds(p, r)
			}
		}
	}
	return held
}

// compare returns the index of the form to take, and how the best larger form compares.
func (p *problem) compare(held [][]float64) (int, *Comparison) {
	size, best := 0, math.Inf(1)
	for s := 1; s < len(held); s++ {
		sum := 0.0
		for r, z := range held[s] {
			sum += logLoss(z, p.y[r])
		}
		if sum < best {
			size, best = s, sum
		}
	}
	gains := make([]float64, len(p.rows))
	for r := range gains {
		gains[r] = logLoss(held[0][r], p.y[r]) - logLoss(held[size][r], p.y[r])
	}
	c := &Comparison{Numbers: size + 2}
	c.Gain, c.StandardError = p.meanOf(gains)
	if c.Taken = c.Gain > 0 && c.Gain >= c.StandardError; !c.Taken {
		size = 0
	}
	return size, c
}

// meanOf returns the mean of a number of each row, and its standard error by group.
func (p *problem) meanOf(values []float64) (mean, standardError float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	sums := make([]float64, p.groups)
	for r, v := range values {
		sums[p.group[r]] += v - mean
	}
	for _, s := range sums {
		standardError += s * s
	}
	g := float64(p.groups)
	return mean, math.Sqrt(standardError*g/max(g-1, 1)) / n
}
