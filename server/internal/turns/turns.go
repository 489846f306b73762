package turns

import (
	"runtime"
	"sync/atomic"
)

const (
	// Piece is the work between two turns, in nanoseconds. A turn costs about one microsecond, and
	// some more where another thread waits for the network and goes on with the work.
	Piece = 200_000
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
}

// New returns a Turn of work for a connection, which may be nil.
func New(of *Connection) Turn { return Turn{of: of, seen: of.others()} }

// Due adds work, in nanoseconds as far as they can be told without a clock, and reports whether it is
// time for Yield.
func (t *Turn) Due(work int64) bool {
	t.work += work
	return t.work >= Piece && t.over()
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

// Yield lets other goroutines go first: those that are ready to run, and on Linux those that have
// something to read or write by now. If many yield they stand in line, so that whoever becomes ready
// waits for a piece on each processor, however many there are.
func Yield() {
	for n := places.Load(); int(n) < min(runtime.GOMAXPROCS(0), cap(line)); n = places.Load() { // it may rise
		if places.CompareAndSwap(n, n+1) {
			line <- nil
		}
	}
	w := lookAround(<-line)
	runtime.Gosched()
	line <- w // whoever has waited for longest comes next
}

// line has a place for each processor, up to a number that bounds the file descriptors, with what its holder
// waits with; nil at first.
var (
	line   = make(chan *wait, 16)
	places atomic.Int32
)
