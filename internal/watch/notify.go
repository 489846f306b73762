package watch

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
)

// notifier wakes its user when something happens to the files that it follows.
type notifier struct {
	wake chan struct{} // holds at most one wake
	open func() (*fsnotify.Watcher, error)

	system *fsnotify.Watcher // nil until it has been opened
	places atomic.Pointer[Places]
	pumps  sync.WaitGroup
}

// follow listens to the places that look returns. Call it again after every wake: a link may lead
// elsewhere now. After an error some changes will not wake; the next call tries
// again.
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
		// The system has not reported what appeared after the look and before it listened.
		if want.equal(look()) {
			return err
		}
	}
	n.poke() // look again when it is quiet
	return err
}

// close ends the notifier and waits for its goroutines.
func (n *notifier) close() {
	if n.system != nil {
		_ = n.system.Close() // nothing is lost
		n.pumps.Wait()
	}
}

// listen listens to the directories of the places, and stops listening to all others.
func (n *notifier) listen(want *Places) error {
	var failed error
	for dir := range want.names {
		// Add every directory again: another one may have taken its name.
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

// pump turns the system's reports into wakes. It receives without delay: the system drops events that
// are not received, and an error that is not received may block the watcher for good.
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

// poke wakes the user, unless a wake is pending.
func (n *notifier) poke() {
	select {
	case n.wake <- struct{}{}:
	default: // it wakes already
	}
}
