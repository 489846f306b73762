package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy"
)

// Objective is what a calibration is for: exactly one of the three.
type Objective struct {
	// Coverage, in (0,1], is the share of inputs to be retained.
	Coverage float64
	// MaxCriticalMiss, in (0,1), bounds the expected share of critical inputs
	// that are retained and called safe.
	MaxCriticalMiss float64
	// MaxCriticalFNR, in (0,1), bounds the share of the retained critical inputs
	// that are called safe, with Confidence, in (0,1).
	MaxCriticalFNR, Confidence float64
}

// String says the objective in words.
func (o Objective) String() string {
	switch {
	case o.Coverage > 0:
		return fmt.Sprintf("coverage %v", o.Coverage)
	case o.MaxCriticalMiss > 0:
		return fmt.Sprintf("max-critical-miss %v", o.MaxCriticalMiss)
	}
	return fmt.Sprintf("max-critical-fnr %v at confidence %v", o.MaxCriticalFNR, o.Confidence)
}

func (o Objective) check() error {
	inside := func(x float64) bool { return x > 0 && x < 1 }
	switch given := index(o.Coverage != 0) + index(o.MaxCriticalMiss != 0) + index(o.MaxCriticalFNR != 0); {
	case given != 1:
		return errors.New("expected exactly one objective: a coverage, a largest share of critical misses, or a largest critical FNR")
	case o.Coverage != 0 && !(o.Coverage > 0 && o.Coverage <= 1):
		return fmt.Errorf("coverage %v: expected a share above 0 and at most 1", o.Coverage)
	case o.MaxCriticalMiss != 0 && !inside(o.MaxCriticalMiss):
		return fmt.Errorf("max-critical-miss %v: expected a share above 0 and below 1", o.MaxCriticalMiss)
	case o.MaxCriticalFNR != 0 && !inside(o.MaxCriticalFNR):
		return fmt.Errorf("max-critical-fnr %v: expected a share above 0 and below 1", o.MaxCriticalFNR)
	case o.MaxCriticalFNR != 0 && !inside(o.Confidence):
		return fmt.Errorf("confidence %v: expected a share above 0 and below 1", o.Confidence)
	}
	return nil
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Options of a calibration.
type Options struct {
	// Base is the policy to be completed: name, classes, sets, kind of rows,
	// variance, passes, reliability threshold, pair weights, and what becomes of
	// identical passes. Its gate, scope, scores and thresholds are replaced, and
	// its fewest passes raised where the gate needs more.
	Base      *policy.Policy
	Objective Objective
	Scope     policy.Scope
	// Seed of the random folds and parts: the same seed, the same policy.
	Seed uint64
	// Settles is for a policy whose inputs can be settled early: without scores that
	// cannot be followed pass by pass, and with some passes left
	// between the fewest and all.
	Settles bool
	// Progress is told what share of the work is done; may be nil.
	Progress eval.Progress
}

// Result is what a calibration found, as `ckd calibrate --format json` prints
// it.
type Result struct {
	Objective string       `json:"objective"`
	Scope     policy.Scope `json:"scope"`
	Seed      uint64       `json:"seed"`
	Inputs    int          `json:"inputs"`
	Critical  int          `json:"critical"` // inputs whose true class is critical
	Missed    int          `json:"missed"`   // of them, those predicted not critical
	Passes    int          `json:"passes"`

	// Chosen is the rule; nil where nothing certifies.
	Chosen *Chosen `json:"chosen"`
	// Why says how the choice was made, in sentences.
	Why []string `json:"why"`
	// Comparison of the rule with what it was chosen over, in both scopes. Basis
	// says on which inputs it was measured.
	Comparison      []Row  `json:"comparison"`
	ComparisonBasis string `json:"comparison_basis"`
	// Expected is what unseen inputs will show of the chosen rule, with exact 95%
	// intervals; nil where nothing was chosen.
	Expected *Expected `json:"expected"`
	// Certificate is what is guaranteed; nil for nothing.
	Certificate *Certificate `json:"certificate"`
	// Refusal says why nothing certifies; nil where something does.
	Refusal *Refusal `json:"refusal"`
	// Notes say what a reader has to know before believing the rest.
	Notes []string `json:"notes"`

	// Policy is the calibrated policy, its provenance but for the names of files;
	// nil where nothing certifies.
	Policy *policy.Policy `json:"-"`
}

// Chosen is a gate, its scores and their thresholds.
type Chosen struct {
	Gate                 policy.Gate `json:"gate"`
	ReliabilityThreshold float64     `json:"reliability_threshold"`
	Primary              Threshold   `json:"primary"`
	Fallback             *Threshold  `json:"fallback"` // nil with gate never
	// Compared is how many rules it was chosen from.
	Compared int `json:"compared"`
}

// Threshold of a score.
type Threshold struct {
	Score     string  `json:"score"`
	Threshold float64 `json:"threshold"`
}

// Row is how one rule does.
type Row struct {
	Rule  string       `json:"rule"`
	Scope policy.Scope `json:"scope"`
	// Calibrated marks the procedure itself, in either scope.
	Calibrated bool `json:"calibrated"`
	// Nothing says that the rule promises no coverage at all: the figures are 0.
	Nothing  bool    `json:"nothing"`
	Coverage float64 `json:"coverage"`
	Accuracy float64 `json:"accuracy"`
	// CriticalFNR is Missed/CriticalRetained, with its exact 95% interval.
	CriticalFNR         float64    `json:"critical_fnr"`
	CriticalFNRInterval [2]float64 `json:"critical_fnr_interval"`
	CriticalRetained    int        `json:"critical_retained"`
	Missed              int        `json:"missed"`
	// MissShare is Missed over all critical inputs.
	MissShare float64 `json:"miss_share"`
}

// Expected figures on unseen inputs, with 95% intervals of Clopper and Pearson.
// Of a rule with a certificate the critical FNR is nil: the misses decided where
// on its path it stands, and would flatter it. The certificate bounds it.
type Expected struct {
	Coverage            float64     `json:"coverage"`
	CoverageInterval    [2]float64  `json:"coverage_interval"`
	CriticalFNR         *float64    `json:"critical_fnr"`
	CriticalFNRInterval *[2]float64 `json:"critical_fnr_interval"`
}

// Certificate is a guarantee for inputs drawn as those of the recording were.
type Certificate struct {
	Kind       policy.CertificateKind `json:"kind"`
	Target     float64                `json:"target"`
	Confidence float64                `json:"confidence,omitempty"`
	Cases      int                    `json:"cases"`  // critical inputs that it rests on
	Misses     int                    `json:"misses"` // of them, those missed
	PValue     float64                `json:"p_value,omitempty"`
	Statement  string                 `json:"statement"`
	// Void says why nothing is guaranteed after all; empty where it is.
	Void string `json:"void,omitempty"`
}

// Void takes the certificate out of the policy, since it is not of the first
// attempt on its recording: of several attempts the one that succeeded may have
// done so by chance. Earlier says what the other was.
func (r *Result) Void(earlier string) {
	r.Why = slices.DeleteFunc(r.Why, func(why string) bool { return why == oneAttempt })
	r.Certificate.Void = "Void: " + earlier + ", and this is a second attempt on the same data. The policy is written without a " +
		"certificate; certify on fresh data."
	r.Policy.Calibration.Certificate = nil
}

// Refusal says how far off a certificate is.
type Refusal struct {
	Reason string `json:"reason"`
	// Cases and Misses at the point that came closest, and its p-value.
	Cases  int     `json:"cases"`
	Misses int     `json:"misses"`
	PValue float64 `json:"p_value,omitempty"`
	// SmallestCases is the least number of retained critical inputs (of critical
	// inputs, for conformal risk control) that could certify at the same share of
	// misses; 0 where no number up to a million could.
	SmallestCases int `json:"smallest_cases"`
}

// Run calibrates a policy on a labelled table. The error is about the options or
// the recording. That nothing certifies is no error but a Refusal.
func Run(ctx context.Context, t *eval.Table, labels []int, o Options) (*Result, error) {
	if err := o.Objective.check(); err != nil {
		return nil, err
	}
	switch o.Scope {
	case policy.AllInputs, policy.PredictedSafe:
	default:
		return nil, fmt.Errorf("scope %q: expected %s or %s", o.Scope, policy.AllInputs, policy.PredictedSafe)
	}
	switch {
	case len(labels) != t.Inputs:
		return nil, fmt.Errorf("%d labels, expected %d: one for each input", len(labels), t.Inputs)
	case len(t.Spec.Critical) == 0:
		return nil, errors.New("no class is critical: there is nothing that must not be missed, name the critical classes")
	case o.Seed > math.MaxInt64: // what a policy can hold
		return nil, fmt.Errorf("seed %d: expected at most %d", o.Seed, int64(math.MaxInt64))
	case t.Passes < o.Base.FewestPasses:
		return nil, fmt.Errorf("the recording has %d passes, but the policy accepts no fewer than %d", t.Passes, o.Base.FewestPasses)
	}
	for i, label := range labels {
		if label < 0 || label >= t.K {
			return nil, fmt.Errorf("label %d is %d, expected 0 to %d", i, label, t.K-1)
		}
	}
	r := &run{Options: o, ctx: ctx}
	r.sample = newSample(t, labels, o.Base.Degenerate, o.Base.Saturated)
	r.sample.settles = o.Settles
	r.result = &Result{
		Objective: o.Objective.String(), Scope: o.Scope, Seed: o.Seed,
		Inputs: r.n, Critical: r.criticalIn(r.all()), Missed: count(r.missed), Passes: t.Passes,
		Why: []string{}, Comparison: []Row{}, Notes: []string{},
	}
	if r.result.Critical == 0 {
		return nil, errors.New("no input has a critical class: nothing can be learnt about missing one")
	}
	if rules, _ := rulesFor(r.sample, r.all(), o.Scope, o.Base.ReliabilityThreshold); len(rules) == 0 {
		return nil, errors.New("every score is the same for all inputs: no threshold can tell them apart")
	}
	r.result.Notes = append(r.result.Notes, r.notesOnData()...)

	var err error
	switch {
	case o.Objective.Coverage > 0:
		err = r.forCoverage()
	case o.Objective.MaxCriticalMiss > 0:
		err = r.forMiss()
	default:
		err = r.forFNR()
	}
	if err != nil {
		return nil, err
	}
	return r.result, nil
}

// run is one calibration on its way.
type run struct {
	*sample
	Options
	ctx    context.Context
	result *Result

	mutex       sync.Mutex // of what follows
	done, total int
}

// steps announces the searches to come.
func (r *run) steps(searches int) { r.total = searches * foldsOfSearch }

// step tells of a fold that is done. Many goroutines may call it.
func (r *run) step() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.done++
	if r.Progress != nil {
		r.Progress(r.done, r.total)
	}
}

