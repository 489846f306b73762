package eval

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// Options of Evaluate.
type Options struct {
	// Classes has the names of the classes. Nil takes their numbers.
	Classes []string
	// Reliability is the threshold of the skewness ratio. 0 takes
	// policy.DefaultReliabilityThreshold.
	Reliability float64
	// Coverage, in (0,1], at which figures at one coverage are taken.
	Coverage float64
	// Reviews, in (0,1), takes the place of Coverage: the share of inputs that people look at in all.
	// Where critical calls are reviewed they are part of it, and the coverage is what the rest leaves in
	// scope predicted-safe. 0 takes Coverage.
	Reviews float64
	// CriticalCalls says what happens to inputs that are called critical and retained. Empty counts
	// as ActedOn does, and the report says that the site has not said.
	CriticalCalls CriticalCalls
	// Groups has a number for each input, the same for inputs that are not independent, such as several
	// images of one patient. Resamples then draw groups; intervals and tests count groups. Nil takes
	// Table.Copies, and all inputs as independent where there are none.
	Groups []int
	// Bootstrap is the number of resamples. 0 draws none.
	Bootstrap int
	Seed      uint64
	// Policy to evaluate too, with its Decisions on every input, as Decide returns them.
	Policy    *policy.Policy
	Decisions []policy.Decision
	// PassesSHA256 is compared with the recording that the policy was calibrated on.
	PassesSHA256 string
	// Progress is called as resamples are done.
	Progress Progress
}

// Evaluate reports on a table whose inputs have the true classes labels. The caller fills software
// and files of the report's source.
//
// Without a critical set there are no gates and no scope predicted-safe, and critical figures are
// undefined. It returns an error where labels or options do not fit the table.
func Evaluate(ctx context.Context, t *Table, labels []int, o Options) (*Report, error) {
	if o.Reliability == 0 {
		o.Reliability = policy.DefaultReliabilityThreshold
	}
	if o.Classes == nil {
		for k := range t.K {
			o.Classes = append(o.Classes, fmt.Sprint(k))
		}
	}
	if err := o.check(t, labels); err != nil {
		return nil, err
	}
	if err := o.spend(t); err != nil {
		return nil, err
	}
	if o.Groups == nil {
		o.Groups = t.Copies
	}
	e := &evaluation{
		t: t, labels: labels, o: o,
		outcomes: outcomes(labels, t.Predicted, setOf(t.K, t.Spec.Critical)),
		grid:     newGrid(t.Inputs, o.Coverage),
		counted:  countClasses(t, labels, inputsOf(t.Inputs)),
		groups:   newGroups(o.Groups),
	}
	e.report = &Report{
		Signs: t.Suspect(labels),
		Source: Source{
			Kind: kindOf(t.Spec.Kind), Variance: varianceOf(t.Spec.Variance),
			Coverage: o.Coverage, Bootstrap: o.Bootstrap, Seed: o.Seed, Reliability: o.Reliability,
			CriticalCalls: o.CriticalCalls, ReviewsPer1000: math.Round(1e9*o.Reviews) / 1e6,
		},
		Classes:    classes(t, labels, o.Classes, e.counted),
		Matrix:     matrix(t, labels),
		Profiles:   profiles(t, labels, e.counted),
		Signatures: signatures(t, labels, o.Classes),
		Confusion:  confusion(t),
		Dominant:   dominant(t),
	}
	if e.groups != nil {
		e.report.Source.Groups = len(e.groups.members)
	}
	e.summarise()
	var err error
	if e.report.Skewness, err = skewnesses(ctx, t, labels, o.Classes, e.counted); err != nil {
		return nil, err
	}
	if err := e.rank(ctx); err != nil {
		return nil, err
	}
	e.report.PaperRule = paperRule(t, e.report.Skewness, e.rows(policy.AllInputs), o.Reliability)
	if o.Policy != nil {
		e.report.Policy = e.operatingPoint()
	}
	e.report.Gain = e.ruleGain()
	e.notes()
	return e.report, nil
}

