package calibrate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy"
)

// scoreRule is a score that decides alone, with the value of each outcome.
type scoreRule struct {
	name   policy.Score
	values []float64
}

// outcomeTest chooses on one half of the outcomes, and certifies on the other.
type outcomeTest struct {
	*Reviewed
	options            *Options
	limits             limits
	alpha              float64
	critical           []bool // by class
	chooses, certifies half
	groups             []int // of each outcome
	most               int   // critical inputs of the group that has most of them
	report             *Report
	draft              *policy.Policy
}

// half is a half of the outcomes, by groups; an input by itself is a group.
type half struct {
	groups int
	inputs []int
	cases  [][]int // critical ones, by group
}

func newOutcomeTest(r *Reviewed, o *Options) *outcomeTest {
	t := &outcomeTest{Reviewed: r, options: o, alpha: 1 - o.Objective.Confidence, critical: make([]bool, len(o.Base.Classes)), most: 1}
	for _, k := range o.Base.Critical {
		t.critical[k] = true
	}
	t.limits = o.Objective.limits(o.Base)
	groups := make([]int, len(r.Outcomes))
	for i := range r.Outcomes {
		groups[i] = int(r.Outcomes[i].Group)
		if groups[i] == 0 {
			groups[i] = -1 - i // a group of its own
		}
	}
	g := newGrouping(groups, len(groups))
	t.groups = g.group
	first, second := g.split(g.groups/2, newRand(o.Seed, streamSplit))
	t.chooses, t.certifies = t.half(first), t.half(second)
	t.report = newReport(o.Objective.String(), o.Scope, o.Seed)
	t.report.Inputs, t.report.Passes, t.report.FromOutcomes = len(r.Outcomes), o.Base.ExpectedPasses, true
	for i := range r.Outcomes {
		t.report.Critical += index(t.isCritical(i))
		t.report.Missed += index(t.isCritical(i) && !t.called(i))
	}
	return t
}

// half returns the half of some groups.
func (t *outcomeTest) half(groups [][]int) half {
	h := half{groups: len(groups), inputs: slices.Concat(groups...)}
	for _, inputs := range groups {
		if cases := slices.DeleteFunc(slices.Clone(inputs), func(i int) bool { return !t.isCritical(i) }); len(cases) > 0 {
			h.cases = append(h.cases, cases)
			t.most = max(t.most, len(cases))
		}
	}
	return h
}

func (t *outcomeTest) called(i int) bool { return t.critical[t.Outcomes[i].Predicted] }

// isCritical reports whether an outcome is truly critical. What readers dispute is so where that is
// worse: where the input is called safe.
func (t *outcomeTest) isCritical(i int) bool {
	if o := &t.Outcomes[i]; !o.Disputed {
		return t.critical[o.Truth]
	}
	return !t.called(i)
}

// counts reports whether an outcome counts for a limit.
func (t *outcomeTest) counts(l limit, i int) bool {
	o := &t.Outcomes[i]
	return t.isCritical(i) && (l.class == allClasses || o.Disputed || o.Truth == l.class)
}

// choose chooses on one half and certifies on the other.
func (t *outcomeTest) choose() error {
	rules := t.rules()
	if len(rules) == 0 {
		return errors.New("every score is the same for all outcomes: no threshold can tell them apart")
	}
	var best *plannedTest
	progress := t.options.Progress.stageProgress("comparing rules")
	for i := range rules {
		progress(i+1, len(rules))
		if p := t.plan(&rules[i]); p != nil && (best == nil || p.betterThan(best)) {
			best = p
		}
	}
	if best == nil {
		return errors.New("no score has two values that a threshold could part: expected more outcomes")
	}
	t.report.why("%s promises the largest coverage of %d scores, on the %d of %d groups or single inputs, at random, that choose.", best.rule.name, len(rules),
		t.chooses.groups, t.chooses.groups+t.certifies.groups)
	if missing := t.unseenClass(); missing != "" {
		t.refuse(best, fmt.Sprintf("no reviewed input of the half that certifies is truly %s: nothing is known of missing it", missing))
		return nil
	}
	last, unseen := -1, ""
	var passed tested
	for _, threshold := range best.thresholds {
		if unseen = t.unseenRange(best.rule, threshold); unseen != "" {
			break
		}
		all := t.test(&t.certifies, best.rule, threshold)
		if all.fails(t.alpha) != nil {
			break
		}
		passed, last = all, last+1
	}
	if last < 0 {
		t.refuse(best, unseen)
		return nil
	}
	t.finish(best.rule, best.thresholds[last], passed, len(rules))
	return nil
}