// search of a part in a scope, at a critical FNR f. Nothing in it depends on
// inputs outside of the part.
func (r *run) search(p part, scope policy.Scope, f float64) *search {
	s := &search{sample: r.sample, part: p, scope: scope, soft: r.soften(p), f: f, step: r.step}
	s.rules, s.notes = rulesFor(r.sample, p, scope, r.Base.ReliabilityThreshold)
	if len(s.rules) == 0 { // the few inputs of the part do not differ, so that no rule is better
		s.rules = []rule{{gate: policy.Never, reliability: r.Base.ReliabilityThreshold, primary: decomp.MI, fallback: decomp.MI}}
	}
	return s
}

// fixedShare is where path costs are taken when the objective names no FNR: at
// half the critical FNR of retaining everything.
const fixedShare = 0.5

// pathFNR of a part.
func (r *run) pathFNR(p part) float64 {
	all := eval.Selective{}
	for _, i := range p.inputs() {
		r.add(&all, i)
	}
	return fixedShare * all.CriticalFNR()
}

// choose takes a rule and its thresholds for the policy.
func (r *run) choose(chosen rule, t thresholds, compared int) {
	c := &Chosen{
		Gate: chosen.gate, ReliabilityThreshold: chosen.reliability, Compared: compared,
		Primary: Threshold{chosen.primary.String(), t[byPrimary]},
	}
	p := *r.Base
	p.Hash = "" // that of another; Parse gives it its own
	p.Gate, p.Scope = chosen.gate, r.Scope
	p.Primary = policy.Rule{Score: policy.Score(chosen.primary.String()), Threshold: t[byPrimary], HasThreshold: true}
	p.Fallback = policy.Rule{Score: policy.CBEC}
	if chosen.sides() == 2 {
		c.Fallback = &Threshold{chosen.fallback.String(), t[byFallback]}
		p.Fallback = policy.Rule{Score: policy.Score(chosen.fallback.String()), Threshold: t[byFallback], HasThreshold: true}
	}
	if p.Kind != policy.Dirichlet {
		p.ExpectedPasses = r.table.Passes
		for p.Gate.ReadsSkewness() && p.FewestPasses < r.table.Passes && r.hardlyOpens(p.FewestPasses, chosen.reliability) {
			p.FewestPasses++
		}
	}
	p.Calibration = &policy.Calibration{
		Recording: policy.Recording{Inputs: r.n, CriticalInputs: r.result.Critical, Passes: r.table.Passes},
		Objective: r.result.Objective, Scope: r.Scope, Seed: r.Seed, Reference: r.reference(&p),
	}
	if e := r.result.Expected; e != nil {
		p.Calibration.ExpectedCoverage = &policy.Interval{Value: e.Coverage, Low: e.CoverageInterval[0], High: e.CoverageInterval[1]}
		if e.CriticalFNR != nil {
			p.Calibration.ExpectedCriticalFNR = &policy.Interval{
				Value: *e.CriticalFNR, Low: e.CriticalFNRInterval[0], High: e.CriticalFNRInterval[1],
			}
		}
	}
	if c := r.result.Certificate; c != nil {
		p.Calibration.Certificate = &policy.Certificate{
			Kind: c.Kind, Target: c.Target, Confidence: c.Confidence, Cases: c.Cases, Misses: c.Misses,
			PValue: c.PValue, Statement: c.Statement,
		}
	}
	r.result.Chosen, r.result.Policy = c, &p
}

