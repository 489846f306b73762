package main

import (
	"errors"
	"fmt"

	"github.com/ckd-project/ckd/cmd/ckd/internal/replay"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// outcomesRaiseCmd raises a line.
type outcomesRaiseCmd struct {
	daemonFlags
	Model  string        `required:"" placeholder:"NAME" help:"The model."`
	Figure policy.Figure `enum:"critical-miss-rate,critical-fnr" default:"critical-miss-rate" help:"The figure whose line it is: ${enum}. Only a certified critical-fnr has one. (${default})"`
	Class  string        `placeholder:"NAME" help:"The critical class whose line it is. Default: that of all critical classes."`
	Line   float64       `required:"" placeholder:"X" help:"What the risk is held against from the next cohort on: above the line in force, below 1."`
	Reason string        `required:"" placeholder:"TEXT" help:"Why. It is recorded."`
	By     string        `placeholder:"NAME" help:"Who does it. Beside the identity, it is recorded."`
}

// Help is the long text of ckd outcomes raise --help.
func (*outcomesRaiseCmd) Help() string {
	return `A policy may lower the line of its model. A policy with a higher one, or without, is held against the line of
before, until a person with the right clear raises it here. Every statement then says who did it and when.

    ckd outcomes raise --addr 127.0.0.1:8590 --model eye --line 0.12 --reason "other population, agreed on 3 May"

Exit codes: 0 the line is raised; 1 it is not; 2 wrong usage.`
}

// Run raises the line, and prints what holds then.
func (c *outcomesRaiseCmd) Run(ctx *cmdContext) error {
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	figure := ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE
	if c.Figure == policy.CriticalFNR {
		figure = ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_FNR
	}
	reply, err := daemon.Outcomes().RaiseLine(ctx.Ctx, &ckdv1.RaiseLineRequest{
		Model: c.Model, Figure: figure, CriticalClass: c.Class, Line: c.Line, Reason: c.Reason, By: c.By,
	})
	if err != nil {
		return errors.New(replay.StatusText(err))
	}
	for _, p := range reply.GetPromises() {
		fmt.Fprintf(ctx.Stdout, "raised: %s\n%s\n", promiseName(p), p.GetStatement())
	}
	return nil
}
