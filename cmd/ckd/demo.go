package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"

	"github.com/ckd-project/ckd/internal/demo"
)

type demoCmd struct {
	Keep   bool   `help:"Leave the daemon up afterwards, with slow traffic, until interrupted."`
	JSON   bool   `help:"Print the result as JSON."`
	Listen string `default:"127.0.0.1:0" placeholder:"ADDR" help:"gRPC address of the daemon: HOST:PORT or unix:PATH. (${default})"`
	Admin  string `default:"127.0.0.1:0" placeholder:"ADDR" help:"HTTP address of the metrics. (${default})"`
}

// Run shows the demo.
func (c *demoCmd) Run(ctx *cmdContext) error {
	bar := newBar(ctx, "streaming real passes")
	err := demo.Run(ctx.Ctx, demo.Options{
		Keep: c.Keep, Listen: c.Listen, Admin: c.Admin, Log: ctx.Stderr,
		Progress: bar.update,
		Ready: func(r *demo.Report) error {
			bar.stop()
			if c.JSON {
				encoder := json.NewEncoder(ctx.Stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(r)
			}
			if err := r.WriteText(ctx.Stdout); err != nil {
				return err
			}
			if c.Keep {
				fmt.Fprintln(ctx.Stdout, "\nThe daemon stays up, with slow traffic. Ctrl-C ends it.")
			}
			return nil
		},
	})
	bar.stop()
	if c.Keep && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// bar shows progress on standard error: a moving bar on a terminal, else a line
// at the beginning and one at the end.
type bar struct {
	ctx     *cmdContext
	what    string
	writer  progress.Writer
	tracker *progress.Tracker
}

func newBar(ctx *cmdContext, what string) *bar {
	b := &bar{ctx: ctx, what: what}
	f, isFile := ctx.Stderr.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(ctx.Stderr, "%s ...\n", what)
		return b
	}
	b.tracker = &progress.Tracker{Message: what, Units: progress.UnitsDefault}
	b.writer = progress.NewWriter()
	b.writer.SetOutputWriter(ctx.Stderr)
	b.writer.SetAutoStop(false)
	b.writer.AppendTracker(b.tracker)
	go b.writer.Render()
	return b
}

// update moves the bar. Many goroutines may call it.
func (b *bar) update(done, total int) {
	if b.writer == nil {
		if done == total {
			fmt.Fprintf(b.ctx.Stderr, "%s: %d done\n", b.what, total)
		}
		return
	}
	b.tracker.UpdateTotal(int64(total))
	b.tracker.SetValue(int64(done))
}

// stop ends the bar; a second call does nothing.
func (b *bar) stop() {
	if b.writer == nil {
		return
	}
	b.tracker.MarkAsDone()
	b.writer.Stop()
	for b.writer.IsRenderInProgress() { // the last line is still being drawn
		time.Sleep(time.Millisecond)
	}
	b.writer = nil
}