// check returns an error unless the options and labels fit the table.
func (o Options) check(t *Table, labels []int) error {
	switch {
	case len(o.Classes) != t.K:
		return fmt.Errorf("%d class names, expected %d: one for each class of the recording", len(o.Classes), t.K)
	case o.Reviews != 0 && !(o.Reviews > 0 && o.Reviews < 1):
		return fmt.Errorf("reviews %v: expected a share above 0 and below 1", o.Reviews)
	case o.Reviews == 0 && !(o.Coverage > 0 && o.Coverage <= 1):
		return fmt.Errorf("coverage %v: expected above 0 and at most 1", o.Coverage)
	case !slices.Contains([]CriticalCalls{"", ActedOn, Reviewed}, o.CriticalCalls):
		return fmt.Errorf("critical calls %q: expected %s or %s", o.CriticalCalls, ActedOn, Reviewed)
	case !(o.Reliability > 0):
		return fmt.Errorf("reliability threshold %v: expected above 0", o.Reliability)
	case o.Groups != nil && len(o.Groups) != t.Inputs:
		return fmt.Errorf("%d groups, expected %d: one for each input", len(o.Groups), t.Inputs)
	case o.Bootstrap < 0:
		return fmt.Errorf("%d resamples: expected 0 or more", o.Bootstrap)
	case o.Policy != nil && len(o.Policy.Classes) != t.K:
		return fmt.Errorf("policy %q is for %d classes, expected %d, those of the recording", o.Policy.Name,
			len(o.Policy.Classes), t.K)
	case o.Policy != nil && len(o.Decisions) != t.Inputs:
		return fmt.Errorf("%d decisions of policy %q, expected %d: one for each input", len(o.Decisions), o.Policy.Name,
			t.Inputs)
	}
	return Recording{Classes: t.K, Passes: decomp.Tensor{Inputs: t.Inputs}, Labels: labels}.CheckLabels()
}

// spend sets the coverage that a budget of reviews leaves. It returns an error where critical calls
// alone exceed the budget.
func (o *Options) spend(t *Table) error {
	if o.Reviews == 0 {
		return nil
	}
	o.Coverage = 1 - o.Reviews
	if o.CriticalCalls != Reviewed {
		return nil
	}
	called, critical := 0, setOf(t.K, t.Spec.Critical)
	for _, k := range t.Predicted {
		called += index(critical[k])
	}
	if float64(called) > o.Reviews*float64(t.Inputs) {
		return fmt.Errorf("%v reviews per 1,000 inputs are fewer than the critical calls, which are reviewed anyway: %d of the %d inputs "+
			"(%.1f per 1,000) are called critical, expected a budget above that: the rest is for inputs called safe", math.Round(1e9*o.Reviews)/1e6, called, t.Inputs,
			1000*share(called, t.Inputs))
	}
	o.Coverage += share(called, t.Inputs)
	return nil
}

// evaluation holds the state of one Evaluate.
type evaluation struct {
	t        *Table
	labels   []int
	o        Options
	outcomes []outcome
	grid     *grid
	counted  *classCounts // counts over all inputs
	groups   *groups      // nil where all inputs are independent
	report   *Report
	// tied has, for each row, the largest number of inputs that share one key.
	tied []int
	// gains has the gain of each row of scope predicted-safe.
	gains []Gain
}

func (e *evaluation) summarise() {
	t, s := e.t, &e.report.Summary
	*s = Summary{
		Inputs: t.Inputs, Passes: t.Passes, Classes: t.K,
		Accuracy: share(e.counted.correct, t.Inputs),
		MacroF1:  macroF1(t.K, e.counted.f1), QWK: kappa(t, e.labels, e.counted),
	}
	for _, o := range e.outcomes {
		s.Critical += index(o&isCritical != 0)
		s.Missed += index(o&isMissed != 0)
	}
	s.WithoutDeferral = e.figuresAt(retention{whole: inputsOf(t.Inputs)})
	largest := largestSkewness(t)
	s.approximate(t, e.o.Reliability, largest)
	e.report.Residual = residuals(t, largest)
}

