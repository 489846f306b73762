package main

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// frame holds a message as it is on the wire. Its receiver owns the buffers; sending it gives them
// away.
type frame struct{ data mem.BufferSlice }

// newFrame returns a frame of bytes, which must not change while it is being sent.
func newFrame(b []byte) *frame { return &frame{mem.BufferSlice{mem.SliceBuffer(b)}} }

// receipt takes the length of a received message and, if keep is set, its bytes.
type receipt struct {
	length int
	keep   bool
	bytes  []byte
}

// rawCodec hands buffers through, without copying or decoding.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// Name returns the name of the codec that this one replaces.
func (rawCodec) Name() string { return "proto" }

// Marshal returns the buffers of a frame.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("%T to send, expected a frame", v)
	}
	return f.data, nil
}

// Unmarshal fills in a frame or a receipt.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *frame:
		data.Ref()
		v.data = data
	case *receipt:
		v.length = data.Len()
		if v.keep {
			v.bytes = data.Materialize()
		}
	default:
		return fmt.Errorf("%T to receive, expected a frame or a receipt", v)
	}
	return nil
}
