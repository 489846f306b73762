package server

import "sync/atomic"

// pool counts the bytes that all clients hold together, and bounds them. It keeps an eighth of them,
// the reserve, for holders of little.
//
// Invariants:
//   - What is taken never exceeds the limit.
//   - Holders of more than a little never hold more than the limit less half of the reserve. So a
//     holder of little is refused only if the little ones hold half of the reserve by themselves.
type pool struct {
	limit int64
	held  atomic.Int64
}

// little returns how much a holder may hold at most to use the reserve: half of the reserve has room
// for 16 such holders.
func (p *pool) little() int64 { return p.limit / 256 }

// room returns what may be held in all after a holder has taken bytes of which it then holds so many.
func (p *pool) room(holds int64, reply bool) int64 {
	reserve := p.limit / 8
	switch {
	case holds <= p.little():
		return p.limit
	case reply:
		return p.limit - reserve/2
	}
	return p.limit - reserve
}

// take counts bytes of a holder that holds so many with them, if there is room.
func (p *pool) take(bytes, holds int64, reply bool) bool {
	for {
		held := p.held.Load()
		if held+bytes > p.room(holds, reply) {
			return false
		}
		if p.held.CompareAndSwap(held, held+bytes) {
			return true
		}
	}
}

// total returns the bytes that all clients hold.
func (p *pool) total() int64 { return p.held.Load() }
