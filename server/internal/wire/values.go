package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// Values holds the float values of a message in the buffers that they came in. They are read once,
// in order, before Incoming.Free.
type Values struct {
	segments        [][]byte
	segment, offset int // where the next value begins
	left            int // bytes that are left
	floats, bytes   int
}

// Floats returns the number of values in the field values.
func (v *Values) Floats() int { return v.floats }

// Bytes returns the number of bytes in the field values_le; four make a value.
func (v *Values) Bytes() int { return v.bytes }

// Len returns the number of values left. A message with both fields counts those of the field
// values; of bytes that are no multiple of four, the whole values count.
func (v *Values) Len() int { return v.left / 4 }

// Next copies the next len(dst) values. It panics if fewer are left.
func (v *Values) Next(dst []float32) {
	if len(dst) > v.Len() {
		panic(fmt.Sprintf("wire: %d values asked for, %d are left", len(dst), v.Len()))
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*len(dst))
	v.left -= len(raw)
	for at := 0; at < len(raw); {
		segment := v.segments[v.segment][v.offset:]
		n := copy(raw[at:], segment)
		at += n
		v.offset += n
		if n == len(segment) {
			v.segment, v.offset = v.segment+1, 0
		}
	}
	if bigEndian {
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	}
}

// free drops the buffers, and keeps room for as many as a message usually has.
func (v *Values) free() {
	clear(v.segments)
	*v = Values{segments: v.segments[:0]}
	if cap(v.segments) > 64 {
		v.segments = nil
	}
}

// bigEndian reports whether this machine's byte order differs from the wire's.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// valuesOf returns the values of a message that the generated decoder read.
func valuesOf(floats []float32, littleEndian []byte) Values {
	v := Values{floats: len(floats), bytes: len(littleEndian)}
	if len(floats) > 0 {
		littleEndian = make([]byte, 0, 4*len(floats))
		for _, f := range floats {
			littleEndian = binary.LittleEndian.AppendUint32(littleEndian, math.Float32bits(f))
		}
	}
	v.segments, v.left = [][]byte{littleEndian}, len(littleEndian)
	return v
}
