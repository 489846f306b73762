package server

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ckd-project/ckd/internal/auth"
)

// budget bounds the bytes that clients make the daemon hold: open inputs, requests, and replies that
// are not sent. It keeps an eighth of them, the reserve, for holders of little. It knows the
// connections, and ends those that weigh most where memory is short.
//
// Invariants:
//   - What is reserved never exceeds the limit.
//   - Holders of more than a little never reserve more than the limit less half of the reserve. So a
//     holder of little is refused only if the little ones hold half of the reserve by themselves.
type budget struct {
	limit     int64
	held      atomic.Int64
	reserving sync.Mutex // held while bytes are reserved
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
		limit: limit, refused: refused, mostPerCall: mostPerCall,
		identities: map[*auth.Share]*holder{}, lines: map[*line]struct{}{},
	}
	b.shared = &account{holder: &holder{budget: b, exempt: true}}
	return b
}

// total returns the bytes that all clients hold.
func (b *budget) total() int64 { return b.held.Load() }

// little returns how much a holder may hold at most to use the reserve: half of the reserve has room
// for 16 such holders.
func (b *budget) little() int64 { return b.limit / 256 }

// room returns what may be held in all after a holder has taken bytes of which it then holds so many.
func (b *budget) room(holds int64, reply bool) int64 {
	reserve := b.limit / 8
	switch {
	case holds <= b.little():
		return b.limit
	case reply:
		return b.limit - reserve/2
	}
	return b.limit - reserve
}

// accountOf returns the account of a call, or shared for a call of no connection.
func (b *budget) accountOf(ctx context.Context) *account {
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
