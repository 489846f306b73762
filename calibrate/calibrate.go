package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// Options say what a calibration is for.
type Options struct {
	// Base is the policy to be completed. It keeps its name, classes, sets, kind of rows, variance,
	// reliability threshold, pair weights and handling of degenerate passes. Its gate, scope, scores
	// and thresholds are replaced. It expects the recording's passes, and accepts no fewer.
	Base *policy.Policy
	// Objective says what to choose gate, scores and thresholds for.
	Objective Objective
	// Scope says which inputs may be deferred.
	Scope policy.Scope
	// ReliabilityThreshold takes the place of Base's where a gate is chosen; 0 keeps it.
	ReliabilityThreshold float64
	// Guard is the share of inputs that a policy on p_critical or risk defers as unfamiliar, those of
	// the largest MI: such a rule does not see that an input is unlike anything learned. What the guard
	// defers is part of every figure. 0 is for no guard.
	Guard float64
	// Prevalence is the share of critical inputs where the model serves, in (0,1): risk and its
	// thresholds are shifted from the recording's share by the prior odds. 0 keeps the recording's.
	Prevalence float64
	// CriticalCalls says what becomes of retained inputs that are called critical. In scope all only
	// eval.ActedOn lets a rule be chosen that never defers them; the zero value says nothing.
	CriticalCalls eval.CriticalCalls
	// AlarmAbove states what outcomes are tested against, in place of what is certified or expected:
	// critical FNRs of the retained inputs, of all critical classes (no class) or of single ones.
	AlarmAbove []ClassLimit
	// Seed of the random folds and parts: the same seed gives the same policy.
	Seed uint64
	// Groups has a number for each input, the same for inputs that are not independent, such as
	// several images of one patient. Such inputs stay together in folds and parts, and certificates
	// count them as what they are. Nil takes eval.Table.Copies, and all inputs as independent where
	// there are none.
	Groups []int
	// Source says where the recording comes from. The policy tells it, and by it a later calibration
	// recognises a second attempt on the same data.
	Source Source
	// Replaces is the policy that the new one takes the place of, nil for none. If it was certified
	// on the same recording for something else, then a new certificate would be void.
	Replaces *policy.Policy
	// Progress, if not nil, receives the progress of the work.
	Progress Progress
}

