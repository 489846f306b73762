package main

import (
	"bytes"
	"testing"
	"time"
)

// TestBars checks that a stage shows once it takes long, not too often, and on a line of its own.
func TestBars(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	bars := stageBars{ctx: &cmdContext{Stderr: &out}}
	now := time.Now()
	for _, at := range []struct {
		after       time.Duration
		stage       string
		done, total int
	}{
		{0, "short", 1, 2},
		{barDelay / 2, "short", 2, 2},
		{barDelay, "long", 1, 4},
		{2 * barDelay, "long", 2, 4},
		{2*barDelay + barPause/2, "long", 3, 4},
		{2*barDelay + barPause/2, "long", 4, 4},
		{3 * barDelay, "next", 0, 0},
	} {
		bars.draw(now.Add(at.after), at.stage, at.done, at.total)
	}
	bars.stop()
	if want := "\rlong: 2 of 4 (50%)\rlong: 4 of 4 (100%)\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestProgressLines expects no line of quick work, and one every ten seconds at most, where nothing is
// drawn in place.
func TestProgressLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	bars := stageBars{ctx: &cmdContext{Stderr: &out}}
	now := time.Now()
	for i, after := range []time.Duration{0, lineDelay / 2, lineDelay, lineDelay + linePause/2, lineDelay + linePause} {
		bars.write(now.Add(after), "resampling", i, 4)
	}
	if want := "ckd: resampling: 2 of 4 (50%)\nckd: resampling: 4 of 4 (100%)\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
