package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// Options say what a calibration is for.
type Options struct {
	// Base is the policy to be completed. It keeps its name, classes, sets, kind of rows, variance,
	// reliability threshold, pair weights, handling of degenerate passes, and the lines that it states
	// where they are not above what is certified or expected now. Its gate, scope, scores
	// and thresholds are replaced. It expects the recording's passes, and accepts no fewer.
	Base *policy.Policy
	// Objective says what to choose gate, scores and thresholds for.
	Objective Objective
	// Scope says which inputs may be deferred.
	Scope policy.Scope
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
	// Force makes a policy that the recording does not support too: see Report.Unsupported.
	Force bool
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

// stageProgress returns the progress of one stage.
func (p Progress) stageProgress(stage string) eval.Progress {
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
	if err := r.CheckLabels(); err != nil {
		return nil, err
	}
	table, err := decomposed(ctx, r, o.Base, o.Groups, o.Progress)
	if err != nil {
		return nil, err
	}
	chosen, draft, err := choose(ctx, table, r.Labels, o)
	if err != nil {
		return nil, named(r, err)
	}
	report := chosen.report
	report.setSource(&o.Source, o.Groups != nil)
	for i := range report.Reread {
		report.Reread[i].Input = r.Place(report.Reread[i].Input)
	}
	if draft == nil {
		return report, nil
	}
	c := draft.Calibration
	c.Software = o.Source.Software
	if was := o.Base.Calibration; was != nil {
		c.Posterior = was.Posterior
	}
	c.Recording.PassesFile, c.Recording.PassesSHA256 = printableBase(o.Source.Passes.Name), o.Source.Passes.SHA256
	c.Recording.LabelsFile, c.Recording.LabelsSHA256 = printableBase(o.Source.Labels.Name), o.Source.Labels.SHA256
	if err := o.noticeEarlierAttempt(report, draft); err != nil {
		return nil, err
	}
	report.keepLines(o.Base, draft)
	return report, report.put(draft)
}

// Choose chooses gate, scores and thresholds as Run does, for a recording that is decomposed
// already: for those who calibrate on many parts of one table. It leaves Source and Replaces alone.
func Choose(ctx context.Context, t *eval.Table, labels []int, o Options) (*Report, error) {
	chosen, draft, err := choose(ctx, t, labels, o)
	if err != nil {
		return nil, err
	}
	if draft != nil {
		chosen.report.keepLines(o.Base, draft)
		err = chosen.report.take(draft)
	}
	return chosen.report, err
}

// decomposed decomposes a recording for the policy to complete.
func decomposed(ctx context.Context, r eval.Recording, base *policy.Policy, groups []int, p Progress) (*eval.Table, error) {
	if r.Classes != len(base.Classes) {
		return nil, fmt.Errorf("%s has %d classes, but model %s has %d", nameOf(r), r.Classes, base.Name, len(base.Classes))
	}
	if groups != nil && len(groups) != r.Passes.Inputs {
		return nil, fmt.Errorf("%d groups, expected %d: one for each input", len(groups), r.Passes.Inputs)
	}
	return eval.NewTable(ctx, r, engine.Spec(base), p.stageProgress("decomposing"))
}

// check checks the options.
func (o *Options) check() error {
	switch {
	case o.Base == nil:
		return errors.New("no policy to complete")
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
	case o.Scope != policy.AllInputs && o.Scope != policy.PredictedSafe:
		return fmt.Errorf("scope %q: expected %s or %s", o.Scope, policy.AllInputs, policy.PredictedSafe)
	}
	return cmp.Or(o.Objective.check(), checkLimits(o.Objective.Limits, o.Base))
}

// keepsCalls reports whether a rule may be chosen that never defers an input called critical: where the
// scope or the budget of reviews leaves such inputs aside, or where they are said to be acted on.
func (o *Options) keepsCalls(scope policy.Scope) bool {
	return scope == policy.PredictedSafe || o.CriticalCalls == eval.ActedOn || o.Objective.Reviews > 0
}

// take builds the finished policy of a draft.
func (r *Report) take(d *policy.Policy) error {
	p, err := build(*d)
	if err != nil {
		return err
	}
	r.Policy, r.Lines = p, p.LinesInForce()
	return nil
}

// put takes the finished policy of a draft, with its hash and text, and what ckd check warns of its rule
// to stop early.
func (r *Report) put(d *policy.Policy) error {
	if err := r.take(d); err != nil {
		return err
	}
	for _, w := range r.Policy.Warnings() {
		if strings.HasPrefix(w, "calibrated.early_stopping.") { // a rule that is not in force any more, or promises little
			_, text, _ := strings.Cut(w, ": ")
			r.warn("the rule to stop early: %s", text)
		}
	}
	r.PolicyHash, r.PolicyText = r.Policy.Hash, policyHead+string(r.Policy.Marshal())
	return nil
}

const policyHead = `# Written by ckd calibrate. "ckd check" says what it means; docs/policy.md explains every field.
`

// build builds the policy of a draft that was made here.
func build(d policy.Policy) (*policy.Policy, error) {
	p, err := policy.Build(d)
	if err != nil {
		return nil, fmt.Errorf("internal fault, please report it: %w", err)
	}
	return p, nil
}

// certifiedAsItIs reports whether the policy is unchanged since its calibration, apart from its
// early-stopping rule.
func certifiedAsItIs(p *policy.Policy) bool {
	c := p.Calibration
	return c != nil && (c.PolicyHash == p.HashWithoutLines() || c.PolicyHash == p.HashWithoutEarlyStop())
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