// Source says where a recording comes from. Everything in it may be empty.
type Source struct {
	// Software that calibrates, with its version.
	Software string
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

// Run calibrates a policy on a recording with labels. The error is about the options or the
// recording. If nothing can be certified, there is no error but a Refusal in the report, and no
// policy.
func Run(ctx context.Context, r eval.Recording, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := cmp.Or(o.checkAlarmAbove(), o.Objective.check(), o.Objective.checkClasses(o.Base)); err != nil {
		return nil, err
	}
	if r.Classes != len(o.Base.Classes) {
		return nil, fmt.Errorf("%s has %d classes, but model %s has %d", nameOf(r), r.Classes, o.Base.Name, len(o.Base.Classes))
	}
	if err := r.CheckLabels(); err != nil {
		return nil, err
	}
	if o.Groups != nil && len(o.Groups) != r.Passes.Inputs {
		return nil, fmt.Errorf("%d groups, expected %d: one for each input", len(o.Groups), r.Passes.Inputs)
	}
	table, err := eval.NewTable(ctx, r, engine.Spec(o.Base), o.Progress.of("decomposing"))
	if err != nil {
		return nil, err
	}
	c := &calibration{Options: o}
	if o.Groups == nil {
		c.Groups = table.Copies
	}
	if err := c.choose(ctx, r, table); err != nil {
		return nil, err
	}
	c.report.Software, c.report.PassesFile, c.report.LabelsFile = o.Source.Software, o.Source.Passes, o.Source.Labels
	if o.Groups != nil {
		c.report.GroupsFile = &o.Source.Groups
	}
	return c.report, c.finish()
}

// Choose chooses gate, scores and thresholds as Run does, for a recording that is decomposed
// already: for those who calibrate on many parts of one table. It leaves Source and Replaces alone.
func Choose(ctx context.Context, t *eval.Table, labels []int, o Options) (*Report, error) {
	report, draft, err := choose(ctx, t, labels, o)
	if err == nil && draft != nil {
		report.Policy, err = build(*draft)
	}
	return report, err
}

// calibration makes a policy.
type calibration struct {
	Options
	report *Report
	draft  *policy.Draft // nil where nothing certifies
}

// check checks the options by themselves.
func (o *Options) check() error {
	switch {
	case o.Base == nil:
		return errors.New("no policy to complete")
	case o.Seed > math.MaxInt64: // a policy cannot hold a larger seed
		return fmt.Errorf("seed %d: expected at most %d", o.Seed, int64(math.MaxInt64))
	case o.CriticalCalls != "" && o.CriticalCalls != eval.ActedOn && o.CriticalCalls != eval.Reviewed:
		return fmt.Errorf("critical calls %q: expected %s or %s", o.CriticalCalls, eval.ActedOn, eval.Reviewed)
	case !(o.Prevalence >= 0 && o.Prevalence < 1):
		return fmt.Errorf("prevalence %v: expected a share above 0 and below 1", o.Prevalence)
	case o.Objective.Reviews != 0 && o.CriticalCalls != eval.Reviewed:
		return errors.New("a budget of reviews in all needs critical calls that are reviewed, expected a coverage instead")
	case o.Objective.CostRatio != 0 && !o.keepsCalls(o.Scope):
		return errors.New("a cost ratio sets a threshold on risk, which never defers an input called critical: expected --critical-calls acted-on, " +
			"if critical calls are acted on at the site, or --scope predicted-safe")
	case !(o.Guard >= 0 && o.Guard < 1):
		return fmt.Errorf("guard %v: expected a share of at least 0 and below 1", o.Guard)
	}
	return nil
}

// keepsCalls reports whether a rule may be chosen that never defers an input called critical: where the
// scope or the budget of reviews leaves such inputs aside, or where they are said to be acted on.
func (o *Options) keepsCalls(scope policy.Scope) bool {
	return scope == policy.PredictedSafe || o.CriticalCalls == eval.ActedOn || o.Objective.Reviews > 0
}

// reliability returns the reliability threshold where a gate is chosen.
func (o *Options) reliability() float64 {
	return cmp.Or(o.ReliabilityThreshold, o.Base.ReliabilityThreshold)
}

// choose chooses gate, scores and thresholds.
func (c *calibration) choose(ctx context.Context, r eval.Recording, table *eval.Table) (err error) {
	c.report, c.draft, err = choose(ctx, table, r.Labels, c.Options)
	if err != nil {
		return named(r, err)
	}
	for j := range c.report.Reread {
		at := &c.report.Reread[j].Input
		*at = r.Place(*at)
	}
	if c.draft == nil {
		return nil
	}
	calibration := c.draft.Calibration
	calibration.Software = c.Source.Software
	if was := c.Base.Calibration; was != nil {
		calibration.Posterior = was.Posterior
	}
	calibration.Recording.PassesFile, calibration.Recording.PassesSHA256 = printableBase(c.Source.Passes.Name), c.Source.Passes.SHA256
	calibration.Recording.LabelsFile, calibration.Recording.LabelsSHA256 = printableBase(c.Source.Labels.Name), c.Source.Labels.SHA256
	return nil
}

// finish builds the policy, and voids its certificate if this is not the first attempt.
func (c *calibration) finish() error {
	d, r := c.draft, c.report
	if d == nil {
		return nil
	}
	p, err := build(*d)
	if err != nil {
		return err
	}
	d.Calibration.PolicyHash, r.PolicyHash = p.Hash, p.Hash
	c.noticeEarlierAttempt()
	return r.put(d)
}

// put builds the finished policy of a draft.
func (r *Report) put(d *policy.Draft) error {
	r.dropCertifiedLines(d)
	p, err := build(*d)
	if err != nil {
		return err
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
