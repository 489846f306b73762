package server

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/auth"
)

// account counts the bytes that one holder makes the daemon hold, and bounds them. Accounts form a
// tree: those of connections are children of the budget's whole or, for calls with an identity, of
// the identity, which is a child of the whole. What is charged to an account is charged to all
// above it, so that an account holds the sum of its children as soon as no charge is under way.
//
// Each account has a limit, and where a sibling was refused lately, more is only given up to an
// equal share of the parent's limit. Charging takes no lock, except while somebody waits for room.
type account struct {
	budget *budget
	parent *account    // nil for the whole
	share  *auth.Share // of an identity; nil for others
	exempt bool        // has no limit and no share of its own
	name   string      // of an identity, or the peer of a connection
	hangUp func(cause string)

	held       atomic.Int64
	unfinished atomic.Int64           // those bytes of held that are of messages which are not whole
	waits      atomic.Pointer[waiter] // a child that was refused; nil if that is long ago
	closed     atomic.Bool            // the connection has ended; what is charged to it may come and go for a while

	runs sync.Map // of a connection: by the run of a model, the passcheck.Run of the calls for it

	children map[*account]struct{} // guarded by budget.mu
	members  atomic.Int32          // how many children there are
}

// waiter is an account that was refused although it held no more than its share.
type waiter struct {
	account *account
	at      int64 // by the budget's clock
}

// alone returns how much of a limit a single holder may take. The rest is for whoever comes next.
func alone(limit int64) int64 { return limit - limit/4 }

// limit returns the most that the account may hold.
func (a *account) limit() int64 {
	switch {
	case a.exempt:
		return math.MaxInt64
	case a.parent == nil:
		return a.budget.limit
	case a.share != nil:
		if share := a.share.Load(); share > 0 {
			return int64(share * float64(a.budget.limit))
		}
	case a.isAlone():
		return a.parent.limit() // which leaves room for other identities
	}
	return alone(a.parent.limit())
}

// isAlone reports whether the account is that of the only connection of an identity.
func (a *account) isAlone() bool {
	return a.parent != nil && a.parent.share != nil && a.parent.members.Load() == 1
}

// most returns the most that a single request of the account may take.
func (a *account) most() int64 {
	most := a.limit()
	for at := a.parent; at != nil; at = at.parent {
		most = min(most, at.limit())
	}
	return most
}

// reserve charges bytes if there is room for them, and otherwise changes nothing and returns false.
// The caller should then report what refuse returns.
func (a *account) reserve(bytes int64) bool { return a.charge(bytes, true) }

// reserveReply is reserve for a reply. It need not be fair, as the inputs that the reply is about are
// given back with it: whoever holds too much must be able to end them.
func (a *account) reserveReply(bytes int64) bool { return a.charge(bytes, false) }

func (a *account) charge(bytes int64, fairly bool) bool {
	for at := a; at != nil; at = at.parent {
		if !at.take(bytes, fairly) {
			for back := a; back != at; back = back.parent {
				back.held.Add(-bytes)
			}
			a.forget(a.held.Load())
			return false
		}
	}
	return true
}

// take charges bytes to this account alone, if it has room.
func (a *account) take(bytes int64, fairly bool) bool {
	for {
		held := a.held.Load()
		total := held + bytes
		if total > a.limit() || fairly && !a.isFair(total) {
			return false
		}
		if a.held.CompareAndSwap(held, total) {
			a.wake(held)
			return true
		}
	}
}

// isFair reports whether the account may hold a total as far as its siblings are concerned.
func (a *account) isFair(total int64) bool {
	if a.parent == nil || a.exempt {
		return true
	}
	w := a.parent.waits.Load()
	if w == nil || w.account == a {
		return true
	}
	if a.budget.clock()-w.at >= int64(patience) {
		a.parent.waits.CompareAndSwap(w, nil)
		return true
	}
	share, _ := a.equalShare()
	return total <= share
}

// equalShare returns the account's equal share of its parent's limit, and among how many. Only
// those count that hold anything, and the account itself.
func (a *account) equalShare() (share int64, holders int) {
	holders = 1
	a.budget.mu.Lock()
	for sibling := range a.parent.children {
		if sibling != a && sibling.held.Load() > 0 {
			holders++
		}
	}
	a.budget.mu.Unlock()
	return a.parent.limit() / int64(holders), holders
}

// Add charges bytes that are held already, whatever the limits say: an encoded reply exists and has
// to be sent. It gives them back if they are negative. It returns what the account then holds.
func (a *account) Add(bytes int64) (held int64) {
	held = a.held.Add(bytes)
	for at := a.parent; at != nil; at = at.parent {
		at.held.Add(bytes)
	}
	a.wake(held - bytes)
	a.forget(held)
	return held
}

