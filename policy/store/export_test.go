package store

import (
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ckd-project/ckd/internal/files"

	"github.com/ckd-project/ckd/policy"
)

// Pace sets how long Watch waits for quiet, how long it waits at most, and how often it polls.
func (s *Store) Pace(quiet, atMost, poll time.Duration) {
	s.reloader.Quiet, s.reloader.AtMost, s.reloader.Poll = quiet, atMost, poll
}

// Notifications sets where Watch gets its notifications from.
func (s *Store) Notifications(open func() (*fsnotify.Watcher, error)) {
	s.reloader.Notifications = open
}

// OpenOn opens the files of a disk.
func OpenOn(disk files.System, apply func(*policy.Set) error, paths ...string) (*Store, error) {
	return openOn(disk, apply, paths)
}