// plannedTest is a rule with the thresholds to be tested, in their order.
type plannedTest struct {
	rule       *scoreRule
	thresholds []float64
	promised   float64 // share retained at the last threshold that the choosing half passes; 0 for none
	pValue     float64 // the least on the choosing half
}

func (p *plannedTest) betterThan(o *plannedTest) bool {
	if p.promised != o.promised {
		return p.promised > o.promised
	}
	return p.promised == 0 && p.pValue < o.pValue
}

// plan returns the test of a rule, from the threshold of the least p-value on; nil if no threshold
// parts anything.
func (t *outcomeTest) plan(r *scoreRule) *plannedTest {
	thresholds := t.thresholds(r)
	if len(thresholds) == 0 {
		return nil
	}
	pValues := make([]float64, len(thresholds))
	from := 0
	for i, threshold := range thresholds {
		for _, e := range t.test(&t.chooses, r, threshold) {
			pValues[i] = max(pValues[i], e.pValue)
		}
		if pValues[i] < pValues[from] {
			from = i
		}
	}
	p := &plannedTest{rule: r, thresholds: thresholds[from:], pValue: pValues[from]}
	for i := from; i < len(thresholds) && pValues[i] <= t.alpha; i++ {
		p.promised, _ = t.coverage(&t.chooses, r, thresholds[i])
	}
	return p
}

// coverage returns the weighted share of a half that is retained, and the number of independent
// inputs that would tell it as well: (sum of weights)^2 / sum of squared weights.
func (t *outcomeTest) coverage(h *half, r *scoreRule, threshold float64) (share, effective float64) {
	var retained, all, squares float64
	for _, i := range h.inputs {
		w := 1 / t.Outcomes[i].Propensity
		all += w
		squares += w * w
		if t.retains(r, threshold, i) {
			retained += w
		}
	}
	return retained / all, all * all / squares
}

// unseenClass returns a critical class of which the certifying half has no outcome; empty for none.
func (t *outcomeTest) unseenClass() string {
	seen := make([]bool, len(t.critical))
	for _, i := range t.certifies.inputs {
		seen[t.Outcomes[i].Truth] = true
	}
	for k, critical := range t.critical {
		if critical && !seen[k] {
			return t.options.Base.Classes[k]
		}
	}
	return ""
}

// unseenRange says which tenth of what a policy retains rests on no reviewed input of its own, but on
// the weight of one that stands for more than a tenth; empty for none.
func (t *outcomeTest) unseenRange(r *scoreRule, threshold float64) string {
	const parts = 10
	total := 0.0
	var retained []int
	for _, i := range t.certifies.inputs {
		if t.retains(r, threshold, i) && !t.called(i) {
			retained = append(retained, i)
			total += 1 / t.Outcomes[i].Propensity
		}
	}
	for _, i := range retained {
		if w := 1 / t.Outcomes[i].Propensity; parts*w > total {
			return fmt.Sprintf("an input at %s %v stands for %.0f of the %.0f that the policy would retain and call safe, more than a tenth: in that range too "+
				"few were audited", r.name, r.values[i], w, total)
		}
	}
	return ""
}

// refuse reports that nothing certifies, at the first threshold of a test. An empty reason stands for
// limits that failed there.
func (t *outcomeTest) refuse(p *plannedTest, reason string) {
	all := t.test(&t.certifies, p.rule, p.thresholds[0])
	e := all.fails(t.alpha)
	if e == nil {
		e = &all[0]
	}
	if reason == "" {
		reason = fmt.Sprintf("with weights, %d of %d %s missed do not show a %s of at most %s (p = %.3g, expected at most %.3g)", e.Misses, e.Cases, e.population(),
			e.figure.Words(), percent(e.target), e.pValue, t.alpha)
	}
	t.report.Refusal = &Refusal{Reason: reason, Cases: e.Cases, Misses: e.Misses, PValue: e.pValue}
}