// charged returns the bytes that are charged to the account.
func (a *account) charged() int64 { return a.held.Load() }

// wake has the budget know the account again if it was forgotten and now holds something.
func (a *account) wake(before int64) {
	if before == 0 && a.closed.Load() {
		a.budget.remember(a)
	}
}

// release gives back bytes that were reserved or added.
func (a *account) release(bytes int64) {
	if bytes != 0 {
		a.Add(-bytes)
	}
}

// forget has the budget forget the account if it ended and holds nothing.
func (a *account) forget(held int64) {
	if held == 0 && a.closed.Load() {
		a.budget.forget(a)
	}
}

// close says that the connection has ended. The account stays until nothing is charged to it.
func (a *account) close() {
	a.closed.Store(true)
	a.forget(a.held.Load())
}

// end ends the connection, for a cause that the log gives. It does nothing for an account that is
// not a connection's.
func (a *account) end(cause string) {
	if a.hangUp != nil {
		a.hangUp(cause)
	}
}

// refuse notes that reserve refused the account, and returns the fault that says who holds what.
func (a *account) refuse(field string, bytes int64) error {
	by, why := a.obstacle(bytes)
	a.waitBelow(by, bytes)
	a.budget.refused(a, why)
	limit := by.limit()
	f := &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET, field: field, numbers: true,
		value: fmt.Sprint(by.held.Load() + bytes),
	}
	switch why {
	case refusedShare:
		var holders int
		limit, holders = by.equalShare()
		f.message = fmt.Sprintf("no room for %d bytes: %s, more than an equal share among %d, while others wait for room", bytes, by.holding(), holders)
	case refusedFull:
		f.message = fmt.Sprintf("no room for %d bytes: %s", bytes, by.holding())
		for at := a; at != by && !at.exempt; at = at.parent {
			f.message += "; " + at.holding()
		}
	default:
		f.message = fmt.Sprintf("no room for %d bytes: %s, and may hold %d", bytes, by.holding(), limit)
	}
	f.expected = fmt.Sprintf("at most %d", limit)
	if bytes <= a.most() {
		f.retry = retryBudget
	}
	return f
}

// obstacle returns the account, from a upwards, that has no room for more bytes, and why.
func (a *account) obstacle(bytes int64) (*account, refusedFor) {
	for at := a; at != nil; at = at.parent {
		switch {
		case at.held.Load()+bytes <= at.limit(), at.isAlone():
		case at.parent == nil:
			return at, refusedFull
		case at.share != nil:
			return at, refusedIdentity
		default:
			return at, refusedConnection
		}
	}
	for at := a; at.parent != nil; at = at.parent {
		if !at.isFair(at.held.Load() + bytes) {
			return at, refusedShare
		}
	}
	return a.budget.whole, refusedFull // until just now
}

// waitBelow lets those below an account that can get no more give way to a, on each level where a
// holds no more than its share.
func (a *account) waitBelow(full *account, bytes int64) {
	for at := a; at != full && !at.exempt; at = at.parent {
		if share, _ := at.equalShare(); at.held.Load()+bytes <= share {
			at.parent.waits.Store(&waiter{at, a.budget.clock()})
		}
	}
}

// holding says what the account holds, as refusals put it.
func (a *account) holding() string {
	held := a.held.Load()
	share := 100 * float64(held) / float64(a.budget.limit)
	switch {
	case a.parent == nil:
		return fmt.Sprintf("all clients hold %d bytes of max-open-bytes, %d", held, a.budget.limit)
	case a.share != nil:
		return fmt.Sprintf("identity %q holds %d bytes, %.3g%% of max-open-bytes", a.name, held, share)
	}
	return fmt.Sprintf("this connection holds %d bytes, %.3g%% of max-open-bytes", held, share)
}

// accounts are those of one connection: a single one or, with identities, one for each that calls
// over it. A proxy may carry the calls of many.
type accounts struct {
	budget *budget
	peer   string
	hangUp func(cause string)
	latest atomic.Pointer[account]

	mu     sync.Mutex
	all    map[*auth.Share]*account
	closed bool
}

// of returns the account of an identity's calls over the connection.
func (c *accounts) of(who *auth.Identity) *account {
	share := who.ByteShare()
	if a := c.latest.Load(); a != nil && a.parent.share == share {
		return a
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.all[share]
	if a == nil {
		a = c.budget.open(who, c.peer, c.hangUp)
		if c.all == nil {
			c.all = map[*auth.Share]*account{}
		}
		c.all[share] = a
		if c.closed {
			a.close()
		}
	}
	c.latest.Store(a)
	return a
}

// close says that the connection has ended.
func (c *accounts) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, a := range c.all {
		a.close()
	}
}
