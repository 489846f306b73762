package watch

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
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
}

// Reloader reads files again, one reload after another, when it is asked to or when they change.
// Its methods may be called concurrently.
type Reloader struct {
	// Watch looks at the files at each interval Every. It reads files that have changed once two looks
	// agree, at most AtMost after the first change; without a change it reads them at each interval
	// Poll, for changes that keep size and age. Set them before calling Watch.
	Every, AtMost, Poll time.Duration

	paths   func() []string
	replace func() (Result, error)

	reloading sync.Mutex
	last      news
}

// news holds the failure and the warnings reported last, which are not reported again.
type news struct {
	failure  string
	warnings []string
}

// NewReloader returns a reloader of the files that paths returns at each moment. replace reads the
// files and puts their contents in force. On an error it must have changed nothing, and its result
// describes the contents that stay.
func NewReloader(paths func() []string, replace func() (Result, error)) *Reloader {
	return &Reloader{
		Every: 500 * time.Millisecond, AtMost: 2 * time.Second, Poll: time.Minute,
		paths: paths, replace: replace,
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

// Watch reloads when the files change, until ctx ends. It waits until they have come to rest, but not
// for long. It begins with a reload, for earlier changes.
//
// Watch calls report with news alone: a change, a failure, the first success after one, or other
// warnings. A failure that is found again in files that have not changed is not news. The trigger is
// "watch".
func (r *Reloader) Watch(ctx context.Context, report func(Outcome)) {
	tick := time.NewTicker(r.Every)
	defer tick.Stop()
	for changed := true; ctx.Err() == nil; {
		seen := r.look() // before the reading: the next look finds a change after this one
		out, otherwise := r.reload("watch")
		if out.Changed || otherwise || out.Err != nil && changed {
			report(out)
		}
		changed = r.wait(ctx, tick.C, seen)
	}
}

// wait waits until files that were last read as seen have changed and come to rest, and returns true;
// or it returns false after Poll, or when ctx ends.
func (r *Reloader) wait(ctx context.Context, tick <-chan time.Time, seen state) bool {
	poll := time.Now().Add(r.Poll)
	var since time.Time // the first change; zero for none
	for before := seen; ; {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
		}
		now := r.look()
		if since.IsZero() && !now.equal(seen) {
			since = time.Now()
		}
		switch {
		case since.IsZero():
			if time.Now().After(poll) {
				return false
			}
		case now.equal(before), time.Since(since) >= r.AtMost:
			return true
		}
		before = now
	}
}

// state holds what the system says of files, by path; nil for a file that cannot be found.
type state map[string]fs.FileInfo

// look returns the present state of the files.
func (r *Reloader) look() state {
	s := state{}
	for _, path := range r.paths() {
		info, err := os.Stat(path)
		if err != nil {
			info = nil
		}
		s[path] = info
	}
	return s
}

func (s state) equal(other state) bool {
	return maps.EqualFunc(s, other, func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == b
		}
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
