package plan

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/ckd-project/ckd/internal/outcome/audit"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// level is the probability of the intervals.
const level = 0.95

// goodOutcomes come before the risk rises.
const goodOutcomes = 1000

// These bound the time: the outcomes of a run until the alarm, the critical outcomes until the promise
// is said to hold, and those of a month that are simulated. Beyond the last an interval is narrowed as
// the square root of their number.
const (
	mostSteps    = 400_000
	mostHolding  = 50_000
	mostCritical = 10_000
)

// study holds what all rates share.
type study struct {
	Options
	policy   *policy.Policy
	settings policy.Audit
	inputs   []Input
	weights  []float64 // how often each input comes
	estimand evidence.Risk
	figure   policy.Figure
	line     float64 // 0 for none
	risk     float64 // in the recording; NaN without critical inputs
	notes    []string
}

func newStudy(p *policy.Policy, inputs []Input, o Options) *study {
	s := &study{
		Options: o, policy: p, inputs: inputs, weights: make([]float64, len(inputs)), estimand: evidence.MissRate, figure: policy.CriticalMissRate,
		settings: policy.Audit{M: policy.DefaultAuditM, PredictedCritical: policy.CriticalAudited, RunLength: policy.DefaultRunLength, Due: policy.DefaultDue}, notes: []string{},
	}
	if p.Audit != nil {
		s.settings = *p.Audit
		s.settings.RunLength = cmp.Or(p.Audit.RunLength, policy.DefaultRunLength)
		s.settings.Due = cmp.Or(p.Audit.Due, policy.DefaultDue)
	}
	lines := p.LinesInForce()
	certified := policy.LineOf(lines, policy.CriticalFNR, "").Above
	if s.line = policy.LineOf(lines, s.figure, "").Above; s.line == 0 && certified > 0 {
		s.estimand, s.figure, s.line = evidence.FNR, policy.CriticalFNR, certified
	}
	for i := range s.weights {
		s.weights[i] = 1
	}
	critical := s.share(s.weights, func(in *Input) bool { return in.Critical })
	if r := p.Risk; r != nil && critical > 0 && critical < 1 {
		for i := range inputs {
			if inputs[i].Critical {
				s.weights[i] = r.Prevalence / critical
			} else {
				s.weights[i] = (1 - r.Prevalence) / (1 - critical)
			}
		}
	}
	s.risk = s.share(s.weights, (*Input).missed) / s.share(s.weights, s.counts)
	switch {
	case s.line == 0:
		s.notes = append(s.notes, "the policy has no line, so that no alarm can be raised: calibrate it again, or state calibrated.lines")
	case math.IsNaN(s.risk):
		s.notes = append(s.notes, "the recording has no critical input that counts: nothing is known about missing one")
	case s.risk == 0:
		s.notes = append(s.notes, "the policy misses no critical input of the recording: what alarms take cannot be simulated")
	}
	return s
}

// counts reports whether an input belongs to the denominator of the risk.
func (s *study) counts(in *Input) bool { return in.Critical && s.steps(in) }

// steps reports whether a review of an input is a step of the risk.
func (s *study) steps(in *Input) bool { return !in.Deferred || s.estimand == evidence.MissRate }

// share returns the share of inputs with a property.
func (s *study) share(weights []float64, has func(in *Input) bool) float64 {
	sum, all := 0.0, 0.0
	for i, w := range weights {
		all += w
		if has(&s.inputs[i]) {
			sum += w
		}
	}
	return sum / all
}

// raised returns the weights with which the risk is the given one, by how often inputs come that
// the risk counts; nil where that cannot be.
func (s *study) raised(risk float64) []float64 {
	if !(s.risk > 0 && s.risk < 1 && risk < 1) {
		return nil
	}
	weights := slices.Clone(s.weights)
	for i := range weights {
		switch next := &s.inputs[i]; {
		case next.missed():
			weights[i] *= risk / s.risk
		case s.counts(next):
			weights[i] *= (1 - risk) / (1 - s.risk)
		}
	}
	return weights
}

