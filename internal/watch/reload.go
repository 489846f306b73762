package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Result is what reading the files again came to.
type Result struct {
	// Changed is whether something else is in force now.
	Changed bool
	// Hash says what is in force, where it has a hash that may be told.
	Hash string
	// Warnings of what is in force.
	Warnings []string
}

// Outcome is what came of a reload.
type Outcome struct {
	Result
	// Trigger is what asked for it.
	Trigger string
	// Err is why there is nothing new. What was in force before stays. Files that
	// mean what they did are no error.
	Err error
	// At is when it was done. It is never before that of an earlier reload, so
	// that those who hear of outcomes late can tell which is the latest.
	At time.Time
	// WatchErr is set by Watch alone: why changes are found by the slow poll
	// only. It is no fault of the files.
	WatchErr error
}

// Reloader reads files again, one reload after another, when it is asked or when
// they change. Its methods may be called at the same time.
type Reloader struct {
	// How Watch goes about it; to be set before it is called.
	Quiet, AtMost, Poll time.Duration
	Notifications       func() (*fsnotify.Watcher, error)

	places  func() *Places
	replace func() (Result, error)

	reloading sync.Mutex
	last      told
}

// told is what is no news the second time.
type told struct {
	failure  string
	warnings []string
}

// NewReloader of the files whose places are given, as they lead at each moment.
// Replace reads them and puts what they say in force. On an error it has changed
// nothing, and the result is about what stays in force.
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

// Reload reads the files now. Trigger says in the outcome, and there alone, what
// asked for it.
func (r *Reloader) Reload(trigger string) Outcome {
	out, _ := r.reload(trigger)
	return out
}

// reload also tells whether it went otherwise than the reload before: with
// another failure, or none, or other warnings.
func (r *Reloader) reload(trigger string) (out Outcome, otherwise bool) {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	result, err := r.replace()
	out = Outcome{Result: result, Trigger: trigger, Err: err, At: time.Now()}
	now := told{failure: text(err), warnings: result.Warnings}
	otherwise = now.failure != r.last.failure || !slices.Equal(now.warnings, r.last.warnings)
	r.last = now
	return out, otherwise
}

// Watch reloads when the files change, until ctx ends; then it leaves nothing
// running. Changes are taken together: it waits until all has been quiet for a
// moment, but not for long. A slow poll finds what the system does not tell of.
// It begins with a reload, for what changed before.
//
// Report is called, by Watch itself, with what is news: a change, a failure, the
// first success after one, other warnings, and a new WatchErr. A failure that a
// poll finds again is not. The trigger is "watch".
func (r *Reloader) Watch(ctx context.Context, report func(Outcome)) {
	n := &notifier{open: r.Notifications, wake: make(chan struct{}, 1)}
	defer n.close()
	poll := time.NewTicker(r.Poll)
	defer poll.Stop()
	settled := time.NewTimer(0)
	defer settled.Stop()
	var (
		since    time.Time // the first change of those that are taken together; zero for none
		watchErr string    // the last that was reported
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
			settled.Reset(min(r.Quiet, r.AtMost-time.Since(since)))
			continue
		case <-poll.C:
			if !since.IsZero() {
				continue // it is about to be done, and is not settled yet
			}
			polled = true
		case <-settled.C:
			since = time.Time{}
		}
		// First listen, then read: a change between the two wakes.
		err := n.follow(r.places)
		out, otherwise := r.reload("watch")
		out.WatchErr = err
		if out.Changed || otherwise || out.Err != nil && !polled || text(err) != watchErr {
			report(out)
		}
		watchErr = text(err)
		if followed := n.places.Load(); err == nil && !followed.equal(r.places()) {
			n.poke() // what was read names other files, which were not listened to yet
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
