package triage

import (
	"time"

	"github.com/ckd-project/ckd/internal/clock"
)

const (
	stepTime    = 15 * time.Second // step of the history; interval of samples while nobody asks
	watchedTime = 2 * time.Second  // between samples while pages ask for the state

	// restFactor is the pause after a sample in units of the sample's duration, so that pages cost
	// at most 2% of a processor. A sample at the end of a step is taken at any cost, which is
	// more if it takes longer than 0.3 s.
	restFactor = 50
)

// schedule says when to take samples. It has no lock of its own.
type schedule struct {
	begun  time.Time     // when the last sample began, even if it failed
	took   time.Duration // by the last sample
	stepAt time.Time     // beginning of the current step
}

// rest returns the least pause after a sample, which is costly where there are many models.
func (s *schedule) rest() time.Duration {
	return clock.Every(min(stepTime, max(watchedTime, restFactor*s.took)))
}

// fresh reports whether the last sample is too new to take another one.
func (s *schedule) fresh(now time.Time) bool { return now.Sub(s.begun) < s.rest() }

// pause returns the time until the end of the step, or until the next attempt after a sample there
// that failed.
func (s *schedule) pause(now time.Time) time.Duration {
	next := s.stepAt.Add(stepTime)
	if !next.After(s.begun) {
		next = s.begun.Add(s.rest())
	}
	return max(0, next.Sub(now))
}

// endStep reports whether a sample at this time ends the current step, or is the first, and begins
// the next step.
func (s *schedule) endStep(taken time.Time) bool {
	if !s.stepAt.IsZero() && taken.Sub(s.stepAt) < stepTime {
		return false
	}
	s.stepAt = taken
	return true
}
