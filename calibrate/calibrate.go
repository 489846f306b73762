package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// Options say what a calibration is for. Two attempts with the same JSON of their options, on the same
// base, are one: what cannot change the outcome has no JSON.
type Options struct {
	// Base is the policy to be completed. It keeps its name, classes, sets, kind of rows, variance,
	// reliability threshold, pair weights and handling of degenerate passes. Its gate, scope, scores
	// and thresholds are replaced. It expects the recording's passes, and accepts no fewer unless an
	// early-stopping rule is learned.
	Base *policy.Policy `json:"-"`
	// Objective says what to choose gate, scores and thresholds for. The zero value keeps those of
	// Base, for EarlyStop alone.
	Objective Objective
	// Scope says which inputs may be deferred. Without an objective it is Base's.
	Scope policy.Scope
	// ReliabilityThreshold takes the place of Base's where a gate is chosen; 0 keeps it.
	ReliabilityThreshold float64
	// Guard is the share of inputs that a policy on p_critical or risk defers as unfamiliar, those of
	// the largest MI: such a rule does not see that an input is unlike anything learned. 0 is for no
	// guard, UsualGuard for DefaultGuard of the share that the objective lets be deferred.
	Guard float64
	// Prevalence is the share of critical inputs where the model serves, in (0,1): risk and its
	// thresholds are shifted from the recording's share by the prior odds. 0 keeps the recording's.
	Prevalence float64
	// Unfamiliar has passes of inputs unlike anything the model learned. The comparison says how many
	// of them each rule defers. Nil for none; labels are not needed.
	Unfamiliar *eval.Recording `json:"-"`
	// CriticalCalls says what becomes of retained inputs that are called critical. The zero value is
	// eval.ActedOn.
	CriticalCalls eval.CriticalCalls `json:"-"`
	// AlarmAbove states what outcomes are tested against, in place of what is certified or expected:
	// critical FNRs of the retained inputs, of all critical classes (no class) or of single ones.
	AlarmAbove []ClassLimit `json:"-"`
	// Seed of the random folds and parts: the same seed gives the same policy.
	Seed uint64
	// Groups has a number for each input, the same for inputs that are not independent, such as
	// several images of one patient. Such inputs stay together in folds and parts, and certificates
	// count them as what they are. Nil takes eval.Table.Copies, and all inputs as independent where
	// there are none.
	Groups []int
	// EarlyStop asks for an early-stopping rule too; nil for none.
	EarlyStop *EarlyStopOptions
	// Source says where the recording comes from. The policy tells it, and by it a later calibration
	// recognises a second attempt on the same data.
	Source Source `json:"-"`
	// Replaces is the policy that the new one takes the place of, nil for none. If it was certified
	// on the same recording for something else, then a new certificate would be void.
	Replaces *policy.Policy `json:"-"`
	// Attempts is a file that remembers which certificates were sought on which recordings, for
	// earlier attempts to be noticed wherever their policies are; empty for none. Run appends to it.
	Attempts string `json:"-"`
	// Progress, if not nil, receives the progress of the work.
	Progress Progress `json:"-"`
}

// UsualGuard is the Options.Guard that takes DefaultGuard.
const UsualGuard = -1.

// DefaultGuard returns the share of inputs above the guard that ckd calibrate takes: 0.02, or a tenth
// of the inputs that a coverage lets be deferred where that is less. A coverage of 0 stands for an
// objective without one.
func DefaultGuard(coverage float64) float64 {
	const most, ofDeferred = 0.02, 0.1
	if coverage == 0 {
		return most
	}
	return min(most, ofDeferred*(1-coverage))
}

// Source says where a recording comes from. Everything in it may be empty.
type Source struct {
	// Software that calibrates, with its version.
	Software string
	// Posterior names how the passes were sampled, such as mc-dropout.
	Posterior string
	// Passes and Labels are the files of the recording, Groups that of Options.Groups.
	Passes, Labels, Groups eval.File
}

// Progress receives how much of the work of a stage is done. Several goroutines may call it.
type Progress func(stage string, done, total int)

// of returns the progress of one stage.
func (p Progress) of(stage string) eval.Progress {
	return func(done, total int) {
		if p != nil {
			p(stage, done, total)
		}
	}
}

