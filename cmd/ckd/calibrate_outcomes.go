package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// calibrateOutcomesCmd calibrates a policy anew on the outcomes of its decisions.
type calibrateOutcomesCmd struct {
	Ledger       string  `required:"" placeholder:"DIR" help:"The folder of the ledger, which a daemon may be serving."`
	Policy       string  `required:"" placeholder:"FILE" help:"The policy file, or folder of them, that decided."`
	Name         string  `placeholder:"MODEL" help:"Which model's policy, where there are several."`
	Since        since   `required:"" placeholder:"DATE" help:"Outcomes of decisions from this day or time on, named before anyone looked at them."`
	ModelVersion *string `placeholder:"TEXT" help:"The model version that the decisions were made for. Default: the policy's."`

	boundFlags
	Scope policy.Scope `enum:"all,predicted-safe" default:"all" help:"Which inputs may be deferred: ${enum}. (${default})"`

	forceFlag
	resultFlags
}

// Help returns the long text of ckd calibrate outcomes --help.
func (*calibrateOutcomesCmd) Help() string {
	return `One half of the outcomes, by group, chooses a score and its threshold, the other certifies it. No passes are needed.
At least one bound on misses is.

    ckd calibrate outcomes --ledger DIR --policy current.yaml --since 2026-10-31 --max-critical-fnr 0.1 --out policy.yaml

Exit codes: 0 the policy is written; 1 a file or the policy has a fault; 2 wrong usage; 3 no policy is written, because
nothing certifies or no gain is shown, and the report says how far off it is. docs/calibrate.md tells the method.`
}

// since is a day or a time.
type since struct{ time.Time }

// UnmarshalText reads a day as 2026-10-31, or a time as RFC 3339 has it.
func (s *since) UnmarshalText(text []byte) error {
	for _, form := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(form, string(text)); err == nil {
			s.Time = t
			return nil
		}
	}
	return fmt.Errorf("%q: expected a day as 2026-10-31, or a time as 2026-10-31T08:00:00Z", text)
}

// Validate refuses flags that make no sense. kong calls it.
func (c *calibrateOutcomesCmd) Validate() error {
	limits, err := c.limits()
	if err == nil && len(limits) == 0 {
		err = errors.New("expected --max-critical-fnr or --max-critical-miss")
	}
	return cmp.Or(err, checkNumbers(numberFlag{"--confidence", c.Confidence, 0, 1, true}))
}

// Run calibrates, and writes the policy and the report.
func (c *calibrateOutcomesCmd) Run(ctx *cmdContext) error {
	model, err := loadPolicy(c.Policy, c.Name, "--name")
	if err != nil {
		return err
	}
	return c.write(ctx, []string{c.Policy}, func() (*calibrate.Report, error) { return c.calibrate(ctx, model) })
}

// calibrate reads the ledger and calibrates.
func (c *calibrateOutcomesCmd) calibrate(ctx *cmdContext, model *policy.Policy) (*calibrate.Report, error) {
	l, err := ledger.Open(c.Ledger, ledger.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	version := model.Version
	if c.ModelVersion != nil {
		version = *c.ModelVersion
	}
	var outcomes []calibrate.Outcome
	found, err := l.Matured(model.HashBytes(), version, c.Since.Time, func(d *truth.Decision, f *truth.Finding) {
		outcomes = append(outcomes, outcomeOf(&d.Receipt, f))
	})
	if err != nil {
		return nil, fmt.Errorf("%s: model %s, version %q: %w", c.Ledger, model.Name, version, err)
	}
	if len(outcomes) == 0 {
		return nil, fmt.Errorf("%s: no reviewed decision of model %s, version %q, since %s has an outcome and is of a day whose outcomes are all due",
			c.Ledger, model.Name, version, c.Since.Format(time.RFC3339))
	}
	bars := stageBars{ctx: ctx}
	defer bars.stop()
	o := calibrate.Options{
		Progress: bars.update,
		Base:     model, Scope: c.Scope, Seed: calibrationSeed, Objective: c.bounds(), Force: c.Force, Source: calibrate.Source{Software: software()},
	}
	if o.Replaces, err = c.atOut(model.Name); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("outcomes of %s %s since %s", model.Name, version, c.Since.UTC().Format(time.RFC3339))
	report, err := calibrate.FromOutcomes(calibrate.Reviewed{Name: name, LeastPropensity: found.LeastCalledSafe, Outcomes: outcomes, Overdue: overdueOf(found)}, o)
	if err != nil {
		return nil, err
	}
	report.Notes = append(report.Notes, fmt.Sprintf("cohorts with outcomes: %d, from %s to %s; %d of deferred inputs and %d of retained inputs called safe are overdue",
		found.Cohorts, found.From.Format(time.RFC3339), found.Until.Format(time.RFC3339), found.Overdue[receipt.Deferred], found.Overdue[receipt.CalledSafe]))
	return report, nil
}

// outcomeOf returns a decision and its truth as calibration takes them.
func outcomeOf(c *receipt.Receipt, f *truth.Finding) calibrate.Outcome {
	decision := policy.Reason(c.Reason)
	return calibrate.Outcome{
		Scores: c.Scores, Risk: c.Risk, Predicted: int(c.Predicted), Truth: f.Class(), Disputed: f.Disputed(),
		Deferred:   c.Stratum == receipt.Deferred,
		Fixed:      decision == policy.IsDegenerate || decision == policy.IsSaturated || decision == policy.Unfamiliar,
		Propensity: float64(c.Propensity), Group: c.Group,
	}
}

// overdueOf returns the reviews that never came. Overdue inputs called critical cannot have been missed, and
// are left out; of the deferred it is not known how they were called.
func overdueOf(m *ledger.Matured) (all []calibrate.Overdue) {
	for _, s := range []receipt.Stratum{receipt.Deferred, receipt.CalledSafe} {
		if n := m.Overdue[s]; n > 0 {
			weight := m.OverdueWeight[s] / float64(n)
			all = append(all, calibrate.Overdue{Number: int(n), Weight: math.Max(1, math.Min(weight, 1/m.LeastCalledSafe))})
		}
	}
	return all
}
