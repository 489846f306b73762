package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Result describes the effect of reading the files again.
type Result struct {
	// Changed reports whether something else is in force now.
	Changed bool
	// Hash identifies the contents in force, if they have a hash that may be shown.
	Hash string
	// Warnings describe contents in force that are legal, but probably not intended.
	Warnings []string
}

// Outcome describes a reload.
type Outcome struct {
	Result
	// Trigger repeats what asked for the reload.
	Trigger string
	// Err says why nothing new is in force. The earlier contents stay. Files that mean the
	// same as before are not an error.
	Err error
	// At holds when the reload ended. It never precedes the time of an earlier reload, so that
	// receivers can tell the latest outcome.
	At time.Time
	// WatchErr says why Watch finds changes only by polling. Only Watch sets it, and the files are
	// not at fault.
	WatchErr error
}

// Reloader reads files again, one reload after another, when it is asked to or when they change.
// Its methods may be called concurrently.
type Reloader struct {
	// Watch reloads once the files have been quiet for Quiet, at most AtMost after the first
	// change, and polls every Poll. Notifications opens the source of changes. Set them before
	// calling Watch.
	Quiet, AtMost, Poll time.Duration
	Notifications       func() (*fsnotify.Watcher, error)

	places  func() *Places
	replace func() (Result, error)

	reloading sync.Mutex
	last      news
}

// news holds the failure and the warnings reported last, which are not reported again.
type news struct {
	failure  string
	warnings []string
}

// NewReloader returns a reloader of the files at places, which returns where they lead at each
// moment. replace reads the files and puts their contents in force. On an error it must have changed
// nothing, and its result describes the contents that stay.
func NewReloader(places func() *Places, replace func() (Result, error)) *Reloader {
	return &Reloader{
		Quiet:         200 * time.Millisecond,
		AtMost:        2 * time.Second,
		Poll:          time.Minute,
		Notifications: fsnotify.NewWatcher,
		places:        places,
		replace:       replace,
	}
}

// Reload reads the files now. trigger names the cause and is only copied to the outcome.
func (r *Reloader) Reload(trigger string) Outcome {
	out, _ := r.reload(trigger)
	return out
}

// reload also reports whether the failure or the warnings differ from the reload before.
func (r *Reloader) reload(trigger string) (out Outcome, otherwise bool) {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	result, err := r.replace()
	out = Outcome{Result: result, Trigger: trigger, Err: err, At: time.Now()}
	now := news{failure: text(err), warnings: result.Warnings}
	otherwise = now.failure != r.last.failure || !slices.Equal(now.warnings, r.last.warnings)
	r.last = now
	return out, otherwise
}

// Watch reloads when the files change, until ctx ends, and then leaves nothing running. It takes
// changes together: it waits until the files have been quiet for a moment, but not for long. A slow
// poll finds changes that the system does not report. Watch begins with a reload, for earlier
// changes.
//
// Watch calls report with news alone: a change, a failure, the first success after one, other
// warnings, or a new WatchErr. A failure that a poll finds again is not news. The trigger is
// "watch".
func (r *Reloader) Watch(ctx context.Context, report func(Outcome)) {
	n := &notifier{open: r.Notifications, wake: make(chan struct{}, 1)}
	defer n.close()
	poll := time.NewTicker(r.Poll)
	defer poll.Stop()
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	var (
		since    time.Time // the first change since the last reload; zero for none
		watchErr string    // reported last
	)
	for {
		polled := false
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
			if since.IsZero() {
				since = time.Now()
			}
			quiet.Reset(min(r.Quiet, r.AtMost-time.Since(since)))
			continue
		case <-poll.C:
			if !since.IsZero() {
				continue // a reload is about to happen, and the files are not quiet yet
			}
			polled = true
		case <-quiet.C:
			since = time.Time{}
		}
		// Listen before reading: a change between the two wakes the loop again.
		err := n.follow(r.places)
		out, otherwise := r.reload("watch")
		out.WatchErr = err
		if out.Changed || otherwise || out.Err != nil && !polled || text(err) != watchErr {
			report(out)
		}
		watchErr = text(err)
		if followed := n.places.Load(); err == nil && !followed.equal(r.places()) {
			n.poke() // the files now name others, which were not followed yet
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
