package wire

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// Sending follows a reply through the transport. Its methods may be called at the same
// time, but for Begin.
type Sending interface {
	// Begin is called when the transport gets the reply, with the memory that it takes.
	Begin(bytes int)
	// Moved is called when a part of the reply is written.
	Moved()
	// Gone reports whether the stream of the reply was cancelled.
	Gone() bool
	// End is called when the transport has let go of the reply, and may be called again.
	// It is called without Begin for a reply that cannot be encoded, or is empty.
	End()
}

// Track has a Sending follow a reply, for which the result is to be sent: once at the
// most. The reply is an *Outgoing or a message.
func Track(reply any, s Sending) any {
	if o, ok := reply.(*Outgoing); ok {
		o.sending = s
		return o
	}
	return &tracked{reply, s}
}

// tracked is a message that is followed.
type tracked struct {
	message any
	sending Sending
}

// String says nothing of the contents: gRPC's tracing formats messages at a later time.
func (*tracked) String() string { return "outgoing message" }

// followed is a reply as the transport holds it. In contrast to mem's own buffers it
// counts however small it is, and tells when it moves.
type followed struct {
	mem.SliceBuffer // the contents
	sending         Sending
	memory          *memory // to be used again; nil: it is not
	refs            atomic.Int32
	claims          atomic.Int32 // calls of Ref
}

func follow(s Sending, data []byte, m *memory) *followed {
	f := &followed{SliceBuffer: data, sending: s, memory: m}
	f.refs.Store(1)
	s.Begin(cap(data))
	// The transport forgets a reply if its stream is closed while it is handed over.
	runtime.AddCleanup(f, func(s Sending) { s.End() }, s)
	return f
}

// ReadOnlyData implements mem.Buffer. The transport asks for it when it writes.
func (f *followed) ReadOnlyData() []byte {
	f.sending.Moved()
	return f.SliceBuffer
}

// Ref implements mem.Buffer.
func (f *followed) Ref() {
	f.claims.Add(1)
	f.refs.Add(1)
}

// Free implements mem.Buffer. SendMsg, which calls it after the transport has claimed
// the reply, does so before the call ends: if its stream is closed by then, the
// transport may have dropped the reply without freeing it. Once the transport writes
// the reply it has claimed it twice.
func (f *followed) Free() {
	if f.claims.Load() == 1 && f.sending.Gone() {
		f.sending.End()
	}
	switch n := f.refs.Add(-1); {
	case n < 0:
		panic("wire: a reply was freed twice")
	case n == 0:
		f.sending.End()
		if f.memory != nil {
			f.memory.release()
		}
	}
}
