package wire

import (
	"sync/atomic"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Codec is the server's codec, for grpc.ForceServerCodecV2.
type Codec struct {
	// Unsent, if given, counts the bytes of replies that the transport still holds.
	Unsent *atomic.Int64
}

var (
	_        encoding.CodecV2 = Codec{}
	standard                  = encoding.GetCodecV2(proto.Name)
)

// Name implements encoding.CodecV2. To clients it is the standard codec.
func (Codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2. The bytes of an *Outgoing are the
// transport's from here on; they are not copied.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if o, ok := v.(*Outgoing); ok {
		return o.handOver(c.Unsent)
	}
	if t, ok := v.(*tracked); ok {
		slice, err := standard.Marshal(t.message)
		if err != nil {
			t.sending.End()
			return nil, err
		}
		data := slice.Materialize()
		slice.Free()
		return mem.BufferSlice{follow(t.sending, data, nil)}, nil
	}
	slice, err := standard.Marshal(v)
	if err != nil || c.Unsent == nil || slice.Len() < smallest {
		return slice, err
	}
	data := slice.Materialize()
	slice.Free()
	r := &countedReply{}
	r.unsent = newUnsent(r)
	r.unsent.count(c.Unsent, cap(data))
	return mem.BufferSlice{mem.NewBuffer(&data, r)}, nil
}

// countedReply is the pool of a buffer that is counted until the transport frees it.
type countedReply struct{ unsent *unsent }

// Get implements mem.BufferPool; nothing calls it.
func (*countedReply) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements mem.BufferPool.
func (r *countedReply) Put(*[]byte) { r.unsent.end() }

// Unmarshal implements encoding.CodecV2. An *Incoming keeps the buffers as they
// are, for Decode to read.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*Incoming); ok {
		in.keep(data)
		return nil
	}
	return standard.Unmarshal(data, v)
}

// Incoming is a received message in the buffers that it came in. The zero value
// is ready to be received into, again and again; it is not safe for concurrent
// use.
type Incoming struct {
	buffers  mem.BufferSlice
	segments [][]byte // their bytes, none of them empty
	size     int
}

// Free gives the buffers back to the transport. What was decoded from them in
// place, Values above all, is invalid from then on. Freeing twice is harmless.
func (in *Incoming) Free() {
	in.buffers.Free()
	clear(in.buffers)
	clear(in.segments)
	in.buffers, in.segments, in.size = reuse(in.buffers), reuse(in.segments), 0
}

// String says nothing of the contents: gRPC's tracing formats messages at a
// later time.
func (in *Incoming) String() string { return "incoming message" }

// keep takes references of its own, for the caller frees its.
func (in *Incoming) keep(data mem.BufferSlice) {
	data.Ref() // before Free: it may be the message that is held already
	in.Free()
	in.buffers = append(in.buffers, data...)
	for _, b := range in.buffers {
		if s := b.ReadOnlyData(); len(s) > 0 {
			in.segments = append(in.segments, s)
			in.size += len(s)
		}
	}
}

// joined is the message in one piece, which may be the transport's.
func (in *Incoming) joined() []byte {
	if len(in.segments) == 1 {
		return in.segments[0]
	}
	joined := make([]byte, 0, in.size)
	for _, s := range in.segments {
		joined = append(joined, s...)
	}
	return joined
}

// kept is how many elements of memory are kept although the last message had no
// use for more.
const kept = 1 << 14

// reuse empties a slice, and lets go of it where one large message has made it
// larger than the last one needed.
func reuse[S ~[]T, T any](s S) S {
	if cap(s) > kept && len(s) <= kept {
		return nil
	}
	return s[:0]
}