// rank adds the rankings to the report: policies, pairwise comparisons and curves.
func (e *evaluation) rank(ctx context.Context) error {
	candidates := candidates(e.t, e.o)
	rankings := make([]*ranking, len(candidates)) // kept without their keys
	counted := make([][coverages + 1]counts, len(candidates))
	rows, curves := make([]Row, len(candidates)), make([]Curve, len(candidates))
	e.tied, e.gains = make([]int, len(candidates)), make([]Gain, len(candidates))
	inputs := once(e.outcomes)
	err := concurrently(ctx, len(candidates), func(r int) {
		candidate := candidates[r]()
		e.grid.walk(candidate.order, candidate.ties, inputs, &counted[r])
		rows[r], curves[r] = e.row(candidate, inputs, &counted[r])
		e.tied[r] = largestTie(candidate)
		if candidate.Scope == policy.PredictedSafe {
			e.gains[r] = e.gainOf(candidate.retain(int(e.grid.cuts[e.grid.requested])))
		}
		candidate.Key = nil
		rankings[r] = candidate
	})
	if err != nil {
		return err
	}
	from := make(map[policy.Scope]int)
	rangeOf(rankings, e.grid, counted, from)
	for r := range rows {
		rows[r].AUSC, rows[r].AUSCFrom = e.grid.areas(&counted[r], from[rows[r].Scope]), undefined
		if c := from[rows[r].Scope]; c < coverages-1 {
			rows[r].AUSCFrom = Figure(coverage(c))
		}
	}
	e.report.Policies = rows
	e.report.Pairwise = []Pairwise{}
	for _, scope := range scopes(e.t) {
		e.same(scope, rankings)
	}
	e.report.Curves = Curves{Rows: curves}
	for c := range coverages {
		e.report.Curves.Coverage = append(e.report.Curves.Coverage, coverage(c))
		e.report.Curves.Retained = append(e.report.Curves.Retained, Kept(coverage(c), e.t.Inputs))
	}
	if e.o.Bootstrap == 0 {
		return nil
	}
	samples, err := bootstrap(ctx, rankings, e.outcomes, e.grid, e.groups, e.o)
	if err != nil {
		return err
	}
	for r, s := range samples {
		rows[r].Bootstrap = Bootstrap{Interval: interval(s.ausc), WinShare: undefined, Samples: s.ausc}
		rows[r].BootstrapPaper = interval(s.auscPaper)
		rows[r].BootstrapAt = BootstrapAt{
			CriticalFNR: interval(s.criticalFNR), CriticalError: interval(s.criticalError), Accuracy: interval(s.accuracy),
		}
	}
	if e.report.Summary.Critical == 0 { // no ranking can win without critical inputs
		return nil
	}
	for _, scope := range scopes(e.t) {
		distinct := e.rankings(scope)
		winShares(distinct, inPaper, e.o.Bootstrap)
		for _, row := range e.rows(scope) { // rows of the same ranking win together
			for _, one := range distinct {
				if row.SameAs == one.Name {
					row.Bootstrap.WinShare = one.Bootstrap.WinShare
				}
			}
		}
		compared := slices.DeleteFunc(distinct, func(row *Row) bool { return beyondPaper(row.Name) }) // by the paper's tables
		e.report.Pairwise = append(e.report.Pairwise, pairwise(compared)...)
	}
	return nil
}

