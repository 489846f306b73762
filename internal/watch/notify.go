package watch

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
)

// notifier wakes when something happens to the files that it follows.
type notifier struct {
	wake chan struct{} // holds at most one
	open func() (*fsnotify.Watcher, error)

	system *fsnotify.Watcher // nil until it could be opened
	places atomic.Pointer[Places]
	pumps  sync.WaitGroup
}

// follow the files, where their links lead now, as look says. It is called again
// after every wake, since what happened may have led them elsewhere. An error
// means that some changes will not wake; the next call tries again.
func (n *notifier) follow(look func() *Places) error {
	if n.system == nil {
		system, err := n.open()
		if err != nil {
			return fmt.Errorf("cannot watch for changes: %w", err)
		}
		n.system = system
		n.pumps.Go(n.pump)
	}
	const attempts = 10
	var err error
	for range attempts {
		want := look()
		n.places.Store(want)
		err = n.listen(want)
		// What appeared after the look and before the system listened was not told.
		if want.equal(look()) {
			return err
		}
	}
	n.poke() // look again when it is quiet
	return err
}

// close ends it; what it started has ended then.
func (n *notifier) close() {
	if n.system != nil {
		_ = n.system.Close() // there is nothing to lose
		n.pumps.Wait()
	}
}

// listen to the directories of the places and to no others.
func (n *notifier) listen(want *Places) error {
	var failed error
	for dir := range want.names {
		// A directory is added even if it was before: it may be another one of the same name.
		if err := n.system.Add(dir); err != nil && failed == nil {
			failed = fmt.Errorf("cannot watch %s for changes: %w", dir, err)
		}
	}
	for _, dir := range n.system.WatchList() {
		if _, wanted := want.names[dir]; !wanted {
			_ = n.system.Remove(dir) // an error says that the directory is gone
		}
	}
	return failed
}

// pump turns what the system tells into wakes. It takes everything at once, since
// the system drops what is not taken, and the watcher may block for good if an error is not.
func (n *notifier) pump() {
	events, errs := n.system.Events, n.system.Errors
	for events != nil || errs != nil {
		select {
		case event, open := <-events:
			if !open {
				events = nil
			} else if n.places.Load().concern(event.Name) {
				n.poke()
			}
		case _, open := <-errs:
			if !open {
				errs = nil
			} else {
				n.poke() // most likely events were dropped: any file may have changed
			}
		}
	}
}

func (n *notifier) poke() {
	select {
	case n.wake <- struct{}{}:
	default: // it wakes already
	}
}
