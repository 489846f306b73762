package store

import (
	"time"

	"github.com/ckd-project/ckd/policy"
)

// Pace sets how often Watch looks at the files.
func (s *Store) Pace(every time.Duration) { s.reloader.Every = every }

// Set returns the set in force.
func (s *Store) Set() *policy.Set { return s.current.Load() }