// same sets SameAs of the rows of a scope that order the inputs which may be deferred alike.
func (e *evaluation) same(scope policy.Scope, rankings []*ranking) {
	var distinct []int
	for r := range e.report.Policies {
		row := &e.report.Policies[r]
		if row.Scope != scope {
			continue
		}
		for _, d := range distinct {
			if sameRanking(rankings[d].score, rankings[r].score, e.deferrable(rankings[d]), e.deferrable(rankings[r])) {
				row.SameAs = e.report.Policies[d].Name
				break
			}
		}
		if row.SameAs == "" {
			distinct = append(distinct, r)
		}
	}
}

// deferrable returns the part of a ranking's order that may be deferred.
func (e *evaluation) deferrable(r *ranking) []int32 {
	if r.Scope != policy.PredictedSafe {
		return r.order
	}
	return r.order[int(e.report.Summary.WithoutDeferral.CalledCritical):]
}

// row returns the figures and the curve of a ranking from its counts. AUSC is left open.
func (e *evaluation) row(r *ranking, inputs []outcome, counted *[coverages + 1]counts) (Row, Curve) {
	nothing := Interval{undefined, undefined, undefined, undefined}
	row := Row{
		Name: r.Name, Scope: r.Scope,
		At:             e.figuresAt(r.retain(int(e.grid.cuts[e.grid.requested]))),
		AUSCPaper:      e.grid.paperAreas(counted),
		Bootstrap:      Bootstrap{Interval: nothing, WinShare: undefined},
		BootstrapPaper: nothing,
		BootstrapAt:    BootstrapAt{CriticalFNR: nothing, CriticalError: nothing, Accuracy: nothing},
	}
	all := float64(e.report.Summary.Critical)
	row.JointArea = e.grid.area(counted, 0, func(c counts) Figure { return per(c.missed, all) })
	row.AURC, row.AUGRC = wholeCurve(r, inputs)

	curve := Curve{Name: r.Name, Scope: r.Scope}
	for c := range coverages {
		n := counted[e.grid.cut(c)]
		curve.CriticalRetained = append(curve.CriticalRetained, n.critical)
		curve.CriticalMissed = append(curve.CriticalMissed, n.missed)
		curve.Wrong = append(curve.Wrong, n.wrong)
		curve.CalledCritical = append(curve.CalledCritical, n.called)
	}
	return row, curve
}

// figuresAt returns the figures of the retained inputs.
func (e *evaluation) figuresAt(r retention) At {
	whole, tied := e.count(r.whole), e.count(r.tied)
	critical, missed, called := r.expected(whole.critical, tied.critical), r.expected(whole.missed, tied.missed),
		r.expected(whole.called, tied.called)
	all := e.report.Summary.Critical
	isMissed := r.shares(e.t.Inputs, e.isMissed)
	figures := At{
		Coverage: share(r.size(), e.t.Inputs), Retained: r.size(),
		CriticalMissed: missed, CriticalMissRate: per(missed, float64(all)),
		CriticalMissRateInterval: e.interval(missed, all, e.isCritical, isMissed),
		CalledCritical:           called, FalseCalls: r.expected(whole.falsely, tied.falsely),
		CriticalFNR:   per(missed, critical),
		CriticalError: per(r.expected(whole.criticalWrong, tied.criticalWrong), critical),
		Accuracy:      per(r.expected(whole.correct, tied.correct), float64(r.size())),
		MacroF1: macroF1(e.t.K, func(k int) Figure {
			return f1(r.expected(whole.right[k], tied.right[k]), r.expected(whole.support[k], tied.support[k]),
				r.expected(whole.predicted[k], tied.predicted[k]))
		}),
		CriticalRetained:      critical,
		CriticalDeferredShare: per(float64(all)-critical, float64(all)),
	}
	figures.Per1000 = e.per1000(&figures)
	missedOf := make([]float64, e.t.K)
	for k := range missedOf {
		missedOf[k] = r.expected(whole.missedOf[k], tied.missedOf[k])
	}
	figures.CriticalClasses, figures.WorstClass = e.criticalClasses(missedOf, isMissed)
	return figures
}

