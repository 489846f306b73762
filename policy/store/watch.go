package store

import (
	"context"
	"time"
)

// Watch reloads when the files change, until ctx ends; then it leaves nothing
// running. Changes are taken together: it waits until all has been quiet for a
// moment, but not for long. A slow poll finds what the system does not tell of.
// It begins with a reload, for what changed before.
//
// Report is called, by Watch itself, with what is news: a changed set, a
// failure, the first success after one, and a new WatchErr. A failure that a
// poll finds again is not. The trigger is "watch".
func (s *Store) Watch(ctx context.Context, report func(Outcome)) {
	n := &notifier{open: s.notifications, wake: make(chan struct{}, 1)}
	defer n.close()
	poll := time.NewTicker(s.poll)
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
			settled.Reset(min(s.quiet, s.atMost-time.Since(since)))
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
		err := n.follow(s.paths)
		out, again := s.reload("watch")
		out.WatchErr = err
		failure := ""
		if err != nil {
			failure = err.Error()
		}
		if out.Changed || !again || out.Err != nil && !polled || failure != watchErr {
			report(out)
		}
		watchErr = failure
	}
}
