package main

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// frame is a message as it is on the wire. Who receives one owns its buffers; sending it gives them away.
type frame struct{ data mem.BufferSlice }

// newFrame is a frame of bytes that must not be written to while they are being sent.
func newFrame(b []byte) *frame { return &frame{mem.BufferSlice{mem.SliceBuffer(b)}} }

// receipt is a message received of which the length matters and, where keep is set, the bytes.
type receipt struct {
	length int
	keep   bool
	bytes  []byte
}

// rawCodec hands buffers through, without copying or decoding.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// Name is that of the codec it stands in for.
func (rawCodec) Name() string { return "proto" }

// Marshal takes a frame.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("%T to send, expected a frame", v)
	}
	return f.data, nil
}

// Unmarshal takes a frame or a receipt.
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