// audited returns the row of an audit rate.
func (s *study) audited(ctx context.Context, rate float64) (Rate, error) {
	row := Rate{Rate: rate, DeferredPer1000: 1000 * s.share(s.weights, func(in *Input) bool { return in.Deferred })}
	a := s.audits(rate)
	for i, w := range s.weights {
		if a.paid[i] {
			row.AuditsPer1000 += 1000 * w * a.propensity[i] / s.total()
		}
	}
	// Critical miss rates, pooled and by class, count every reviewed input. A critical FNR counts fewer.
	all := a.reviews(s.weights, func(*Input) bool { return true })
	row.InputsBetweenAlarms = s.settings.RunLength / all.share
	if err := s.month(ctx, a, &row); err != nil || s.line == 0 {
		return row, err
	}
	for times, delay := range map[float64]**Delay{2: &row.Double, 3: &row.Triple} {
		d, err := s.delay(ctx, a, times*s.line)
		if err != nil {
			return row, err
		}
		*delay = d
	}
	var err error
	row.Holding, err = s.holding(ctx, a, row.AuditsPer1000/1000)
	return row, err
}

// audits holds with what probability each input is reviewed at one rate.
type audits struct {
	*study
	propensity   []float64
	paid         []bool  // a review is an audit, which costs something
	hits, misses float64 // the least propensities of critical inputs called critical and called safe
}

func (s *study) audits(rate float64) *audits {
	settings := s.settings
	if settings.Rate = rate; rate == 1 {
		settings.M = 1 // else the unlikeliest misses are left out
	}
	p := *s.policy
	p.Audit = &settings
	plan := audit.NewPlan(&p)
	a := &audits{
		study: s, propensity: make([]float64, len(s.inputs)), paid: make([]bool, len(s.inputs)),
		hits:   audit.LeastPropensity(&settings, receipt.CalledCritical),
		misses: audit.LeastPropensity(&settings, receipt.CalledSafe),
	}
	for i := range s.inputs {
		next := &s.inputs[i]
		d := policy.Decision{Action: policy.Retain}
		if next.Deferred {
			d.Action = policy.Defer
		}
		stratum := audit.Stratum(d, next.CalledCritical)
		a.propensity[i] = plan.Propensity(stratum, next.Risk)
		a.paid[i] = stratum == receipt.CalledSafe || stratum == receipt.CalledCritical && settings.PredictedCritical != policy.CriticalFree
	}
	return a
}

// total returns the sum of the weights.
func (s *study) total() (sum float64) {
	for _, w := range s.weights {
		sum += w
	}
	return sum
}

// reviews draws reviewed inputs of some kind; the others change nothing.
type reviews struct {
	*audits
	share float64 // of all inputs
	which []int
	upTo  []float64 // ascending sums of the chances of which, up to 1
}

// reviews returns the reviews of inputs that come as often as the weights say.
func (a *audits) reviews(weights []float64, has func(in *Input) bool) *reviews {
	r := &reviews{audits: a}
	sum, all := 0.0, 0.0
	for i, w := range weights {
		all += w
		if w > 0 && a.propensity[i] > 0 && has(&a.inputs[i]) {
			sum += w * a.propensity[i]
			r.which, r.upTo = append(r.which, i), append(r.upTo, sum)
		}
	}
	for j := range r.upTo {
		r.upTo[j] /= sum
	}
	r.share = sum / all
	return r
}

// draw returns the next reviewed input.
func (r *reviews) draw(rng *rand.Rand) (o evidence.Observation, paid bool) {
	j, _ := slices.BinarySearch(r.upTo, rng.Float64())
	i := r.which[min(j, len(r.which)-1)]
	in := &r.inputs[i]
	return evidence.Observation{
		Retained: !in.Deferred, Critical: in.Critical, Missed: in.missed(), Propensity: r.propensity[i],
	}, r.paid[i]
}

// month adds to a row what the interval is after a month.
func (s *study) month(ctx context.Context, a *audits, row *Rate) error {
	r := a.reviews(s.weights, s.counts)
	n := math.Round(r.share * s.InputsPerDay * days)
	if !(n >= 1) {
		return nil
	}
	lows, highs, widths := make([]float64, s.Runs), make([]float64, s.Runs), make([]float64, s.Runs)
	narrower := math.Sqrt(min(1, mostCritical/n))
	err := s.each(ctx, func(run int, rng *rand.Rand) {
		sequence := evidence.NewSequence(s.estimand, level)
		sequence.BeginCohort(a.hits, a.misses)
		for range int(min(n, mostCritical)) {
			o, _ := r.draw(rng)
			sequence.Observe(o)
		}
		low, high := sequence.Interval()
		estimate := sequence.Estimate()
		middle := estimate.Value()
		lows[run], highs[run] = middle-narrower*(middle-low), middle+narrower*(high-middle)
		widths[run] = highs[run] - lows[run]
	})
	row.Low, row.High, row.Width = quantile(lows, 0.5), quantile(highs, 0.5), quantile(widths, 0.5)
	return err
}

