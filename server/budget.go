package server

import "sync/atomic"

// budget bounds the bytes that clients make the daemon hold: open inputs, requests, and
// replies that are not sent.
type budget struct {
	limit int64
	held  atomic.Int64
}

// reserve takes bytes from the budget. If they exceed it nothing is taken; total is what
// would be held with them.
func (b *budget) reserve(bytes int64) (total int64, ok bool) {
	for {
		held := b.held.Load()
		if total = held + bytes; total > b.limit {
			return total, false
		}
		if b.held.CompareAndSwap(held, total) {
			return total, true
		}
	}
}

// add counts bytes that are held already, whatever the limit says: an encoded reply exists
// and has to be sent.
func (b *budget) add(bytes int64) { b.held.Add(bytes) }

// release gives back bytes that were reserved or added.
func (b *budget) release(bytes int64) { b.held.Add(-bytes) }
