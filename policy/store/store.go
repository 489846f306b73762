package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/policy"
)

// Store keeps the set of policies that is in force, and replaces it as a whole. Several goroutines
// may call its methods.
type Store struct {
	paths    []string
	apply    func(*policy.Set) error
	current  atomic.Pointer[policy.Set]
	reloader *watch.Reloader
}

// Open loads the files that paths stand for, as Load does, and applies their set.
//
// Apply puts a set in force with its users. With an error it refuses the set, and must have
// changed nothing; every later reload offers the set again. Open and the reloads call it for one
// set at a time. It must not call Reload.
func Open(apply func(*policy.Set) error, paths ...string) (*Store, error) {
	set, err := Load(paths...)
	if err != nil {
		return nil, err
	}
	if err := apply(set); err != nil {
		return nil, fmt.Errorf("policies refused: %w", err)
	}
	s := &Store{paths: slices.Clone(paths), apply: apply}
	s.reloader = watch.NewReloader(s.places, s.replace)
	s.current.Store(set)
	return s, nil
}

// Reload reads all files again. If they make a good set other than the one in force, it applies
// that set. Whatever fails, the earlier set stays: the outcome's error is policy.Faults or what
// apply returned, its hash that of the set in force. The trigger, which says what asked for the
// reload, only goes into the outcome.
func (s *Store) Reload(trigger string) watch.Outcome { return s.reloader.Reload(trigger) }

// Watch reloads when the files change, until ctx ends; then it leaves nothing running. It begins with
// a reload, for what changed before. Changes are taken together: Watch waits until the files have been
// quiet for a moment, but not for long. A slow poll finds what the system does not report.
//
// Watch calls report with what is new: a changed set, a failure, the first success after one, or a new
// WatchErr. A failure that a poll finds again is not reported. The trigger is "watch".
func (s *Store) Watch(ctx context.Context, report func(watch.Outcome)) { s.reloader.Watch(ctx, report) }

// replace replaces the set in force by that of the files, if they differ.
func (s *Store) replace() (watch.Result, error) {
	before := watch.Result{Hash: s.current.Load().Hash()}
	set, err := Load(s.paths...)
	if err != nil || set.Hash() == before.Hash {
		return before, err
	}
	if err := s.apply(set); err != nil {
		return before, fmt.Errorf("policies refused: %w", err)
	}
	s.current.Store(set)
	return watch.Result{Changed: true, Hash: set.Hash()}, nil
}

// places returns the places that the paths lead to now.
func (s *Store) places() *watch.Places {
	p := watch.NewPlaces(isPolicy)
	for _, path := range s.paths {
		p.Trace(path)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			p.Trace(filepath.Join(path, dataLink))
		}
	}
	for _, found := range find(s.paths) {
		p.Trace(found.path)
	}
	return p
}
