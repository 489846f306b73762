package turns

import (
	"runtime"
	"sync/atomic"
)

const (
	// piece is the work between two turns, in nanoseconds. A turn costs about one microsecond, and
	// some more where another thread waits for the network and goes on with the work.
	piece = 200_000
	// attention is how many pieces in a row end in a turn after another connection was read.
	attention = 25
	// calm is how many pieces end in one turn otherwise.
	calm = 10
)

// Network counts the reads of all connections. The zero value is ready for use.
type Network struct{ reads atomic.Int64 }

// Connection counts the reads of one connection.
type Connection struct {
	network *Network
	shared  bool
	reads   atomic.Int64 // 0 for a shared one
}

// NewConnection returns a connection that was not read yet. One that many clients share, who should
// give each other turns, is to count as read by others.
func (n *Network) NewConnection(shared bool) *Connection {
	return &Connection{network: n, shared: shared}
}

// Read counts a read of the connection.
func (c *Connection) Read() {
	c.network.reads.Add(1)
	if !c.shared {
		c.reads.Add(1)
	}
}

// others returns how often other connections were read.
func (c *Connection) others() int64 {
	if c == nil {
		return 0
	}
	return c.network.reads.Load() - c.reads.Load()
}

// Turn measures the work that is done for a connection. It is for one goroutine at a time. The zero
// value is for work of no connection, which knows of no others.
type Turn struct {
	of     *Connection
	work   int64 // nanoseconds since a piece was over
	seen   int64 // reads of other connections
	wakes  int   // pieces that still end in a turn
	pieces int   // pieces since the last turn
	slot   bool  // it has one
}

// New returns a Turn of work for a connection, which may be nil.
func New(of *Connection) Turn { return Turn{of: of, seen: of.others()} }

// Due adds work, in nanoseconds as far as they can be told without a clock, and reports whether it is
// time for Give.
func (t *Turn) Due(work int64) bool {
	t.work += work
	return t.work >= piece && t.over()
}

// over ends a piece.
func (t *Turn) over() bool {
	t.work = 0
	if now := t.of.others(); now != t.seen {
		t.seen, t.wakes = now, attention
	}
	t.pieces++
	if t.wakes == 0 && t.pieces < calm {
		return false
	}
	t.wakes, t.pieces = max(t.wakes-1, 0), 0
	return true
}

// Give lets others go first: all that is ready by now, and one of those that wait in Give. From the
// first turn on the work has a slot, which End gives back. It must hold no lock that others need for
// more than this work.
func (t *Turn) Give() {
	Yield()
	t.End()
	takeSlot()
	t.slot = true
}

// End ends the work that Give has interrupted. It may be called in any case.
func (t *Turn) End() {
	if t.slot {
		t.slot = false
		slots <- struct{}{}
	}
}

// Work that takes long has slots, one for each processor. Without them, one piece of each such work
// would go before whatever becomes ready next.
var (
	slots = make(chan struct{}, 1<<16) // those that are free; whoever waits longest gets the next
	made  atomic.Int32
)

// takeSlot takes a slot, or waits for one.
func takeSlot() {
	for n := made.Load(); int(n) < runtime.GOMAXPROCS(0); n = made.Load() { // it may rise
		if made.CompareAndSwap(n, n+1) {
			slots <- struct{}{}
		}
	}
	<-slots
}
