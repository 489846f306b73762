package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	barDelay  = time.Second            // how long a stage takes before its progress shows
	barPause  = 100 * time.Millisecond // between two drawings
	lineDelay = 2 * time.Second        // how long all work takes before a line shows
	linePause = 10 * time.Second       // between two lines
)

// stageBars shows the progress of each stage of some work on standard error: in place on a terminal,
// elsewhere by a line now and then. Many goroutines may call its methods.
type stageBars struct {
	ctx *cmdContext

	mutex        sync.Mutex // guards the fields below
	stage        string
	began, drawn time.Time // of the stage; drawn is zero while nothing of it is shown
	first, line  time.Time // of all stages; line is zero before the first line
}

// mover returns a function that moves the bar of a stage.
func (s *stageBars) mover(stage string) func(done, total int) {
	return func(done, total int) { s.update(stage, done, total) }
}

// update moves the bar of a stage, and ends the bar of the previous stage.
func (s *stageBars) update(stage string, done, total int) {
	if isTerminal(s.ctx.Stderr) {
		s.draw(time.Now(), stage, done, total)
		return
	}
	s.write(time.Now(), stage, done, total)
}

// during names a stage whose progress nobody counts, once it takes long. The function that it returns
// ends the stage.
func (s *stageBars) during(stage string) (end func()) {
	said := make(chan struct{})
	timer := time.AfterFunc(lineDelay, func() {
		defer close(said)
		fmt.Fprintf(s.ctx.Stderr, "ckd: %s ...\n", stage)
	})
	return func() {
		if !timer.Stop() {
			<-said
		}
	}
}

// write writes a line of the stage, where it is time for one.
func (s *stageBars) write(now time.Time, stage string, done, total int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.first.IsZero() {
		s.first = now
	}
	if now.Sub(s.first) < lineDelay || now.Sub(s.line) < linePause {
		return
	}
	s.line = now
	fmt.Fprintf(s.ctx.Stderr, "ckd: %s: %s\n", stage, progressOf(done, total))
}

// progressOf returns how much is done: "1 of 4 (25%)".
func progressOf(done, total int) string {
	return fmt.Sprintf("%d of %d (%d%%)", done, total, 100*int64(done)/int64(max(total, 1)))
}

func isTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	return isFile && term.IsTerminal(int(f.Fd()))
}

func (s *stageBars) draw(now time.Time, stage string, done, total int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.stage != stage {
		s.end()
		s.stage, s.began = stage, now
	}
	if now.Sub(s.began) < barDelay || done < total && now.Sub(s.drawn) < barPause {
		return
	}
	s.drawn = now
	fmt.Fprintf(s.ctx.Stderr, "\r%s: %s", stage, progressOf(done, total))
}

// end leaves the line of the stage. The caller holds mutex.
func (s *stageBars) end() {
	if !s.drawn.IsZero() {
		fmt.Fprintln(s.ctx.Stderr)
	}
	s.drawn = time.Time{}
}

// stop ends the last bar.
func (s *stageBars) stop() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.end()
}
