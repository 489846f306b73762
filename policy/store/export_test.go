package store

import (
	"time"

	"github.com/ckd-project/ckd/policy"
)

// Pace sets how long Watch waits for quiet, how long it waits at most, and how often it polls.
func (s *Store) Pace(quiet, atMost, poll time.Duration) {
	s.reloader.Quiet, s.reloader.AtMost, s.reloader.Poll = quiet, atMost, poll
}

// Set returns the set in force.
func (s *Store) Set() *policy.Set { return s.current.Load() }
