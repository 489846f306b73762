package main

import (
	"errors"

	"github.com/ckd-project/ckd/cmd/ckd/internal/outcomefile"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report"
	"github.com/ckd-project/ckd/cmd/ckd/internal/whatif"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/policy/store"
)

// whatifCmd says what another policy would have decided.
type whatifCmd struct {
	policyFlags
	Log      []string `required:"" placeholder:"FILE" help:"Decision logs: plain or .gz."`
	Old      []string `placeholder:"FILE" help:"Policies that the logs lack. Files, or folders of them."`
	Outcomes string   `placeholder:"FILE" help:"What was true. JSON lines of ckd outcomes export, or a .csv with the columns id and truth."`

	Full   bool   `help:"Print everything, not one screen."`
	Format string `enum:"table,html,json" default:"table" help:"Form of the report: ${enum}. (${default})"`
}

// Help is the long text of ckd whatif --help.
func (*whatifCmd) Help() string {
	return `The new policy decides by the scores that were recorded, of the same model under its old policies. What a record
leaves open, as the skewness that a gate reads, is never guessed: where it matters, the decision is counted as one that
cannot be known. With outcomes it says which known misses there were and would be, weighted by the probability of the
audits that found them.

    ckd whatif --policy new.yaml --log decisions.log --log decisions.log.1
    ckd whatif --policy new.yaml --log decisions.log --outcomes outcomes.jsonl

Exit codes: 0 the report is printed; 1 a file has a fault, or the log has no record of the model; 2 wrong usage.`
}

// Validate refuses flags that make no sense; kong calls it.
func (c *whatifCmd) Validate() error {
	if c.Policy == "" {
		return errors.New("expected --policy: the policy that would have decided")
	}
	return c.check()
}

// Run reads the logs and prints what would have been decided.
func (c *whatifCmd) Run(ctx *cmdContext) error {
	next, err := c.load()
	if err != nil {
		return err
	}
	study := whatif.New(next)
	for _, path := range c.Old {
		set, err := store.Load(path)
		if err != nil {
			return err
		}
		for _, p := range set.All() {
			study.Policy(p)
		}
	}
	if c.Outcomes != "" {
		truths, err := outcomefile.ReadTruths(c.Outcomes)
		if err != nil {
			return err
		}
		if err := study.Truth(truths); err != nil {
			return err
		}
	}
	for _, path := range c.Log {
		err := decisionlog.Each(path, func(l *decisionlog.Line) error {
			study.Line(l)
			return ctx.Ctx.Err()
		})
		if err != nil {
			return interrupted(ctx, err)
		}
	}
	found, err := study.Report()
	if err != nil {
		return err
	}
	if c.Format == "json" {
		return writeJSON(ctx.Stdout, found)
	}
	return writeDocument(ctx.Stdout, report.WhatIf(found, next.Classes), c.Format, c.Full)
}
