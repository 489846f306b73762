package wire

import (
	"errors"
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// Sending learns what happens to a reply in the transport. Its methods must be safe for concurrent
// use, except that Begin comes first.
type Sending interface {
	// Begin is called when the transport gets the reply, with the memory that the reply takes beyond
	// what Outgoing.ChargeTo says of it.
	Begin(bytes int64)
	// Moved is called when a part of the reply is written.
	Moved()
	// Gone reports whether the stream of the reply was cancelled.
	Gone() bool
	// End is called once when the transport has let go of the reply, with all the memory that the reply
	// took. A reply that cannot be encoded, or is empty, ends without Begin.
	End(bytes int64)
}

// unfollowed is the Sending of a reply that nobody follows.
type unfollowed struct{}

func (unfollowed) Begin(int64) {}
func (unfollowed) Moved()      {}
func (unfollowed) Gone() bool  { return false }
func (unfollowed) End(int64)   {}

// Track wraps a reply, an *Outgoing or a message, so that s learns what happens to it. The result
// must be sent at most once.
func Track(reply any, s Sending) any {
	if o, ok := reply.(*Outgoing); ok {
		o.sending = s
		return o
	}
	return &tracked{reply, s}
}

// tracked is a message with the Sending that follows it.
type tracked struct {
	message any
	sending Sending
}

// String hides the contents: gRPC's tracing formats messages at a later time.
func (*tracked) String() string { return "outgoing message" }

// followed is a reply in the hands of the transport. Unlike mem's own buffers it counts its
// references however small it is, and tells its Sending when it moves.
type followed struct {
	mem.SliceBuffer // the contents
	ending          *ending
	memory          *memory // reused when the reply has ended; nil if there is nothing to reuse
	refs            atomic.Int32
	claims          atomic.Int32 // calls of Ref
}

// ending ends a reply once. The transport frees what it has sent, but merely forgets the rest when its
// connection ends or the stream is closed while a reply is handed over, so that the garbage collector
// has to end it. It is therefore an object apart from the memory of the reply.
type ending struct {
	active  atomic.Bool
	sending Sending
	bytes   int64
}

// newEnding returns the ending of an object that holds one reply after the other.
func newEnding[T any](of *T) *ending {
	e := &ending{}
	runtime.AddCleanup(of, (*ending).end, e)
	return e
}

func (e *ending) end() {
	if e.active.Swap(false) {
		e.sending.End(e.bytes)
	}
}

// begin hands a reply over to the transport. Some of its bytes are counted already.
func (f *followed) begin(s Sending, data []byte, counted int64) {
	f.SliceBuffer = data
	f.refs.Store(1)
	f.claims.Store(0)
	f.ending.sending, f.ending.bytes = s, int64(cap(data))
	s.Begin(f.ending.bytes - counted)
	f.ending.active.Store(true)
}

// follow returns a buffer for data, which nothing reuses.
func follow(s Sending, data []byte) *followed {
	f := &followed{}
	f.ending = newEnding(f)
	f.begin(s, data, 0)
	return f
}

// ReadOnlyData implements mem.Buffer. The transport calls it to write the reply.
func (f *followed) ReadOnlyData() []byte {
	f.ending.sending.Moved()
	return f.SliceBuffer
}

func (f *followed) Ref() {
	f.claims.Add(1)
	f.refs.Add(1)
}

// Free implements mem.Buffer. SendMsg frees a reply after the transport has claimed it, before
// the call ends: if the stream is closed by then, the transport may have dropped the reply
// without freeing it. A reply that the transport writes was claimed twice.
func (f *followed) Free() {
	if f.claims.Load() == 1 && f.ending.sending.Gone() {
		f.ending.end()
	}
	switch n := f.refs.Add(-1); {
	case n < 0:
		panic("wire: a reply was freed twice")
	case n == 0:
		f.ending.end()
		if f.memory != nil {
			f.memory.release()
		}
	}
}

// handOver gives the reply to the transport.
func (o *Outgoing) handOver(unsent Sending) (mem.BufferSlice, error) {
	if o.sent {
		return nil, errors.New("the reply was sent before; Begin starts another")
	}
	s, m := o.sending, o.memory
	if s == nil {
		s = unsent
	}
	o.sent, o.sending, o.memory = true, nil, nil
	if m == nil {
		s.End(o.counted)
		return nil, nil
	}
	m.followed.begin(s, m.bytes, o.counted)
	m.slice[0] = &m.followed
	return m.slice[:], nil
}
