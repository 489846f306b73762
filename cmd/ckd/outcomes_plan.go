package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/outcome/plan"
	"github.com/ckd-project/ckd/policy"
)

// outcomesPlanCmd says what audits cost and show, before there are any.
type outcomesPlanCmd struct {
	labelledFlags

	InputsPerDay float64 `required:"" placeholder:"N" help:"Traffic: inputs a day."`
	Seed         uint64  `default:"42" placeholder:"N" help:"Seed of the simulations. (${default})"`

	Full   bool   `help:"Print everything, not one screen."`
	Format string `enum:"table,json" default:"table" help:"Form of the plan: ${enum}. (${default})"`
}

// Help is the long text of ckd outcomes plan --help.
func (*outcomesPlanCmd) Help() string {
	return `For audit rates from 0.5% to 10%: after how many days they find out that misses rose to two or three times the line, after how many
good outcomes say "holding", the reviews that they cause, and what is known after a month. It names the rate to choose and, where
traffic is too low to learn by audits, what to do instead. It simulates this with the inputs of a labelled recording, which should not be the one that the policy was calibrated on.

    ckd outcomes plan --policy policy.yaml --passes P.npy --labels Y.npy --inputs-per-day 2000`
}

// Validate refuses flags that make no sense; kong calls it.
func (c *outcomesPlanCmd) Validate() error {
	switch {
	case c.Policy == "":
		return errors.New("expected --policy: audits are planned for a policy")
	case !(c.InputsPerDay > 0) || math.IsInf(c.InputsPerDay, 1):
		return fmt.Errorf("--inputs-per-day %v: expected a number above 0", c.InputsPerDay)
	}
	return c.check()
}

// Run makes the plan and prints it.
func (c *outcomesPlanCmd) Run(ctx *cmdContext) error {
	model, err := c.model()
	if err != nil {
		return err
	}
	rec, err := c.readRecording(ctx, model)
	if err != nil {
		return err
	}
	rec.sort(nil)
	bars := stageBars{ctx: ctx}
	defer bars.stop()
	found, err := planFor(ctx.Ctx, model, rec.forEval(), plan.Options{InputsPerDay: c.InputsPerDay, Seed: c.Seed, Progress: bars.mover("simulating audit rates")})
	if err != nil {
		return interrupted(ctx, err)
	}
	if c.Format == "json" {
		return writeJSON(ctx.Stdout, found)
	}
	return writeDocument(ctx.Stdout, report.Plan(found, model, rec.passesFile), c.Format, c.Full)
}

// planFor plans the audits of a policy by what it decides on a labelled recording.
func planFor(ctx context.Context, p *policy.Policy, r eval.Recording, o plan.Options) (*plan.Plan, error) {
	model, err := engine.New(p)
	if err != nil {
		return nil, err
	}
	batch, outcome := model.NewBatch(), model.NewOutcome()
	if err := batch.Reset(r.Passes); err != nil {
		return nil, err
	}
	inputs := make([]plan.Input, r.Passes.Inputs)
	for i := range inputs {
		if err := cmp.Or(ctx.Err(), batch.Outcome(i, outcome)); err != nil {
			return nil, fmt.Errorf("input %d: %w", r.Place(i), err)
		}
		inputs[i] = plan.Input{
			Deferred:       outcome.Decision.Action == policy.Defer,
			CalledCritical: slices.Contains(p.Critical, outcome.Predicted),
			Critical:       slices.Contains(p.Critical, r.Labels[i]), Risk: outcome.Risk,
		}
	}
	return plan.New(ctx, p, inputs, o)
}
