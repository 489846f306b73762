package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/ckd-project/ckd/server/internal/unpack"
)

// Codec implements encoding.CodecV2 for the server: see grpc.ForceServerCodecV2.
type Codec struct {
	// Unsent follows the replies that nothing else follows. May be nil.
	Unsent Sending
	// Largest returns the bytes of the largest message that is taken. Nil takes all.
	Largest func() int
}

var (
	_        encoding.CodecV2 = Codec{}
	standard                  = encoding.GetCodecV2(proto.Name)
)

// Name implements encoding.CodecV2. It returns the name of the standard codec, which this one
// replaces without clients noticing.
func (Codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2. It gives the bytes of an *Outgoing to the transport without
// copying them.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	s := c.Unsent
	if s == nil {
		s = unfollowed{}
	}
	if o, ok := v.(*Outgoing); ok {
		return o.handOver(s)
	}
	if t, ok := v.(*tracked); ok {
		v, s = t.message, t.sending
	}
	slice, err := standard.Marshal(v)
	if err != nil {
		s.End(0)
		return nil, err
	}
	data := slice.Materialize()
	slice.Free()
	return mem.BufferSlice{follow(s, data)}, nil
}

// Unmarshal implements encoding.CodecV2. An *Incoming keeps the buffers as they are, for Decode to
// read.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, kept := v.(*Incoming)
	if kept {
		in.over = nil
	}
	if c.Largest != nil {
		if size, most := data.Len(), c.Largest(); size > most {
			err := fmt.Errorf("a message of at least %d bytes, over max-message-bytes, %d: send fewer inputs at once", size, most)
			if !kept {
				return err
			}
			in.Free()
			in.over = err // gRPC would make it INTERNAL
			return nil
		}
	}
	if kept {
		in.keep(data)
		return nil
	}
	return standard.Unmarshal(data, v)
}

// Incoming is a received message in the buffers that it came in. The zero value is ready for use,
// and may be received into again and again. It is not safe for concurrent use.
type Incoming struct {
	buffers  mem.BufferSlice
	segments [][]byte // their bytes, none of them empty
	size     int
	cut      bool
	over     error
}

// Cut reports whether the message was not unpacked to its end, because there was no room.
func (in *Incoming) Cut() bool { return in.cut }

// Oversize returns what is wrong with a message that is too large, which is not kept, and nil otherwise.
func (in *Incoming) Oversize() error { return in.over }

// Free gives the buffers back to the transport. What was decoded in place, Values above all,
// becomes invalid. Freeing twice is harmless.
func (in *Incoming) Free() {
	in.buffers.Free()
	clear(in.buffers)
	clear(in.segments)
	in.buffers, in.segments, in.size = reuse(in.buffers), reuse(in.segments), 0
}

// Size returns the bytes of the message.
func (in *Incoming) Size() int { return in.size }

// String hides the contents: gRPC's tracing formats messages at a later time.
func (in *Incoming) String() string { return "incoming message" }

// keep holds on to the buffers of a message. It takes references of its own, because the caller
// frees its references.
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
	in.cut = unpack.Cut(in.segments)
}

// joined returns the message in one piece, which may be a buffer of the transport.
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

// kept bounds how many elements stay allocated for the next message.
const kept = 1 << 14

// reuse empties a slice for the next message. It drops a slice that one large message has made
// larger than the last message needed.
func reuse[S ~[]T, T any](s S) S {
	if cap(s) > kept && len(s) <= kept {
		return nil
	}
	return s[:0]
}