// finish writes the report and the draft of a policy that is certified.
func (t *outcomeTest) finish(r *scoreRule, threshold float64, passed tested, compared int) {
	report, base := t.report, t.options.Base
	report.Chosen = &Chosen{
		Gate: policy.Never, ReliabilityThreshold: base.ReliabilityThreshold, Primary: Threshold{Score: string(r.name), Threshold: threshold}, Compared: compared,
	}
	if base.Guard != nil {
		report.Chosen.Guard = &Threshold{Score: string(base.Guard.Score), Threshold: base.Guard.Threshold}
	}
	report.Certificate = passed.certificate(t.options.Objective.Confidence)
	if t.most > 1 {
		report.Certificate.Groups = len(t.certifies.cases)
	}
	report.Certificate.Statement = passed.boundsInWords(t.options.Objective.Confidence) + ", for inputs as those of the outcomes were: tested by betting on weighted outcomes, " +
		"overdue ones taken as missed."
	share, effective := t.coverage(&t.certifies, r, threshold)
	n := max(int(effective), 1)
	low, high := binomial.Interval(int(math.Round(share*float64(n))), n, 0.95)
	// The misses there decided how far to go, and would flatter.
	report.Expected = &Expected{Coverage: share, CoverageInterval: [2]float64{min(low, share), max(high, share)}}
	report.note("every figure is weighted by how probably each input was reviewed; misses and cases of the certificate are counts without weights")
	if base.EarlyStopping != nil {
		report.note("the rule for early stopping was certified for other thresholds, and is left out: ckd calibrate early-stop learns one from passes")
	}

	t.judge(r, threshold)
	if report.withhold(t.options.Force) {
		return
	}

	d := base.Draft()
	d.Gate, d.Scope, d.EarlyStopping = policy.Never, t.options.Scope, nil
	d.FewestPasses = max(d.FewestPasses, d.ExpectedPasses) // no rule says what fewer mean
	d.Primary = policy.Rule{Score: r.name, Threshold: threshold, HasThreshold: true}
	d.Fallback = policy.Rule{Score: policy.CBEC}
	was := d.Calibration
	d.Calibration = &policy.Calibration{
		Software: t.options.Source.Software, Objective: report.Objective, Scope: t.options.Scope, Seed: t.options.Seed,
		Recording:   policy.Recording{PassesFile: printableBase(t.Name), PassesSHA256: t.options.Source.Passes.SHA256, Inputs: report.Inputs, CriticalInputs: report.Critical, Passes: report.Passes},
		Certificate: report.Certificate.forPolicy(), Unsupported: report.Unsupported,
	}
	e := report.Expected
	d.Calibration.ExpectedCoverage = &policy.Interval{Value: e.Coverage, Low: e.CoverageInterval[0], High: e.CoverageInterval[1]}
	if was != nil { // what the inputs looked like is no matter of thresholds
		d.Calibration.Posterior, d.Calibration.Reference, d.Calibration.MeanRootRisk = was.Posterior, was.Reference, was.MeanRootRisk
	}
	t.draft = &d
}

// judge compares the choice with reviews drawn at random, on the certifying half. Counts are without
// weights: to a rule that draws at random, it does not matter how probably an input was reviewed.
func (t *outcomeTest) judge(r *scoreRule, threshold float64) {
	n := len(t.Outcomes)
	missed, eligible, deferred := make([]bool, n), make([]bool, n), make([]bool, n)
	critical := 0
	for _, i := range t.certifies.inputs {
		missed[i] = t.isCritical(i) && !t.called(i)
		eligible[i] = !t.called(i) || t.options.Scope == policy.AllInputs && r.name != policy.RiskScore
		deferred[i] = !t.retains(r, threshold, i)
		critical += index(t.isCritical(i))
	}
	var groups []int
	if t.most > 1 {
		groups = t.groups
	}
	t.report.judge(eval.GainOf(missed, eligible, deferred, groups), critical, false)
}

