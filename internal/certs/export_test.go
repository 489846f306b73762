package certs

import "time"

// Heeds is whether a list is one that can be heeded.
var Heeds = heeds

// Pace sets how long Watch waits for quiet, at most, and from poll to poll.
func (s *Source) Pace(quiet, atMost, poll time.Duration) {
	s.reloader.Quiet, s.reloader.AtMost, s.reloader.Poll = quiet, atMost, poll
}

// Clock sets what the time is.
func (s *Source) Clock(now func() time.Time) { s.now = now }

// Open is how many connections are known by a client certificate.
func (s *Source) Open() int {
	s.tracking.Lock()
	defer s.tracking.Unlock()
	return len(s.open)
}
