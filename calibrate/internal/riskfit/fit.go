package riskfit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/risk"
)

const (
	// FewestMissed is how many critical inputs called safe a model needs, and how many others.
	FewestMissed = 10
	// MostNumbers bounds the numbers of a model, intercept included.
	MostNumbers = 12
)

// Options say how to fit.
type Options struct {
	// Groups has the group of each input, such as its patient: inputs of one group are held out
	// together, and standard errors are by group. Nil takes every input as a group of its own.
	Groups []int
	// Seed of the folds: the same seed gives the same model.
	Seed uint64
	// Prevalence is the share of critical inputs that probabilities are for, in (0,1). 0 takes that
	// of the table. Otherwise all log-odds are shifted by the difference of the two shares'
	// log-odds, which holds if critical inputs, and the others, look as those of the table do.
	Prevalence float64
	// MostNumbers bounds the numbers of the model further, at least 2. 0 leaves it at MostNumbers.
	MostNumbers int
}

// Fit is what was fitted on a table.
type Fit struct {
	// Risk is what a policy holds. It is nil where there are too few inputs to fit a model; then only
	// CalledSafe and Missed are set.
	Risk *policy.Risk
	// CalledSafe counts the inputs that are called safe, and Missed the critical ones among them.
	CalledSafe, Missed int
	// Budget is the most numbers that the model may have, and Numbers how many it has.
	Budget, Numbers int
	// Larger compares the best larger form with that of two numbers; nil where none is allowed.
	Larger *Comparison
	// Held has the risk of each input of the table, by the model fitted without the fold of the
	// input, shifted by Options.Prevalence as the model is; NaN of an input called critical.
	Held []float64
	// Reliability has what Held is worth, before any shift.
	Reliability *Reliability
}

// Comparison compares a larger form with that of two numbers on the inputs held out.
type Comparison struct {
	Numbers int
	// Gain is how much lower the mean log loss of the larger form is, nats, and StandardError that of
	// the mean difference, by group.
	Gain, StandardError float64
	Taken               bool
}

// New fits a model. It returns an error if the options do not fit the table.
func New(t *eval.Table, labels []int, o Options) (*Fit, error) {
	if len(labels) != t.Inputs {
		return nil, fmt.Errorf("%d labels, expected %d", len(labels), t.Inputs)
	}
	if o.Groups != nil && len(o.Groups) != t.Inputs {
		return nil, fmt.Errorf("%d groups, expected %d: one for each input", len(o.Groups), t.Inputs)
	}
	if o.Prevalence != 0 && !(o.Prevalence > 0 && o.Prevalence < 1) {
		return nil, fmt.Errorf("prevalence %v, expected a share above 0 and below 1", o.Prevalence)
	}
	p := newProblem(t, labels, o)
	f := &Fit{CalledSafe: len(p.rows), Missed: p.missed}
	if min(p.missed, len(p.rows)-p.missed) < FewestMissed {
		return f, nil
	}
	f.Budget = min(p.budget(), max(2, cmp.Or(o.MostNumbers, MostNumbers)))
	folds := p.folds(o.Seed)
	held := p.holdOut(folds, f.Budget)
	size := 0
	if f.Budget > 2 {
		size, f.Larger = p.compare(held)
	}
	last := p.path(p.everything(), f.Budget, size)[size]
	model := last.model(p)
	f.Numbers = 1 + len(last.columns)
	f.Risk = &policy.Risk{Model: *model, CalledCritical: p.calledCritical(), Prevalence: p.share()}
	shift := 0.0
	if o.Prevalence != 0 {
		shift = logit(o.Prevalence) - logit(f.Risk.Prevalence)
		f.Risk.Prevalence = o.Prevalence
		f.Risk.Model.Intercept += shift
		f.Risk.CalledCritical.Intercept += shift
	}
	f.Risk.Quantiles = p.quantiles(f.Risk, shift)
	f.Reliability = p.reliability(held[size])
	f.Reliability.Numbers, f.Reliability.Budget = f.Numbers, f.Budget
	f.Held = make([]float64, t.Inputs)
	for i := range f.Held {
		f.Held[i] = math.NaN()
	}
	for r, i := range p.rows {
		f.Held[i] = risk.Logistic(held[size][r] + shift)
	}
	return f, nil
}

// Risk returns the risk of each input of a table by a model; NaN of an input called critical.
func Risk(t *eval.Table, m *risk.Model) []float64 {
	values := make([]float64, t.Inputs)
	for i := range values {
		values[i] = math.NaN()
		if !slices.Contains(t.Spec.Critical, t.Predicted[i]) {
			values[i] = m.Probability(inputOf(t, i))
		}
	}
	return values
}

// Priority returns the calibrated probability of being truly critical of each input of a table: the
// risk of an input called safe, and that of CalledCritical else.
func Priority(t *eval.Table, r *policy.Risk) []float64 {
	values := Risk(t, &r.Model)
	for i, v := range values {
		if math.IsNaN(v) {
			values[i] = risk.Logistic(r.CalledCritical.Intercept + r.CalledCritical.Slope*pCritical(t, i))
		}
	}
	return values
}

func logit(p float64) float64 { return math.Log(p / (1 - p)) }