// hardlyOpens reports whether a gate that reads skewness does with so few passes. From
// half of all on it is enough for settling that it can open: else no pass is left to
// be saved.
func (r *run) hardlyOpens(passes int, reliability float64) bool {
	const spare = 2
	most := decomp.SkewnessCap(passes, r.table.Spec.Variance)
	if r.Settles && 2*passes >= r.table.Passes {
		return most <= reliability
	}
	return most < spare*reliability
}

// expect what was measured on inputs that chose neither rule nor point.
func (r *run) expect(s eval.Selective) {
	r.expectCoverage(s)
	fnr := s.CriticalFNR()
	low, high := binomial.Interval(s.Missed, s.Critical, reported)
	r.result.Expected.CriticalFNR, r.result.Expected.CriticalFNRInterval = &fnr, &[2]float64{low, high}
}

// expectCoverage alone, of inputs whose misses chose the point.
func (r *run) expectCoverage(s eval.Selective) {
	e := &Expected{Coverage: s.Coverage()}
	e.CoverageInterval[0], e.CoverageInterval[1] = binomial.Interval(s.Retained, s.Inputs, reported)
	r.result.Expected = e
}

// reported is the confidence of every interval.
const reported = 0.95

// row of the comparison. Critical is the critical inputs among those counted.
func row(name string, scope policy.Scope, s eval.Selective, critical int) Row {
	r := Row{
		Rule: name, Scope: scope, Coverage: s.Coverage(), Accuracy: s.Accuracy(), CriticalFNR: s.CriticalFNR(),
		CriticalRetained: s.Critical, Missed: s.Missed,
	}
	if critical > 0 {
		r.MissShare = float64(s.Missed) / float64(critical)
	}
	r.CriticalFNRInterval[0], r.CriticalFNRInterval[1] = binomial.Interval(s.Missed, s.Critical, reported)
	return r
}

