package wire

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// Sending receives what happens to a reply in the transport. Its methods must be safe for
// concurrent use, except that Begin comes first.
type Sending interface {
	// Begin is called when the transport gets the reply, with the memory that the reply takes.
	Begin(bytes int)
	// Moved is called when a part of the reply is written.
	Moved()
	// Gone reports whether the stream of the reply was cancelled.
	Gone() bool
	// End is called when the transport has let go of the reply, possibly more than once. A
	// reply that cannot be encoded, or is empty, ends without Begin.
	End()
}

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
	sending         Sending
	memory          *memory // reused when the reply has ended; nil if there is nothing to reuse
	refs            atomic.Int32
	claims          atomic.Int32 // calls of Ref
}

// begin hands a reply over to the transport.
func (f *followed) begin(s Sending, data []byte) {
	f.SliceBuffer, f.sending = data, s
	f.refs.Store(1)
	f.claims.Store(0)
	s.Begin(cap(data))
}

// follow returns a buffer for data, which nothing reuses.
func follow(s Sending, data []byte) *followed {
	f := &followed{}
	f.begin(s, data)
	// The transport forgets a reply if its stream is closed while it is handed over.
	runtime.AddCleanup(f, func(s Sending) { s.End() }, s)
	return f
}

// ReadOnlyData implements mem.Buffer. The transport calls it to write the reply.
func (f *followed) ReadOnlyData() []byte {
	f.sending.Moved()
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
	if f.claims.Load() == 1 && f.sending.Gone() {
		f.sending.End()
	}
	switch n := f.refs.Add(-1); {
	case n < 0:
		panic("wire: a reply was freed twice")
	case n == 0 && f.memory == nil:
		f.sending.End()
	case n == 0:
		f.memory.lent.end()
		f.memory.release()
	}
}
