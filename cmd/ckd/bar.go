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

// barDelay says how long work takes before its bar shows.
const barDelay = time.Second

// bar shows progress on standard error, where that is a terminal.
type bar struct {
	what    string
	lines   io.Writer         // for a line at the beginning and one at the end; nil for none
	tracker *progress.Tracker // nil without a terminal
	timer   *time.Timer

	mutex    sync.Mutex // guards the fields below
	stopped  bool
	writer   progress.Writer // nil while nothing is shown
	rendered chan struct{}
}

// newBar shows a bar at once. Without a terminal it prints one line at the beginning and one at the
// end.
func newBar(ctx *cmdContext, what string) *bar {
	b := newLateBar(ctx, what, 0)
	if b.tracker == nil {
		b.lines = ctx.Stderr
		fmt.Fprintf(b.lines, "%s ...\n", what)
	}
	return b
}

// newLateBar shows a bar once the work has taken some time. Without a terminal it prints nothing.
func newLateBar(ctx *cmdContext, what string, delay time.Duration) *bar {
	b := &bar{what: what}
	if f, isFile := ctx.Stderr.(*os.File); isFile && term.IsTerminal(int(f.Fd())) {
		b.tracker = &progress.Tracker{Message: what, Units: progress.UnitsDefault}
		b.tracker.Start()
		b.timer = time.AfterFunc(delay, func() { b.show(ctx.Stderr) })
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

// stop ends the bar and returns when its last line is drawn. A second call does nothing.
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

// stageBars shows a late bar for each stage of some work.
type stageBars struct {
	ctx *cmdContext

	mutex sync.Mutex // guards the fields below
	stage string
	bar   *bar // nil before the first stage
}

// of returns what moves the bar of a stage.
func (s *stageBars) of(stage string) func(done, total int) {
	return func(done, total int) { s.update(stage, done, total) }
}

// update moves the bar of a stage, and ends the bar of the previous stage. Many goroutines may call
// it.
func (s *stageBars) update(stage string, done, total int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.bar == nil || s.stage != stage {
		if s.bar != nil {
			s.bar.stop()
		}
		s.stage, s.bar = stage, newLateBar(s.ctx, stage, barDelay)
	}
	s.bar.update(done, total)
}

// stop ends the last bar.
func (s *stageBars) stop() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.bar != nil {
		s.bar.stop()
	}
}