// rules returns the scores that can decide alone.
func (t *outcomeTest) rules() (rules []scoreRule) {
	add := func(name policy.Score, value func(*Outcome) float32) {
		r := scoreRule{name, make([]float64, len(t.Outcomes))}
		least, most := math.Inf(1), math.Inf(-1)
		for i := range t.Outcomes {
			v := float64(value(&t.Outcomes[i]))
			if name == policy.RiskScore && t.called(i) {
				v = math.Inf(-1) // never deferred by it
			} else if math.IsNaN(v) {
				return
			} else if !t.Outcomes[i].Fixed {
				least, most = min(least, v), max(most, v)
			}
			r.values[i] = v
		}
		if least < most {
			rules = append(rules, r)
		}
	}
	for s := range decomp.Score(decomp.NumScores) {
		add(nameOfScore(s), func(o *Outcome) float32 { return o.Scores[s] })
	}
	if t.options.Base.Risk != nil && t.options.keepsCalls(t.options.Scope) {
		add(policy.RiskScore, func(o *Outcome) float32 { return o.Risk })
	}
	return rules
}

// retains reports whether the policy with a rule and a threshold retains an outcome.
func (t *outcomeTest) retains(r *scoreRule, threshold float64, i int) bool {
	switch o := &t.Outcomes[i]; {
	case o.Fixed:
		return !o.Deferred
	case t.options.Scope == policy.PredictedSafe && t.called(i):
		return true
	}
	return r.values[i] <= threshold
}

// thresholds returns thresholds at each hundredth of the weight of a half, from the strictest on.
// Each lies between two values.
func (t *outcomeTest) thresholds(r *scoreRule) []float64 {
	var inputs []int
	total := 0.0
	for _, i := range t.chooses.inputs {
		if !t.Outcomes[i].Fixed && !math.IsInf(r.values[i], -1) && !(t.options.Scope == policy.PredictedSafe && t.called(i)) {
			inputs = append(inputs, i)
			total += 1 / t.Outcomes[i].Propensity
		}
	}
	slices.SortFunc(inputs, func(a, b int) int { return cmp.Compare(r.values[a], r.values[b]) })
	var found []float64
	const steps = 100
	below, next := 0.0, 1.0
	for at, i := range inputs {
		below += 1 / t.Outcomes[i].Propensity
		if at+1 == len(inputs) {
			break
		}
		v, w := r.values[i], r.values[inputs[at+1]]
		if v == w || below*steps < next*total {
			continue
		}
		found = append(found, v+(w-v)/2)
		next = math.Floor(below*steps/total) + 1
	}
	return found
}

// test tests every limit on a half.
func (t *outcomeTest) test(h *half, r *scoreRule, threshold float64) tested {
	all := make(tested, len(t.limits))
	for at, l := range t.limits {
		e := evidence{limit: l}
		b := newBets(l.target, t.LeastPropensity)
		for _, d := range t.Overdue {
			n := (d.Number + 1) / 2 // either half has half of them
			b.bet((1-l.target)*d.Weight/float64(t.most), n)
			e.Cases, e.Misses = e.Cases+n, e.Misses+n
		}
		for _, unit := range h.cases {
			sum := 0.0
			for _, i := range unit {
				if !t.counts(l, i) {
					continue
				}
				retained := t.retains(r, threshold, i)
				if l.figure == policy.CriticalFNR && !retained {
					continue
				}
				e.Cases++
				z := -l.target
				if retained && !t.called(i) {
					e.Misses++
					z++
				}
				sum += z / t.Outcomes[i].Propensity
			}
			if sum != 0 {
				b.bet(sum/float64(t.most), 1)
			}
		}
		e.pValue = b.pValue()
		all[at] = e
	}
	return all
}

// bets hold the logarithm of the wealth of each bet.
type bets struct {
	stakes, logs [12]float64
}

// newBets places bets against "the risk is a or more", for losses of at most (1-a)/least.
func newBets(a, least float64) *bets {
	b := &bets{}
	for k := range b.stakes {
		b.stakes[k] = 0.98 * least / (1 - a) * math.Exp2(-float64(k))
	}
	return b
}

// bet bets on z some times.
func (b *bets) bet(z float64, times int) {
	for k, stake := range b.stakes {
		b.logs[k] += float64(times) * math.Log1p(-stake*z)
	}
}

// pValue returns 1 over the mean wealth, at most 1.
func (b *bets) pValue() float64 {
	most := slices.Max(b.logs[:])
	sum := 0.0
	for _, l := range b.logs {
		sum += math.Exp(l - most)
	}
	return math.Min(1, math.Exp(-most)*float64(len(b.logs))/sum)
}
