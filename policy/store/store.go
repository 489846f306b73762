package store

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ckd-project/ckd/policy"
)

// Store keeps the set of policies that is in force and replaces it as a whole.
// Its methods may be called at the same time.
type Store struct {
	paths   []string
	apply   func(*policy.Set) error
	current atomic.Pointer[policy.Set]

	reloading sync.Mutex
	failure   string // of the last reload, empty if it succeeded; guarded by reloading

	// How Watch goes about it.
	quiet, atMost, poll time.Duration
	notifications       func() (*fsnotify.Watcher, error)
}

// Open loads the files that paths stand for, as Load does, and applies their
// set.
//
// Apply puts a set in force with those who use it. An error refuses the set, and
// then apply must have changed nothing; every later reload offers it again. It
// is called for one set at a time and must not call Reload.
func Open(apply func(*policy.Set) error, paths ...string) (*Store, error) {
	set, err := Load(paths...)
	if err != nil {
		return nil, err
	}
	if err := apply(set); err != nil {
		return nil, fmt.Errorf("policies refused: %w", err)
	}
	s := &Store{
		paths:         slices.Clone(paths),
		apply:         apply,
		quiet:         200 * time.Millisecond,
		atMost:        2 * time.Second,
		poll:          time.Minute,
		notifications: fsnotify.NewWatcher,
	}
	s.current.Store(set)
	return s, nil
}

// Set is the set in force: the last that was applied.
func (s *Store) Set() *policy.Set { return s.current.Load() }

// Outcome is what came of a reload.
type Outcome struct {
	// Trigger is what asked for it.
	Trigger string
	// Changed is whether another set is in force now.
	Changed bool
	// Err is why there is no new set: policy.Faults, or what apply said. The set
	// before stays in force. An unchanged set is no error.
	Err error
	// Hash is that of the set in force.
	Hash string
	// At is when it was done. It is never before that of an earlier reload, so
	// that those who hear of outcomes late can tell which is the latest.
	At time.Time
	// WatchErr is set by Watch alone: why changes are found by the slow poll
	// only. It is no fault of the policies.
	WatchErr error
}

// Reload reads all files again and, if they are a good set that is not the one
// in force, applies it and puts it in force. Whatever fails, the set before
// stays. Trigger says in the outcome, and there alone, what asked for it.
func (s *Store) Reload(trigger string) Outcome {
	out, _ := s.reload(trigger)
	return out
}

// reload also tells whether it went as the reload before did: both well, or
// with the same failure.
func (s *Store) reload(trigger string) (out Outcome, again bool) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	changed, err := s.replace()
	out = Outcome{Trigger: trigger, Changed: changed, Err: err, Hash: s.Set().Hash(), At: time.Now()}
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	again = failure == s.failure
	s.failure = failure
	return out, again
}

// replace the set in force by that of the files, if it is another.
func (s *Store) replace() (changed bool, err error) {
	set, err := Load(s.paths...)
	if err != nil || set.Hash() == s.Set().Hash() {
		return false, err
	}
	if err := s.apply(set); err != nil {
		return false, fmt.Errorf("policies refused: %w", err)
	}
	s.current.Store(set)
	return true, nil
}