// delay returns when the alarm is raised once the risk is as given; nil where it cannot be.
func (s *study) delay(ctx context.Context, a *audits, risk float64) (*Delay, error) {
	weights := s.raised(risk)
	if weights == nil {
		return nil, nil
	}
	before, after := a.reviews(s.weights, s.steps), a.reviews(weights, s.steps)
	inputs, paid := make([]float64, s.Runs), make([]float64, s.Runs)
	err := s.each(ctx, func(run int, rng *rand.Rand) {
		alarm := evidence.NewAlarm(s.estimand, s.line, s.settings.RunLength/weight[s.estimand])
		alarm.BeginCohort(a.hits)
		for range goodOutcomes {
			o, _ := before.draw(rng)
			alarm.Observe(o)
		}
		for range mostSteps {
			if alarm.Raised() {
				return
			}
			o, costs := after.draw(rng)
			alarm.Observe(o)
			inputs[run] += 1 / after.share
			if costs {
				paid[run]++
			}
		}
		inputs[run], paid[run] = math.Inf(1), math.Inf(1)
	})
	return s.delayOf(inputs, paid, mostSteps/after.share), err
}

// delayOf summarises how many inputs and audits the runs took.
func (s *study) delayOf(inputs, paid []float64, longest float64) *Delay {
	d := &Delay{
		Inputs: quantile(inputs, 0.5), Audits: quantile(paid, 0.5), InputsIn90: quantile(inputs, 0.9), AuditsIn90: quantile(paid, 0.9),
		Longest: longest,
	}
	if d.Inputs != nil {
		inDays := *d.Inputs / s.InputsPerDay
		d.Days = &inDays
	}
	return d
}

// holding returns when the upper limit of the risk first lies below the line; nil where the recording is
// not below it. A share of the inputs is audited. Evidence for an alarm, which would stand against it, is not looked at: it is about
// the same outcomes the other way round.
func (s *study) holding(ctx context.Context, a *audits, audited float64) (*Delay, error) {
	if !(s.risk < s.line) {
		return nil, nil
	}
	r := a.reviews(s.weights, s.counts)
	inputs, paid := make([]float64, s.Runs), make([]float64, s.Runs)
	err := s.each(ctx, func(run int, rng *rand.Rand) {
		below := evidence.NewBelow(s.estimand, level, s.line, a.hits, a.misses)
		for n := range mostHolding {
			o, _ := r.draw(rng)
			if below.Observe(o); below.Reached() {
				inputs[run] = float64(n+1) / r.share
				paid[run] = inputs[run] * audited
				return
			}
		}
		inputs[run], paid[run] = math.Inf(1), math.Inf(1)
	})
	return s.delayOf(inputs, paid, mostHolding/r.share), err
}

// weight is the weight of the monitor of a pooled risk: it alarms at the run length divided by it.
var weight = map[evidence.Risk]float64{evidence.MissRate: 0.5, evidence.FNR: 0.25}

// each makes all runs, each with random numbers of its own.
func (s *study) each(ctx context.Context, run func(run int, rng *rand.Rand)) error {
	var workers sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for w := range n {
		workers.Go(func() {
			for i := w; i < s.Runs && ctx.Err() == nil; i += n {
				run(i, rand.New(rand.NewPCG(s.Seed, uint64(i))))
			}
		})
	}
	workers.Wait()
	return ctx.Err()
}

// quantile returns a quantile of some values; nil where it is infinite.
func quantile(values []float64, q float64) *float64 {
	sorted := slices.Sorted(slices.Values(values))
	quantile := sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
	if math.IsInf(quantile, 0) || math.IsNaN(quantile) {
		return nil
	}
	return &quantile
}
