package tlsfiles

import "time"

// CheckList exports checkList to tests.
var CheckList = checkList

// Clock sets the clock.
func (s *Source) Clock(now func() time.Time) { s.now = now }

// Open returns how many connections with a client certificate are open.
func (s *Source) Open() int {
	s.tracking.Lock()
	defer s.tracking.Unlock()
	return len(s.open)
}
