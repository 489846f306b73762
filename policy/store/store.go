package store

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ckd-project/ckd/internal/files"
	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/policy"
)

// Store keeps the set of policies that is in force, and replaces it as a whole. Several goroutines
// may call its methods.
type Store struct {
	disk     files.System
	paths    []string
	apply    func(*policy.Set) error
	current  atomic.Pointer[policy.Set]
	reloader *watch.Reloader
}

// Open loads the files that paths stand for, as Load does, and applies their set.
//
// Apply puts a set in force with those who use it. With an error it refuses the set, and must have
// changed nothing; every later reload offers the set again. Open and the reloads call it for one
// set at a time. It must not call Reload.
func Open(apply func(*policy.Set) error, paths ...string) (*Store, error) {
	return openOn(files.Machine, apply, paths)
}

// openOn opens the files of a disk.
func openOn(disk files.System, apply func(*policy.Set) error, paths []string) (*Store, error) {
	set, err := loadFrom(disk, paths)
	if err != nil {
		return nil, err
	}
	if err := apply(set); err != nil {
		return nil, fmt.Errorf("policies refused: %w", err)
	}
	s := &Store{disk: disk, paths: slices.Clone(paths), apply: apply}
	s.reloader = watch.NewReloader(func() *watch.Places { return placesOf(s.disk, s.paths) }, s.replace)
	s.current.Store(set)
	return s, nil
}

// Set returns the set in force: the last that was applied.
func (s *Store) Set() *policy.Set { return s.current.Load() }

// Outcome says what came of a reload. Its Err is policy.Faults or what apply returned, its Hash
// that of the set in force.
type Outcome = watch.Outcome

// Reload reads all files again. If they make a good set other than the one in force, it applies
// that set. Whatever fails, the earlier set stays. The trigger, which says what asked for the
// reload, only goes into the outcome.
func (s *Store) Reload(trigger string) Outcome { return s.reloader.Reload(trigger) }

// replace replaces the set in force by that of the files, if they differ.
func (s *Store) replace() (watch.Result, error) {
	before := watch.Result{Hash: s.Set().Hash()}
	set, err := loadFrom(s.disk, s.paths)
	if err != nil || set.Hash() == before.Hash {
		return before, err
	}
	if err := s.apply(set); err != nil {
		return before, fmt.Errorf("policies refused: %w", err)
	}
	s.current.Store(set)
	return watch.Result{Changed: true, Hash: set.Hash()}, nil
}
