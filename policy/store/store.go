package store

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/policy"
)

// Store keeps the set of policies that is in force, and replaces it as a whole. Several goroutines
// may call its methods.
type Store struct {
	given    []string // paths of files and directories
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
	s := &Store{given: slices.Clone(paths), apply: apply}
	s.reloader = watch.NewReloader(s.paths, s.replace)
	s.current.Store(set)
	return s, nil
}

// Reload reads all files again. If they make a good set other than the one in force, it applies
// that set. Whatever fails, the earlier set stays: the outcome's error is policy.Faults or what
// apply returned, its hash that of the set in force. The trigger, which says what asked for the
// reload, only goes into the outcome.
func (s *Store) Reload(trigger string) watch.Outcome { return s.reloader.Reload(trigger) }

// Watch reloads when the files change, until ctx ends. It begins with a reload, for what changed
// before. Changes are taken together: Watch waits until the files have come to rest, but not for long.
//
// Watch calls report with what is new: a changed set, a failure, or the first success after one. The
// trigger is "watch".
func (s *Store) Watch(ctx context.Context, report func(watch.Outcome)) { s.reloader.Watch(ctx, report) }

// replace replaces the set in force by that of the files, if they differ.
func (s *Store) replace() (watch.Result, error) {
	before := watch.Result{Hash: s.current.Load().Hash()}
	set, err := Load(s.given...)
	if err != nil || set.Hash() == before.Hash {
		return before, err
	}
	if err := s.apply(set); err != nil {
		return before, fmt.Errorf("policies refused: %w", err)
	}
	s.current.Store(set)
	return watch.Result{Changed: true, Hash: set.Hash()}, nil
}

// paths returns the files that the given paths lead to now.
func (s *Store) paths() (paths []string) {
	for _, found := range find(s.given) {
		paths = append(paths, found.path)
	}
	return paths
}
