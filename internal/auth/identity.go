package auth

import (
	"context"
	"math"
	"sync/atomic"
)

// Identity is a caller with its rights and limits. A nil Identity means that there is no access
// control: its methods allow everything.
type Identity struct {
	name            string
	models          map[string]bool
	allModels       bool
	admin, recent   bool
	outcomes, clear bool
	issue           bool
	streams, calls  int
	watches         int     // limit of health watches; -1 for the limit of streams
	bytes           float64 // share of the budget of bytes; 0 for no limit of its own
	*use
}

// use counts the streams, calls and watches in flight. It survives a reload of the access file.
type use struct {
	streams, calls, watches atomic.Int64
	share                   Share
}

// nobody is the caller without credentials. It may call the methods that are open to all, and no others.
var nobody = &Identity{use: new(use)}

// FromContext returns who makes a call: nil without access control, and an identity without a name
// or rights for a call that needs none. Ask again during a stream, since the access file may
// change.
func FromContext(ctx context.Context) *Identity {
	return sessionOf(ctx).identity.Load()
}

// Name returns the identity's name, or "" for a caller without credentials.
func (i *Identity) Name() string {
	if i == nil {
		return ""
	}
	return i.name
}

// MayUse reports whether the identity may use a model. See also Allow.
func (i *Identity) MayUse(model string) bool { return i == nil || i.allModels || i.models[model] }

// mayAdmin reports whether the identity may see the pages of the admin address that are open to all
// where there is no access control.
func (i *Identity) mayAdmin() bool { return i == nil || i.admin }

// MaySeeRecent reports whether the identity may see single inputs, with the ids that clients gave
// them.
func (i *Identity) MaySeeRecent() bool { return i == nil || i.recent }

// MayReportOutcomes reports whether the identity may report outcomes of its models, and read what
// follows from them.
func (i *Identity) MayReportOutcomes() bool { return i == nil || i.outcomes }

// MayClear reports whether the identity may clear alarms of its models, and of all models delete and import outcomes.
func (i *Identity) MayClear() bool { return i == nil || i.clear }

// MayIssue reports whether the identity may tell the ledger the policies of its models and the
// decisions under them.
func (i *Identity) MayIssue() bool { return i == nil || i.issue }

// Streams returns the identity's quota of streams.
func (i *Identity) Streams() Quota {
	if i == nil {
		return Quota{}
	}
	return Quota{i.streams, &i.use.streams}
}

// Calls returns the identity's quota of unary calls.
func (i *Identity) Calls() Quota {
	if i == nil {
		return Quota{}
	}
	return Quota{i.calls, &i.use.calls}
}

// Watches returns the identity's quota of health watches.
func (i *Identity) Watches() Quota {
	if i == nil {
		return Quota{}
	}
	limit := i.watches
	if limit < 0 {
		limit = i.streams
	}
	return Quota{limit, &i.use.watches}
}

// ByteShare returns the identity's share of the budget of bytes, which is the same through all reloads
// of the access file for as long as the identity exists. It returns nil without access control.
func (i *Identity) ByteShare() *Share {
	if i == nil {
		return nil
	}
	return &i.use.share
}

// Share is a share of a budget, from 0 to 1. It changes when the access file does.
type Share struct{ bits atomic.Uint64 }

// Load returns the share; 0 means that the identity has no limit of its own.
func (s *Share) Load() float64 { return math.Float64frombits(s.bits.Load()) }

func (s *Share) set(share float64) { s.bits.Store(math.Float64bits(share)) }

// Quota bounds how much of one kind an identity has in flight. The zero Quota has no limit.
type Quota struct {
	limit int
	inUse *atomic.Int64
}

// Limit returns the number of places; 0 means no limit of the identity's own.
func (q Quota) Limit() int64 { return int64(q.limit) }

// Acquire takes a place and returns true, or returns false if all places are taken. Release must
// follow success.
func (q Quota) Acquire() bool {
	if q.inUse != nil && q.inUse.Add(1) > int64(q.limit) && q.limit > 0 {
		q.inUse.Add(-1)
		return false
	}
	return true
}

// Release gives a place back.
func (q Quota) Release() {
	if q.inUse != nil {
		q.inUse.Add(-1)
	}
}

// MayUseAll reports whether the identity may use all models.
func (i *Identity) MayUseAll() bool { return i == nil || i.allModels }

// UsesModels reports whether the identity may use any model.
func (i *Identity) UsesModels() bool { return i == nil || i.allModels || len(i.models) > 0 }
