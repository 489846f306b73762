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
	barDelay = time.Second            // how long a stage takes before its progress shows
	barPause = 100 * time.Millisecond // between two drawings
)

// stageBars shows the progress of each stage of some work on one line of standard error, where that is
// a terminal. Many goroutines may call its methods.
type stageBars struct {
	ctx *cmdContext

	mutex        sync.Mutex // guards the fields below
	stage        string
	began, drawn time.Time // of the stage; drawn is zero while nothing of it is shown
}

// mover returns a function that moves the bar of a stage.
func (s *stageBars) mover(stage string) func(done, total int) {
	return func(done, total int) { s.update(stage, done, total) }
}

// update moves the bar of a stage, and ends the bar of the previous stage.
func (s *stageBars) update(stage string, done, total int) {
	if isTerminal(s.ctx.Stderr) {
		s.draw(time.Now(), stage, done, total)
	}
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
	fmt.Fprintf(s.ctx.Stderr, "\r%s: %d of %d (%d%%)", stage, done, total, 100*int64(done)/int64(max(total, 1)))
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
