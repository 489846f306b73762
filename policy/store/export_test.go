package store

import (
	"time"

	"github.com/fsnotify/fsnotify"
)

// Pace sets how long Watch waits for quiet, at most, and from poll to poll.
func (s *Store) Pace(quiet, atMost, poll time.Duration) {
	s.reloader.Quiet, s.reloader.AtMost, s.reloader.Poll = quiet, atMost, poll
}

// Notifications sets where Watch has its notifications from.
func (s *Store) Notifications(open func() (*fsnotify.Watcher, error)) {
	s.reloader.Notifications = open
}
