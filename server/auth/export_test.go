package auth

import "time"

// Pace sets how long Watch waits for quiet, how long it waits at most, and how often it polls.
func (s *Store) Pace(quiet, atMost, poll time.Duration) {
	s.reloader.Quiet, s.reloader.AtMost, s.reloader.Poll = quiet, atMost, poll
}

// Sessions returns how many calls that may last are in flight.
func (s *Store) Sessions() int {
	s.tracking.Lock()
	defer s.tracking.Unlock()
	return len(s.open)
}
