package auth

import (
	"context"
	"time"
)

// Pace sets how often Watch looks at the files.
func (s *Store) Pace(every time.Duration) { s.reloader.Every = every }

// Sessions returns how many calls that may last are in flight.
func (s *Store) Sessions() int {
	s.tracking.Lock()
	defer s.tracking.Unlock()
	return len(s.open)
}

// FetchKeys fetches the keys of all issuers once, and returns when they are in force.
func (s *Store) FetchKeys(ctx context.Context) {
	for _, i := range s.current.Load().issuers {
		_ = i.Fetch(ctx)
	}
	s.recheck()
}

// Remembered returns how many verified tokens are remembered.
func (s *Store) Remembered() int { return len(s.jwts.tokens) }