// Run calibrates a policy on a recording with labels. Without an objective the labels may be nil.
//
// With EarlyStop one half of the inputs, at random, chooses the thresholds and teaches the rule;
// the other half certifies the rule. The error is about the options or the recording. If nothing
// can be certified, there is no error but a Refusal in the report, and no policy.
func Run(ctx context.Context, r eval.Recording, o Options) (*Report, error) {
	seeks := o.Objective.given()
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := o.checkAlarmAbove(); err != nil {
		return nil, err
	}
	if seeks {
		if err := cmp.Or(o.Objective.check(), o.Objective.checkClasses(o.Base)); err != nil {
			return nil, err
		}
	}
	if r.Classes != len(o.Base.Classes) {
		return nil, fmt.Errorf("%s has %d classes, but model %s has %d", nameOf(r), r.Classes, o.Base.Name, len(o.Base.Classes))
	}
	if seeks || r.Labels != nil {
		if err := r.CheckLabels(); err != nil {
			return nil, err
		}
	}
	if err := o.checkEarlyStop(r, seeks); err != nil {
		return nil, err
	}
	c := &calibration{Options: o, seeks: seeks}
	if o.Groups != nil && len(o.Groups) != r.Passes.Inputs {
		return nil, fmt.Errorf("%d groups, expected %d: one for each input", len(o.Groups), r.Passes.Inputs)
	}
	var err error
	if c.attempts, err = o.remember(); err != nil {
		return nil, err
	}
	table, err := eval.NewTable(ctx, r, engine.Spec(c.Base), c.Progress.of("decomposing"))
	if err != nil {
		return nil, err
	}
	if c.Groups == nil {
		c.Groups = table.Copies
	}
	c.learns, c.certifies = halves(r.Passes.Inputs, c.Groups, o.Seed)
	if seeks {
		err = c.choose(ctx, r, table)
	} else {
		err = c.keep(r, table)
	}
	if err != nil {
		return nil, err
	}
	c.report.Software, c.report.PassesFile, c.report.LabelsFile = o.Source.Software, o.Source.Passes, o.Source.Labels
	if o.Groups != nil {
		c.report.GroupsFile = &o.Source.Groups
	}
	if c.draft != nil && o.EarlyStop != nil {
		if err := c.learn(ctx, r); err != nil {
			return nil, err
		}
	}
	return c.report, c.finish()
}

// Choose chooses gate, scores and thresholds as Run does, for a recording that is decomposed
// already: for those who calibrate on many parts of one table. It leaves Source, Replaces
// and Unfamiliar alone, and finds no early-stopping rule; EarlyStop asks for a policy that can have one.
func Choose(ctx context.Context, t *eval.Table, labels []int, o Options) (*Report, error) {
	report, draft, err := choose(ctx, t, labels, nil, o)
	if err == nil && draft != nil {
		report.Policy, err = build(*draft)
	}
	return report, err
}

// calibration makes a policy.
type calibration struct {
	Options
	seeks bool // there is an objective
	// learns and certifies are the two halves of the inputs, for an early-stopping rule.
	learns, certifies []int

	report   *Report
	draft    *policy.Draft // nil where nothing certifies
	attempts attempts
}

// check checks the options by themselves.
func (o *Options) check() error {
	switch {
	case o.Base == nil:
		return errors.New("no policy to complete")
	case !o.Objective.given() && o.EarlyStop == nil:
		return o.Objective.check()
	case o.Seed > math.MaxInt64: // a policy cannot hold a larger seed
		return fmt.Errorf("seed %d: expected at most %d", o.Seed, int64(math.MaxInt64))
	case o.CriticalCalls != "" && o.CriticalCalls != eval.ActedOn && o.CriticalCalls != eval.Reviewed:
		return fmt.Errorf("critical calls %q: expected %s or %s", o.CriticalCalls, eval.ActedOn, eval.Reviewed)
	case !(o.Prevalence >= 0 && o.Prevalence < 1):
		return fmt.Errorf("prevalence %v: expected a share above 0 and below 1", o.Prevalence)
	case o.Objective.Reviews != 0 && o.CriticalCalls != eval.Reviewed:
		return errors.New("a budget of reviews in all needs critical calls that are reviewed, expected a coverage instead")
	case o.Guard != UsualGuard && !(o.Guard >= 0 && o.Guard < 1):
		return fmt.Errorf("guard %v: expected a share of at least 0 and below 1", o.Guard)
	case o.EarlyStop != nil:
		return o.EarlyStop.check()
	}
	return nil
}

// reliability returns the reliability threshold where a gate is chosen.
func (o *Options) reliability() float64 {
	return cmp.Or(o.ReliabilityThreshold, o.Base.ReliabilityThreshold)
}

// choose chooses gate, scores and thresholds: on one half of the inputs if an early-stopping rule
// is to be certified on the other, else on all.
func (c *calibration) choose(ctx context.Context, r eval.Recording, table *eval.Table) (err error) {
	labels := r.Labels
	var unfamiliar *eval.Table
	if c.Unfamiliar != nil {
		if unfamiliar, err = eval.NewTable(ctx, *c.Unfamiliar, engine.Spec(c.Base), nil); err != nil {
			return err
		}
	}
	o := c.Options
	if c.EarlyStop != nil {
		table, labels = table.Select(c.learns), of(r.Labels, c.learns)
		if o.Groups != nil {
			o.Groups = of(o.Groups, c.learns)
		}
	}
	c.report, c.draft, err = choose(ctx, table, labels, unfamiliar, o)
	if err != nil {
		return named(r, err)
	}
	for j := range c.report.Reread {
		at := &c.report.Reread[j].Input
		if c.EarlyStop != nil {
			*at = c.learns[*at]
		}
		*at = r.Place(*at)
	}
	if c.draft == nil {
		return nil
	}
	to := c.draft.Calibration
	to.Software, to.Posterior = c.Source.Software, c.Source.Posterior
	to.Recording.PassesFile, to.Recording.PassesSHA256 = printableBase(c.Source.Passes.Name), c.Source.Passes.SHA256
	to.Recording.LabelsFile, to.Recording.LabelsSHA256 = printableBase(c.Source.Labels.Name), c.Source.Labels.SHA256
	return nil
}

