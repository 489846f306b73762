package calibrate

import (
	"cmp"
	"math"
	"slices"

	"github.com/ckd-project/ckd/calibrate/internal/logistic"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/risk"
)

// fewestMissed is how many critical inputs called safe a model of risk needs, and how many others.
const fewestMissed = 10

// slopePenalty is the precision of a normal prior of the standardised slope, in log-odds. It was
// chosen on 27 tasks from recordings of four data sets, with several critical sets each: from a tenth
// of to twice it, the mean log loss on other halves changes by 0.3% at most. From 3 on, risks of
// ctg-ensemble are off by more than chance explains.
const slopePenalty = 0.3

// riskModel is the model of risk of a policy, and what it is worth: by the models fitted without the
// inputs that they are measured on, before any shift to another prevalence.
type riskModel struct {
	*policy.Risk
	reliability *RiskReport
}

// riskProblem asks for the probability that an input called safe is truly critical.
//
// A model has two numbers: an intercept, and the weight of the log-odds of p_critical, penalised on
// the square of its standardised distance from 1, which would take the means of the passes at their
// word. The weight is kept at or above 0, so that the risk rises as mass moves to critical classes.
// The penalty keeps the fit finite where p_critical separates the outcomes. More features were tried:
// on halves of eight recordings no form of them had a Brier score lower by a standard error.
type riskProblem struct {
	*sample
	pCritical []float64 // by input
	logOdds   []float64 // of pCritical
	safe      part      // the inputs called safe
	rows      []int     // of safe, ascending
	missed    int       // of them
	groups    int       // of them
}

// fitRisk fits a model to a part of a sample, and returns it with the risk of each input of the sample,
// 0 for an input called critical, which has none. Both are nil where too few inputs called safe are
// critical, or are not. With a prevalence, all log-odds are shifted by the difference of the two
// shares' log-odds, which holds if critical inputs, and the others, look as those of the part do.
func fitRisk(s *sample, p part, seed uint64, prevalence float64) (m *riskModel, risks []float64) {
	r := newRiskProblem(s, p)
	if min(r.missed, len(r.rows)-r.missed) < fewestMissed {
		return nil, nil
	}
	m = &riskModel{Risk: &policy.Risk{
		CalledSafe: r.line(r.safe, 0), CalledCritical: r.line(p.without(r.safe), slopePenalty), Prevalence: float64(p.count(s.critical)) / float64(p.n),
	}}
	shift := 0.0
	if prevalence != 0 {
		shift = logit(prevalence) - logit(m.Prevalence)
		m.Prevalence = prevalence
		m.CalledSafe.Intercept += shift
		m.CalledCritical.Intercept += shift
	}
	m.Quantiles = r.quantiles(p, m.Risk, shift)
	m.reliability = r.reliability(r.holdOut(seed))
	risks = make([]float64, s.n)
	for i := range risks {
		if !s.predictedCritical[i] {
			risks[i] = m.CalledSafe.Probability(r.pCritical[i])
		}
	}
	return m, risks
}

func newRiskProblem(s *sample, p part) *riskProblem {
	r := &riskProblem{sample: s, pCritical: make([]float64, s.n), logOdds: make([]float64, s.n)}
	seen := map[int]bool{}
	for i, inside := range p.holds {
		for _, k := range s.table.Spec.Critical {
			r.pCritical[i] += s.table.Mean[i*s.table.K+k]
		}
		r.logOdds[i] = risk.LogOdds(r.pCritical[i])
		if inside && !s.predictedCritical[i] {
			r.rows = append(r.rows, i)
			r.missed += index(s.critical[i])
			seen[s.group[i]] = true
		}
	}
	r.safe, r.groups = s.partOf(r.rows), len(seen)
	return r
}

func logit(p float64) float64 { return math.Log(p / (1 - p)) }

// line fits the line of inputs. A penalty of its intercept draws that towards what the means say, so
// that the line exists even where no input, or every one, is truly critical.
func (r *riskProblem) line(p part, intercept float64) policy.Logistic {
	if p.n == 0 {
		return policy.Logistic{Slope: 1}
	}
	l := r.regress(p.inputs(), r.logOdds, intercept, slopePenalty)
	if l.b[1] < 0 { // no slope instead
		for i := 1; i < len(l.X); i += 2 {
			l.X[i] = 0
		}
		l.Fit(l.b, tolerance)
		l.b[1] = 0
	}
	slope := l.b[1] / l.deviation
	return policy.Logistic{Intercept: l.b[0] - slope*l.mean, Slope: slope}
}

// tolerance of fitted weights, in log-odds.
const tolerance = 1e-8

// regression is a fitted regression on one standardised column, of which it keeps mean and standard
// deviation.
type regression struct {
	*logistic.Regression
	mean, deviation float64
	b               []float64
}

// regress regresses on a value of some inputs whether they are truly critical. The penalties draw
// intercept and slope towards the value itself.
func (s *sample) regress(inputs []int, value []float64, intercept, slope float64) *regression {
	const leastDeviation = 1e-9 // of values that do not vary
	l := logistic.New(2, 0)
	for _, i := range inputs {
		l.X, l.Y = append(l.X, 1, value[i]), append(l.Y, s.critical[i])
	}
	mean, deviation := l.Standardise()
	r := &regression{l, mean[1], max(deviation[1], leastDeviation), nil}
	l.Penalty, l.Centre, r.b = []float64{intercept, slope}, []float64{r.mean, r.deviation}, []float64{r.mean, r.deviation}
	l.Fit(r.b, tolerance)
	return r
}

// quantiles returns the quantiles of the fitted probabilities over the inputs of a part.
func (r *riskProblem) quantiles(p part, fitted *policy.Risk, shift float64) []float64 {
	type weighted struct{ value, weight float64 }
	all, total := make([]weighted, 0, p.n), 0.0
	for _, i := range p.inputs() {
		line := fitted.CalledSafe
		if r.predictedCritical[i] {
			line = fitted.CalledCritical
		}
		w := weighted{line.Probability(r.pCritical[i]), 1}
		if r.critical[i] { // the shift of the odds
			w.weight = math.Exp(shift)
		}
		all = append(all, w)
		total += w.weight
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

// holdOut returns the log-odds of each input called safe by the line that was fitted without its
// fold.
func (r *riskProblem) holdOut(seed uint64) []float64 {
	const folds = 10
	held := make([]float64, r.n)
	for _, out := range r.foldsOf(r.safe, folds, newRand(seed, streamRisk)) {
		line := r.line(r.safe.without(out), 0)
		for _, i := range out.inputs() {
			held[i] = line.Intercept + line.Slope*r.logOdds[i]
		}
	}
	return held
}