// bothScopes, the chosen one first.
func (r *run) bothScopes() []policy.Scope {
	if r.Scope == policy.PredictedSafe {
		return []policy.Scope{policy.PredictedSafe, policy.AllInputs}
	}
	return []policy.Scope{policy.AllInputs, policy.PredictedSafe}
}

// split off about a third of the inputs to choose on; the rest certifies. It is
// a plain draw: were the critical inputs shared out, the parts would not be
// independent.
func (r *run) split() (chooses, certifies part) {
	const share = 1. / 3
	order := newRand(r.Seed, streamSplit).Perm(r.n)
	first := order[:int(math.Round(share*float64(r.n)))]
	slices.Sort(first)
	chooses = r.partOf(first)
	return chooses, r.all().without(chooses)
}

// notesOnData say what is wanting in the recording itself.
func (r *run) notesOnData() []string {
	const few = 30
	var notes []string
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	res, t := r.result, r.table
	if res.Critical < few {
		say("only %d of %d inputs are critical: every figure about them is uncertain, see the intervals", res.Critical, res.Inputs)
	}
	switch {
	case res.Missed == 0:
		say("no critical input is missed even without deferral: there is nothing to choose rules by, and the choice rests on chance")
	case res.Missed < few/3:
		say("of the critical inputs only %d are missed without deferral: the choice of rule rests on these", res.Missed)
	}
	support := make([]int, t.K)
	for i := range r.n {
		support[r.label[i]]++
	}
	predicted := make([]int, t.K)
	for _, k := range t.Predicted {
		predicted[k]++
	}
	for k, n := range support {
		if n == 0 {
			say("class %s has no inputs: nothing is known about missing it", r.Base.Classes[k])
		}
		if predicted[k] == 0 && slices.Contains(t.Spec.Critical, k) {
			say("critical class %s is never predicted", r.Base.Classes[k])
		}
	}
	identical, saturated := 0, 0
	for i := range r.n {
		switch {
		case t.Saturated[i]:
			saturated++
		case t.Degenerate[i]:
			identical++
		}
	}
	for _, h := range []struct {
		n    int
		what string
		is   policy.Handling
	}{{identical, "identical", r.Base.Degenerate}, {saturated, "identical and one-hot", r.Base.Saturated}} {
		if h.n > 0 {
			say("the passes of %d of %d inputs are %s: %s", h.n, r.n, h.what, map[policy.Handling]string{
				policy.HandleDefer:   "the policy defers them whatever their score",
				policy.HandleRetain:  "the policy retains them whatever their score",
				policy.HandleByScore: "they are decided by score, like any other",
			}[h.is])
		}
	}
	if t.Spec.Kind != decomp.Dirichlet && t.Passes < 5 {
		say("%d passes are few: scores are coarse, and thresholds for them do not carry over to more", t.Passes)
	}
	return notes
}

func count(marks []bool) int {
	n := 0
	for _, m := range marks {
		n += index(m)
	}
	return n
}