// of returns the values of some inputs.
func of(values, inputs []int) []int {
	some := make([]int, len(inputs))
	for at, i := range inputs {
		some[at] = values[i]
	}
	return some
}

// keep keeps the policy as it is, but for its early-stopping rule.
func (c *calibration) keep(r eval.Recording, table *eval.Table) error {
	p := c.Base
	d := p.Draft()
	d.EarlyStopping = nil
	d.FewestPasses = fewestToLearn(p, p.Gate, p.ReliabilityThreshold, r.Passes.Passes)
	c.draft = &d
	c.report = &Report{
		Scope: p.Scope, Seed: c.Seed, Inputs: r.Passes.Inputs, Passes: r.Passes.Passes,
		Groups: newGrouping(c.Groups).groups, Chosen: kept(p), Why: []string{}, Comparison: []Row{}, Notes: []string{}, Signs: []passcheck.Sign{},
	}
	signs := table.Signs
	if r.Labels != nil {
		signs = table.Suspect(r.Labels)
	}
	if c.report.suspect(signs) {
		c.draft = nil
		return nil
	}
	if len(c.AlarmAbove) > 0 {
		c.report.Lines = c.setLines(c.draft, nil)
	}
	for i, label := range r.Labels {
		if slices.Contains(p.Critical, label) {
			c.report.Critical++
			if !slices.Contains(p.Critical, table.Predicted[i]) {
				c.report.Missed++
			}
		}
	}
	return nil
}

// kept returns what a policy decides by.
func kept(p *policy.Policy) *Chosen {
	primary, fallback := Threshold{Score: string(p.Primary.Score), Threshold: p.Primary.Threshold},
		&Threshold{Score: string(p.Fallback.Score), Threshold: p.Fallback.Threshold}
	switch {
	case !p.Gate.ReachesFallback():
		fallback = nil
	case !p.Gate.ReachesPrimary():
		primary, fallback = *fallback, nil
	}
	return &Chosen{Gate: p.Gate, ReliabilityThreshold: p.ReliabilityThreshold, Primary: primary, Fallback: fallback, Compared: 1}
}

// finish builds the policy, and voids its certificate if this is not the first attempt.
func (c *calibration) finish() error {
	d, r := c.draft, c.report
	if d == nil {
		return c.attempts.found("")
	}
	p, err := build(*d)
	if err != nil {
		return err
	}
	if c.seeks || certifiedAsItIs(c.Base) {
		d.Calibration.PolicyHash = p.Hash
	}
	r.PolicyHash = p.Hash
	if err := c.attempts.found(p.Hash); err != nil {
		return err
	}
	if c.seeks {
		c.noticeEarlierAttempt()
	}
	if r.EarlyStop != nil {
		c.noticeEarlierRule(c.Replaces, c.Base)
	}
	c.dropCertifiedLines()
	if p, err = build(*d); err != nil {
		return err
	}
	if r.EarlyStop != nil && p.EarlyStop() == nil {
		return errors.New("internal fault, please report it: the rule is not in force in the policy that it was learned for")
	}
	for _, w := range p.Warnings() {
		if strings.HasPrefix(w, "calibrated.early_stopping.") { // a rule that is not in force any more, or promises little
			r.warn("%s", w)
			continue
		}
		r.note("ckd check will warn: %s", w)
	}
	r.Policy, r.PolicyText = p, policyHead+string(p.Marshal())
	return nil
}

const policyHead = `# Written by ckd calibrate. "ckd check" says what it means; docs/policy-fields.md explains every field.
`

// build builds the policy of a draft that was made here.
func build(d policy.Draft) (*policy.Policy, error) {
	p, err := policy.Build(d)
	if err != nil {
		return nil, fmt.Errorf("internal fault, please report it: %w", err)
	}
	return p, nil
}

// certifiedAsItIs reports whether the policy is unchanged since its calibration, apart from its
// early-stopping rule.
func certifiedAsItIs(p *policy.Policy) bool {
	return p.Calibration != nil && (p.Calibration.PolicyHash == p.Hash || p.Calibration.PolicyHash == p.HashWithoutEarlyStop())
}

// named puts the name of a recording, if it has one, before an error.
func named(r eval.Recording, err error) error {
	if r.Name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", r.Name, err)
}

func nameOf(r eval.Recording) string { return cmp.Or(r.Name, "the recording") }

// printableBase returns the last part of a path, as far as a policy can hold it.
func printableBase(path string) string {
	if path == "" {
		return ""
	}
	const most = 200
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(filepath.Base(path), "?"))
	for len(name) > most {
		name = name[1:]
	}
	return strings.ToValidUTF8(name, "")
}
