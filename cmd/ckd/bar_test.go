package main

import (
	"bytes"
	"testing"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// TestBarIsNotShownAfterItStopped lets the timer of a late bar fire while the work ends.
func TestBarIsNotShownAfterItStopped(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &bar{tracker: &progress.Tracker{Message: "working"}}
	b.stop()
	b.show(&out)
	shown := b.writer != nil
	b.stop() // waits for what is shown
	if shown || out.Len() > 0 {
		t.Errorf("it shows %q", out.String())
	}
}

// TestBarIsShown expects a bar to stay until it stops.
func TestBarIsShown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &bar{tracker: &progress.Tracker{Message: "working"}}
	b.show(&out)
	b.update(3, 4)
	b.stop()
	b.stop()
	if b.writer != nil || !bytes.Contains(out.Bytes(), []byte("working")) {
		t.Errorf("it showed %q", out.String())
	}
}