// kept counts some inputs.
type kept struct {
	*classCounts
	critical, missed, criticalWrong, called, falsely int
	missedOf                                         []int // by class
}

func (e *evaluation) count(inputs []int32) kept {
	c := kept{classCounts: countClasses(e.t, e.labels, inputs), missedOf: make([]int, e.t.K)}
	for _, i := range inputs {
		o := e.outcomes[i]
		c.critical += index(o&isCritical != 0)
		c.missed += index(o&isMissed != 0)
		c.criticalWrong += index(o&isCritical != 0 && o&isWrong != 0)
		c.called += index(o&isTreated != 0)
		c.falsely += index(o&isTreated != 0 && o&isCritical == 0)
		c.missedOf[e.labels[i]] += index(o&isMissed != 0)
	}
	return c
}

// per1000 returns the counts at a coverage for each 1,000 inputs.
func (e *evaluation) per1000(figures *At) Per1000 {
	per := func(n float64) float64 { return 1000 * ratio(n, float64(e.t.Inputs)) }
	deferred := float64(e.t.Inputs - figures.Retained)
	p := Per1000{
		Deferred: per(deferred), Reviews: per(deferred), CalledCritical: per(figures.CalledCritical),
		FalseCalls: per(figures.FalseCalls), Missed: per(figures.CriticalMissed),
	}
	if e.o.CriticalCalls == Reviewed {
		p.Reviews = per(deferred + figures.CalledCritical)
	}
	return p
}

// criticalClasses returns the misses of each critical class, and the name of the worst class. missed
// counts by class, and isMissed has the chance of each input.
func (e *evaluation) criticalClasses(missed, isMissed []float64) (all []ClassMisses, worst string) {
	all = []ClassMisses{}
	highest := undefined
	for _, k := range slices.Sorted(slices.Values(e.t.Spec.Critical)) {
		c := ClassMisses{Class: e.o.Classes[k], Inputs: e.counted.support[k], Missed: missed[k], CriticalMissRate: undefined}
		if c.Inputs >= FewOfClass {
			ofClass := func(i int) bool { return e.labels[i] == k }
			c.CriticalMissRate, c.CriticalMissRateInterval = per(c.Missed, float64(c.Inputs)), e.interval(c.Missed, c.Inputs, ofClass, isMissed)
			if !highest.Defined() || c.CriticalMissRate > highest {
				worst, highest = c.Class, c.CriticalMissRate
			}
		}
		all = append(all, c)
	}
	return all, worst
}

// rankings returns the rows of a scope, each ranking once.
func (e *evaluation) rankings(scope policy.Scope) []*Row {
	return slices.DeleteFunc(e.rows(scope), func(row *Row) bool { return row.SameAs != "" })
}

// rows returns the rows of a scope.
func (e *evaluation) rows(scope policy.Scope) []*Row {
	var rows []*Row
	for r := range e.report.Policies {
		if row := &e.report.Policies[r]; row.Scope == scope {
			rows = append(rows, row)
		}
	}
	return rows
}

// inPaper reports whether a row ranks by one of the paper's ten scores.
func inPaper(row *Row) bool {
	score, ok := decomp.ParseScore(row.Name)
	return ok && score.InPaper()
}

// inputsOf returns the numbers 0 to n-1.
func inputsOf(n int) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// kindOf and varianceOf return what a policy calls a kind of rows and a divisor.
func kindOf(k decomp.Kind) string {
	return string([...]policy.Kind{policy.Probabilities, policy.Logits, policy.Dirichlet}[k])
}

func varianceOf(v decomp.Variance) string {
	return string([...]policy.Variance{policy.Sample, policy.Population}[v])
}

// concurrently calls a function for each of n things, in any order.
func concurrently(ctx context.Context, n int, each func(i int)) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error {
			if ctx.Err() == nil {
				each(i)
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}
