package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckd-project/ckd/cmd/ckd/internal/demo"
)

type demoCmd struct {
	Keep   bool   `help:"Leave the daemon up afterwards, with slow traffic, until interrupted."`
	Shift  bool   `help:"Then make misses three times as frequent: drift cannot see it, outcomes can."`
	Listen string `default:"127.0.0.1:0" placeholder:"ADDR" help:"gRPC address of the daemon: HOST:PORT or unix:PATH. (${default})"`
	HTTP   string `name:"http" default:"127.0.0.1:0" placeholder:"ADDR" help:"HTTP address of the API as JSON. (${default})"`
	Admin  string `default:"127.0.0.1:0" placeholder:"ADDR" help:"HTTP address of the triage page and the metrics. (${default})"`
}

// Run runs the demo and prints its report.
func (c *demoCmd) Run(ctx *cmdContext) error {
	bars := stageBars{ctx: ctx}
	defer bars.stop()
	err := demo.Run(ctx.Ctx, demo.Options{
		Keep: c.Keep, Shift: c.Shift, Listen: c.Listen, HTTP: c.HTTP, Admin: c.Admin, Log: ctx.Stderr,
		Progress: bars.mover("streaming real passes"), Reading: bars.mover("simulated readers answer"),
		Ready: func(r *demo.Report) error {
			bars.stop()
			if err := r.WriteText(ctx.Stdout); err != nil {
				return err
			}
			if c.Keep {
				fmt.Fprintln(ctx.Stdout, "\nThe daemon stays up, with slow traffic. Ctrl-C ends it.")
			}
			return nil
		},
	})
	if c.Keep && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
