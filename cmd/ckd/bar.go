package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

// barDelay is how long work takes before a late bar shows.
const barDelay = time.Second

// bar shows progress on standard error, where that is a terminal.
type bar struct {
	what    string
	lines   io.Writer         // for a line at the beginning and one at the end; nil for none
	tracker *progress.Tracker // nil without a terminal
	timer   *time.Timer

	mutex    sync.Mutex // of what follows
	stopped  bool
	writer   progress.Writer // nil while nothing is shown
	rendered chan struct{}
}

// newBar shows a bar at once. Without a terminal it prints a line at the
// beginning and one at the end.
func newBar(ctx *cmdContext, what string) *bar {
	b := makeBar(ctx, what)
	if b.tracker != nil {
		b.show(ctx.Stderr)
		return b
	}
	b.lines = ctx.Stderr
	fmt.Fprintf(b.lines, "%s ...\n", what)
	return b
}

// newLateBar shows a bar once the work takes long. Without a terminal it prints
// nothing.
func newLateBar(ctx *cmdContext, what string) *bar {
	b := makeBar(ctx, what)
	if b.tracker != nil {
		b.timer = time.AfterFunc(barDelay, func() { b.show(ctx.Stderr) })
	}
	return b
}

func makeBar(ctx *cmdContext, what string) *bar {
	b := &bar{what: what}
	if f, isFile := ctx.Stderr.(*os.File); isFile && term.IsTerminal(int(f.Fd())) {
		b.tracker = &progress.Tracker{Message: what, Units: progress.UnitsDefault}
		b.tracker.Start()
	}
	return b
}

func (b *bar) show(w io.Writer) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.stopped {
		return
	}
	writer, rendered := progress.NewWriter(), make(chan struct{})
	writer.SetOutputWriter(w)
	writer.SetAutoStop(false)
	writer.AppendTracker(b.tracker)
	go func() {
		defer close(rendered)
		writer.Render()
	}()
	b.writer, b.rendered = writer, rendered
}

// update moves the bar. Many goroutines may call it.
func (b *bar) update(done, total int) {
	if b.lines != nil && done == total {
		fmt.Fprintf(b.lines, "%s: %d done\n", b.what, total)
	}
	if b.tracker != nil {
		b.tracker.UpdateTotal(int64(total))
		b.tracker.SetValue(int64(done))
	}
}

// stop ends the bar, and returns when its last line is drawn. A second call does
// nothing.
func (b *bar) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.stopped = true
	if b.writer == nil {
		return
	}
	if !b.tracker.IsDone() { // the work ended before its end
		b.tracker.MarkAsErrored()
	}
	for {
		b.writer.Stop() // does nothing before the rendering has begun
		select {
		case <-b.rendered:
			b.writer = nil
			return
		case <-time.After(time.Millisecond):
		}
	}
}