func inputOf(t *eval.Table, i int) risk.Input {
	from, to := i*t.K, (i+1)*t.K
	return risk.Input{Mean: t.Mean[from:to], C: t.C[from:to], Critical: t.Spec.Critical, Safe: t.Spec.Safe}
}

// pCritical returns the feature of that name.
func pCritical(t *eval.Table, i int) float64 {
	return risk.Term{Feature: risk.PCritical, Class: -1}.Value(inputOf(t, i))
}

// problem holds the rows and columns of the regression. A row is an input called safe, a column a
// feature; column 0 is p_critical.
type problem struct {
	table    *eval.Table
	critical []bool // by input: truly critical
	rows     []int  // the input of each row
	y        []bool // by row: truly critical
	missed   int
	group    []int // by row, from 0
	groups   int
	terms    []risk.Term // by column, without a weight
	columns  [][]float64
}

func newProblem(t *eval.Table, labels []int, o Options) *problem {
	p := &problem{table: t, critical: make([]bool, t.Inputs)}
	seen := map[int]int{}
	for i, label := range labels {
		p.critical[i] = slices.Contains(t.Spec.Critical, label)
		if slices.Contains(t.Spec.Critical, t.Predicted[i]) {
			continue
		}
		group := i
		if o.Groups != nil {
			group = o.Groups[i]
		}
		if _, known := seen[group]; !known {
			seen[group] = len(seen)
		}
		p.rows, p.y, p.group = append(p.rows, i), append(p.y, p.critical[i]), append(p.group, seen[group])
		if p.critical[i] {
			p.missed++
		}
	}
	p.groups = len(seen)
	p.terms = terms(t)
	for _, term := range p.terms {
		column := make([]float64, len(p.rows))
		for r, i := range p.rows {
			column[r] = term.Value(inputOf(t, i))
		}
		p.columns = append(p.columns, column)
	}
	return p
}

// terms returns the terms that a model of a table may have, p_critical first.
func terms(t *eval.Table) []risk.Term {
	list := []risk.Term{{Feature: risk.PCritical, Class: -1}}
	if t.K == 2 {
		return list
	}
	for _, f := range risk.Features()[1:] {
		classes := []int{-1}
		switch of, _ := f.Of(); of {
		case risk.CriticalClass:
			classes = t.Spec.Critical
		case risk.SafeClass:
			classes = t.Spec.Safe
		}
		if len(t.Spec.Safe) == 0 && f != risk.LargestCriticalMean && f != risk.CriticalMean || len(classes) > eval.MaxMatrixClasses {
			continue
		}
		for _, class := range classes {
			list = append(list, risk.Term{Feature: f, Class: class})
		}
	}
	return list
}

// share returns the share of critical inputs.
func (p *problem) share() float64 {
	n := 0
	for _, c := range p.critical {
		if c {
			n++
		}
	}
	return float64(n) / float64(len(p.critical))
}

// budget returns the most numbers that a model may have.
func (p *problem) budget() int {
	return min(MostNumbers, max(2, min(p.missed, len(p.rows)-p.missed)/10), 1+len(p.terms))
}

// everything returns all rows.
func (p *problem) everything() []int {
	rows := make([]int, len(p.rows))
	for r := range rows {
		rows[r] = r
	}
	return rows
}

// calledCritical fits the line of inputs called critical. Its intercept is penalised too, around what
// the means say, so that the line exists even where no such input, or every one, is truly critical.
func (p *problem) calledCritical() policy.Logistic {
	var x []float64
	var y []bool
	for i, critical := range p.critical {
		if slices.Contains(p.table.Spec.Critical, p.table.Predicted[i]) {
			x, y = append(x, pCritical(p.table, i)), append(y, critical)
		}
	}
	if len(x) == 0 {
		return policy.Logistic{Slope: 1}
	}
	mean, deviation := moments(x, nil)
	for i := range x {
		x[i] = (x[i] - mean) / deviation
	}
	b := logistic{
		columns: [][]float64{x}, y: y,
		centre: []float64{mean, deviation}, penalty: []float64{slopePenalty, slopePenalty}, atLeast0: []bool{false, true},
	}.fit([]float64{mean, deviation})
	slope := b[1] / deviation
	return policy.Logistic{Intercept: b[0] - slope*mean, Slope: slope}
}

// quantiles returns the quantiles of the fitted probabilities over all inputs.
func (p *problem) quantiles(fitted *policy.Risk, shift float64) []float64 {
	type weighted struct{ value, weight float64 }
	values := Priority(p.table, fitted)
	all, total := make([]weighted, len(values)), 0.0
	for i, v := range values {
		all[i] = weighted{v, 1}
		if p.critical[i] { // the shift of the odds
			all[i].weight = math.Exp(shift)
		}
		total += all[i].weight
	}
	slices.SortFunc(all, func(a, b weighted) int { return cmp.Compare(a.value, b.value) })
	const levels = 64
	q := make([]float64, 0, levels+1)
	at, below := 0, all[0].weight
	for level := range levels + 1 {
		for at < len(all)-1 && below < total*float64(level)/levels {
			at++
			below += all[at].weight
		}
		q = append(q, all[at].value)
	}
	q[levels] = all[len(all)-1].value
	return q
}
