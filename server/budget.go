package server

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckd-project/ckd/server/auth"
)

// budget bounds the bytes that clients make the daemon hold: open inputs, requests, and replies that
// are not sent. Each connection has an account of it, and each identity.
type budget struct {
	limit int64
	whole *account
	// shared is charged with what belongs to no connection. It has no limit but the budget's.
	shared *account
	// clock returns the time since some moment, in nanoseconds.
	clock func() int64
	// refused is called with every refusal.
	refused func(of *account, why refusedFor)

	// ended is called with how many connections were ended for their unfinished messages.
	ended func(int)

	unfinished atomic.Int64 // bytes of messages that are not whole, of all connections
	ending     atomic.Bool  // endUnfinished runs

	mu         sync.Mutex
	identities map[*auth.Share]*account // of all names that have called
}

// patience is how long after a refusal others give way to whoever was refused.
const patience = time.Second

// refusedFor says which bound refused bytes.
type refusedFor string

// The bounds.
const (
	refusedFull       refusedFor = "full"       // there is no room at all
	refusedConnection refusedFor = "connection" // the connection holds as much as one may
	refusedIdentity   refusedFor = "identity"   // the identity does
	refusedShare      refusedFor = "share"      // it holds its equal share, and others wait
)

// newBudget returns a budget of which nothing is held.
func newBudget(limit int64, refused func(*account, refusedFor)) *budget {
	begun := time.Now()
	b := &budget{
		limit: limit, refused: refused, identities: map[*auth.Share]*account{},
		clock: func() int64 { return int64(time.Since(begun)) }, ended: func(int) {},
	}
	b.whole = &account{budget: b, children: map[*account]struct{}{}}
	b.shared = &account{budget: b, parent: b.whole, exempt: true}
	return b
}

// total returns the bytes that all clients hold.
func (b *budget) total() int64 { return b.whole.held.Load() }

// of returns the account of a call, or shared for a call of no connection.
func (b *budget) of(ctx context.Context) *account {
	if c := callOf(ctx); c != nil && c.account != nil {
		return c.account
	}
	return b.shared
}

// open returns a new account for the calls of an identity over a connection; a nil identity has
// none of its own above it.
func (b *budget) open(who *auth.Identity, peer string, hangUp func(cause string)) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	parent := b.whole
	if share := who.ByteShare(); share != nil {
		if parent = b.identities[share]; parent == nil {
			// It stays: accounts of ended connections below it may be charged again, and all that an
			// identity holds must stand in one account.
			parent = &account{budget: b, parent: b.whole, share: share, name: who.Name(), children: map[*account]struct{}{}}
			b.identities[share] = parent
			b.whole.adopt(parent)
		}
	}
	a := &account{budget: b, parent: parent, name: peer, hangUp: hangUp}
	parent.adopt(a)
	return a
}

// adopt and disown keep count of the children. The caller holds budget.mu.
func (a *account) adopt(child *account) {
	a.children[child] = struct{}{}
	a.members.Store(int32(len(a.children)))
}

func (a *account) disown(child *account) {
	delete(a.children, child)
	a.members.Store(int32(len(a.children)))
}

// remember makes a connection's account known that was forgotten, if it holds anything.
func (b *budget) remember(a *account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.held.Load() > 0 {
		a.parent.adopt(a)
	}
}

// forget forgets a connection's account if it holds nothing.
func (b *budget) forget(a *account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.held.Load() == 0 {
		a.parent.disown(a)
	}
}

// heaviest returns the accounts of the n connections that hold most, the heaviest first.
func (b *budget) heaviest(n int) []*account {
	type load struct {
		account *account
		held    int64
	}
	var all []load
	b.mu.Lock()
	for a := range b.whole.children {
		if a.share == nil {
			all = append(all, load{a, a.held.Load()})
		}
		for c := range a.children {
			all = append(all, load{c, c.held.Load()})
		}
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(x, y load) int { return cmp.Compare(y.held, x.held) })
	var heaviest []*account
	for _, l := range all[:min(n, len(all))] {
		if l.held > 0 {
			heaviest = append(heaviest, l.account)
		}
	}
	return heaviest
}

// mostEnded is how many connections endHeaviest ends at most.
const mostEnded = 16

// endHeaviest ends the connections that hold most, until so many bytes have gone, and returns how many
// it has ended. It spares those that hold far less than the heaviest, or next to nothing: what is being
// unpacked is in no account, and ending the small ones would not free it.
func (b *budget) endHeaviest(excess int64) (ended int) {
	all := b.heaviest(mostEnded)
	if len(all) == 0 {
		return 0
	}
	least := max(all[0].charged()/8, b.limit/1024/int64(len(all)))
	for _, a := range all {
		holds := a.charged()
		if excess <= 0 || holds < least {
			break
		}
		excess -= holds
		a.end("memory is very short, and it held most of it")
		ended++
	}
	return ended
}

// arrive charges bytes of messages that are not whole, or not answered, to a connection's account,
// or gives them back. There is no room to refuse: they have come already. But all of them together
// may take no more than the budget; then the connections end that have most of them. It is safe in
// the midst of a read.
func (b *budget) arrive(of *account, bytes int64) {
	of.Add(bytes)
	of.unfinished.Add(bytes)
	if b.unfinished.Add(bytes) > b.limit && bytes > 0 && b.ending.CompareAndSwap(false, true) {
		go b.endUnfinished() // ending a connection waits for its reader
	}
}

// endUnfinished ends connections until the messages of the others fit the budget. What calls of an
// ended connection are charged with goes only once gRPC has ended them.
func (b *budget) endUnfinished() {
	defer b.ending.Store(false)
	gone := map[*account]bool{}
	for {
		var most *account
		left := b.unfinished.Load()
		look := func(all map[*account]struct{}) {
			for a := range all {
				switch {
				case a.share != nil: // an identity: its connections are below it
				case gone[a] || a.closed.Load():
					left -= a.unfinished.Load()
				case most == nil || a.unfinished.Load() > most.unfinished.Load():
					most = a
				}
			}
		}
		b.mu.Lock()
		look(b.whole.children)
		for a := range b.whole.children {
			look(a.children)
		}
		b.mu.Unlock()
		if left <= b.limit || most == nil || most.unfinished.Load() == 0 {
			return
		}
		gone[most] = true
		most.end("the messages that are not whole or not answered exceed max-open-bytes, and it has most of them")
		b.ended(1)
	}
}
