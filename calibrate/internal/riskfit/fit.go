package riskfit

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/risk"
)

// FewestMissed is how many critical inputs called safe a model needs, and how many others.
const FewestMissed = 10

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
}

// Fit is what was fitted on a table.
type Fit struct {
	// Risk is what a policy holds.
	Risk *policy.Risk
	// Reliability says what the risks of inputs are worth by the model fitted without their fold, before any
	// shift.
	Reliability *Reliability
}

// New fits a model. It returns nil where too few inputs called safe are critical, or are not.
func New(t *eval.Table, labels []int, o Options) *Fit {
	p := newProblem(t, labels, o)
	if min(p.missed, len(p.rows)-p.missed) < FewestMissed {
		return nil
	}
	f := &Fit{}
	f.Risk = &policy.Risk{CalledSafe: p.fit(nil, -1), CalledCritical: p.calledCritical(), Prevalence: p.share()}
	shift := 0.0
	if o.Prevalence != 0 {
		shift = logit(o.Prevalence) - logit(f.Risk.Prevalence)
		f.Risk.Prevalence = o.Prevalence
		f.Risk.CalledSafe.Intercept += shift
		f.Risk.CalledCritical.Intercept += shift
	}
	f.Risk.Quantiles = p.quantiles(f.Risk, shift)
	f.Reliability = p.reliability(p.holdOut(p.folds(o.Seed)))
	return f
}

// Risks returns the risk of each input of a table; 0 for an input called critical, which has none.
func Risks(t *eval.Table, r *policy.Risk) []float64 {
	values := make([]float64, t.Inputs)
	for i := range values {
		if !slices.Contains(t.Spec.Critical, t.Predicted[i]) {
			values[i] = r.CalledSafe.Probability(pCritical(t, i))
		}
	}
	return values
}

func logit(p float64) float64 { return math.Log(p / (1 - p)) }

// pCritical returns the mean probability of the critical classes of an input together.
func pCritical(t *eval.Table, i int) (sum float64) {
	for _, k := range t.Spec.Critical {
		sum += t.Mean[i*t.K+k]
	}
	return sum
}

// problem holds the rows of the regression. A row is an input called safe.
type problem struct {
	table    *eval.Table
	critical []bool    // by input: truly critical
	rows     []int     // the input of each row
	x        []float64 // by row: the log-odds of p_critical
	y        []bool    // by row: truly critical
	missed   int
	group    []int // by row, from 0
	groups   int
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
		p.x = append(p.x, risk.LogOdds(pCritical(t, i)))
		if p.critical[i] {
			p.missed++
		}
	}
	p.groups = len(seen)
	return p
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

// fit fits the line of the rows that are not of a fold; of all rows where fold is nil.
func (p *problem) fit(fold []int, out int) policy.Logistic {
	var x []float64
	var y []bool
	for r := range p.rows {
		if fold == nil || fold[r] != out {
			x, y = append(x, p.x[r]), append(y, p.y[r])
		}
	}
	l := standardised(x, y)
	l.centre, l.penalty, l.rises = [2]float64{0, l.deviation}, [2]float64{0, slopePenalty}, true
	return l.line(l.fit([2]float64{0, l.deviation}))
}

// calledCritical fits the line of inputs called critical. Its intercept is penalised too, around what
// the means say, so that the line exists even where no such input, or every one, is truly critical.
func (p *problem) calledCritical() policy.Logistic {
	var x []float64
	var y []bool
	for i, critical := range p.critical {
		if slices.Contains(p.table.Spec.Critical, p.table.Predicted[i]) {
			x, y = append(x, risk.LogOdds(pCritical(p.table, i))), append(y, critical)
		}
	}
	if len(x) == 0 {
		return policy.Logistic{Slope: 1}
	}
	l := standardised(x, y)
	l.centre, l.penalty, l.rises = [2]float64{l.mean, l.deviation}, [2]float64{slopePenalty, slopePenalty}, true
	return l.line(l.fit(l.centre))
}

// quantiles returns the quantiles of the fitted probabilities over all inputs.
func (p *problem) quantiles(fitted *policy.Risk, shift float64) []float64 {
	type weighted struct{ value, weight float64 }
	all, total := make([]weighted, p.table.Inputs), 0.0
	for i := range all {
		line := fitted.CalledSafe
		if slices.Contains(p.table.Spec.Critical, p.table.Predicted[i]) {
			line = fitted.CalledCritical
		}
		all[i] = weighted{line.Probability(pCritical(p.table, i)), 1}
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
	foldOf, at := make([]int, p.groups), 0
	for _, s := range strata {
		rng.Shuffle(len(s), func(a, b int) { s[a], s[b] = s[b], s[a] })
		for _, g := range s {
			foldOf[g] = at % folds
			at++
		}
	}
	fold := make([]int, len(p.rows))
	for r := range fold {
		fold[r] = foldOf[p.group[r]]
	}
	return fold
}

// holdOut returns the log-odds of each row by the line that was fitted without its fold.
func (p *problem) holdOut(fold []int) []float64 {
	held := make([]float64, len(p.rows))
	for out := range folds {
		line := p.fit(fold, out)
		for r, of := range fold {
			if of == out {
				held[r] = line.Intercept + line.Slope*p.x[r]
			}
		}
	}
	return held
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
