package access

import "time"

// Pace sets how long Watch waits for quiet, at most, and from poll to poll.
func (s *Store) Pace(quiet, atMost, poll time.Duration) {
	s.reloader.Quiet, s.reloader.AtMost, s.reloader.Poll = quiet, atMost, poll
}

// Sessions is how many calls that may last are under way.
func (s *Store) Sessions() int {
	s.tracking.Lock()
	defer s.tracking.Unlock()
	return len(s.open)
}
