package server

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ckd-project/ckd/internal/auth"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// holder answers for bytes of the budget: an identity, over all its connections, or a connection
// without one.
type holder struct {
	budget *budget
	share  *auth.Share // of an identity; nil for others
	name   string      // of an identity
	exempt bool        // has no limit of its own
	held   atomic.Int64
}

// account counts the bytes that the calls of one holder over one connection make the daemon hold.
// What is charged to an account is charged to its holder and to the budget.
type account struct {
	*holder
	line *line // nil for calls of no connection
	own  atomic.Int64
	runs sync.Map // by the run of a model, the passcheck.Run of the calls for it
}

// alone returns how much of the budget a single holder may take. The rest is for whoever comes next.
func alone(limit int64) int64 { return limit - limit/4 }

// limit returns the most that the holder may hold.
func (h *holder) limit() int64 {
	if h.exempt {
		return math.MaxInt64
	}
	if h.share != nil {
		if share := h.share.Load(); share > 0 {
			return int64(share * float64(h.budget.limit))
		}
	}
	return alone(h.budget.limit)
}

// holdsLittle reports whether the holder may use the reserve of the budget.
func (h *holder) holdsLittle() bool { return h.held.Load() <= h.budget.little() }

// reserve charges bytes if there is room for them, and otherwise changes nothing and returns false.
func (a *account) reserve(bytes int64) bool { return a.charge(bytes, false) }

// reserveReply is reserve for a reply. It may use half of the reserve, as the inputs that the reply is
// about are given back with it: whoever holds much must be able to end them.
func (a *account) reserveReply(bytes int64) bool { return a.charge(bytes, true) }

// claim is reserve with the fault that says who holds what. The field is what the bytes are for.
func (a *account) claim(field string, bytes int64) error {
	if a.reserve(bytes) {
		return nil
	}
	return a.refuse(field, bytes)
}

func (a *account) charge(bytes int64, reply bool) bool {
	b := a.budget
	b.reserving.Lock()
	defer b.reserving.Unlock()
	holds := a.holder.held.Load() + bytes
	if holds > a.limit() || b.total()+bytes > b.room(holds, reply) {
		return false
	}
	a.Add(bytes)
	return true
}

// Add charges bytes that are held already, whatever the limits say: an encoded reply exists and has
// to be sent.
func (a *account) Add(bytes int64) {
	a.holder.held.Add(bytes)
	a.budget.held.Add(bytes)
	a.own.Add(bytes)
}

// release gives back bytes that were reserved or added.
func (a *account) release(bytes int64) {
	if bytes != 0 {
		a.Add(-bytes)
	}
}

// The account of a stream implements wire.Sending for the stream's replies.

func (a *account) Begin(bytes int64) { a.Add(bytes) }
func (a *account) Moved()            {}
func (a *account) Gone() bool        { return false }
func (a *account) End(bytes int64)   { a.Add(-bytes) }

// refuse notes that reserve refused the account, and returns the fault that says who holds what.
func (a *account) refuse(field string, bytes int64) error {
	h := a.holder
	why, held, limit := refusedFull, h.budget.total(), h.budget.room(h.held.Load()+bytes, false)
	var by string
	switch {
	case h.held.Load()+bytes <= h.limit():
		by = fmt.Sprintf("all clients hold %d bytes of max-open-bytes, %d", held, h.budget.limit)
		by += "; " + holding("this connection", a.own.Load(), h.budget.limit)
		if h.share != nil {
			by += "; " + h.holding()
		}
	case h.share != nil:
		why = refusedIdentity
	default:
		why = refusedConnection
	}
	if why != refusedFull {
		held, limit = h.held.Load(), h.limit()
		by = fmt.Sprintf("%s, and may hold %d", h.holding(), limit)
	}
	h.budget.refused(why)
	f := &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET, field: field, numbers: true,
		value: fmt.Sprint(held + bytes), message: fmt.Sprintf("no room for %d bytes: %s", bytes, by),
		expected: fmt.Sprintf("at most %d", limit),
	}
	if bytes <= min(h.limit(), h.budget.room(bytes, false)) {
		f.retry = retryBudget
	}
	return f
}

// holding says what the holder holds, as refusals put it.
func (h *holder) holding() string {
	who := "this connection"
	if h.share != nil {
		who = fmt.Sprintf("identity %q", h.name)
	}
	return holding(who, h.held.Load(), h.budget.limit)
}

func holding(who string, held, limit int64) string {
	return fmt.Sprintf("%s holds %d bytes, %.3g%% of max-open-bytes", who, held, 100*float64(held)/float64(limit))
}
