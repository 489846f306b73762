package daemon

import (
	"context"
	"time"
)

// shutdown bounds how long the daemon takes to stop.
type shutdown struct {
	grace time.Duration // how long open inputs may go on
	over  time.Time     // end of the grace; zero until begin
}

// begin starts the grace.
func (s *shutdown) begin() { s.over = time.Now().Add(s.grace) }

// within returns a context for one step of stopping. It ends after the step's own time, and
// no later than afterGrace after the end of the grace, so that the whole exit is bounded.
func (s *shutdown) within(own, afterGrace time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(own)
	if limit := s.over.Add(afterGrace); !s.over.IsZero() && limit.Before(end) {
		end = limit
	}
	return context.WithDeadline(context.Background(), end)
}

// closesWithin reports whether c is closed before the limit is over.
func closesWithin(c <-chan struct{}, limit time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(limit):
		return false
	}
}
