package server

import (
	"context"
	"sync"

	"github.com/ckd-project/ckd/internal/auth"
)

// budget bounds the bytes that clients make the daemon hold: open inputs, requests, and replies that
// are not sent. It knows the connections, and ends those that weigh most where memory is short.
type budget struct {
	pool
	// shared is charged with what belongs to no connection. It has no limit but the pool's.
	shared *account
	// refused is called with every refusal.
	refused func(why refusedFor)
	// mostPerCall returns the bytes that a call may hold of messages which are not whole or not read.
	mostPerCall func() int64

	mu         sync.Mutex
	identities map[*auth.Share]*holder // of all names that have called
	lines      map[*line]struct{}      // open ones
}

// refusedFor says which bound refused bytes.
type refusedFor string

// The bounds.
const (
	refusedFull       refusedFor = "full"       // there is no room at all
	refusedConnection refusedFor = "connection" // the connection holds as much as one may
	refusedIdentity   refusedFor = "identity"   // the identity does
)

// newBudget returns a budget of which nothing is held.
func newBudget(limit int64, refused func(refusedFor), mostPerCall func() int64) *budget {
	b := &budget{
		pool: pool{limit: limit}, refused: refused, mostPerCall: mostPerCall,
		identities: map[*auth.Share]*holder{}, lines: map[*line]struct{}{},
	}
	b.shared = &account{holder: &holder{budget: b, exempt: true}}
	return b
}

// of returns the account of a call, or shared for a call of no connection.
func (b *budget) of(ctx context.Context) *account {
	if c := callOf(ctx); c != nil && c.account != nil {
		return c.account
	}
	return b.shared
}

// holder returns who answers for the calls of an identity over a new connection.
func (b *budget) holder(who *auth.Identity) *holder {
	share := who.ByteShare()
	if share == nil {
		return &holder{budget: b}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.identities[share]
	if h == nil { // it stays: all that an identity holds must stand in one place
		h = &holder{budget: b, share: share, name: who.Name()}
		b.identities[share] = h
	}
	return h
}
