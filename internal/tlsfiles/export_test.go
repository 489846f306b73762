package tlsfiles

import "time"

// CheckList exports checkList to tests.
var CheckList = checkList

// Pace sets how long Watch waits for quiet, how long it waits at most, and how often it polls.
func (s *Source) Pace(quiet, atMost, poll time.Duration) {
	s.reloader.Quiet, s.reloader.AtMost, s.reloader.Poll = quiet, atMost, poll
}

// Clock sets the clock.
func (s *Source) Clock(now func() time.Time) { s.now = now }

// Open returns how many connections with a client certificate are open.
func (s *Source) Open() int {
	s.tracking.Lock()
	defer s.tracking.Unlock()
	return len(s.open)
}
