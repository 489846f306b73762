package contents

import (
	"encoding/binary"
	"math"

	pb "github.com/ckd-project/ckd/proto/inference"
)

// integers maps the datatypes of integers to the bytes of an element.
var integers = map[string]int{
	"INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8,
}

// Count returns the number of values in all fields.
func Count(c *pb.InferTensorContents) int {
	return len(c.GetBoolContents()) + len(c.GetIntContents()) + len(c.GetInt64Contents()) + len(c.GetUintContents()) +
		len(c.GetUint64Contents()) + len(c.GetFp32Contents()) + len(c.GetFp64Contents()) + len(c.GetBytesContents())
}

// Raw returns typed elements as bytes. Each element of BYTES has its length before it. Raw reports
// false if the datatype has no typed form, or if values are in the field of another datatype.
func Raw(c *pb.InferTensorContents, datatype string) (raw []byte, ok bool) {
	n := 0
	switch datatype {
	case "BOOL":
		n = len(c.GetBoolContents())
		for _, v := range c.GetBoolContents() {
			raw = append(raw, 0)
			if v {
				raw[len(raw)-1] = 1
			}
		}
	case "INT8", "INT16", "INT32":
		n = len(c.GetIntContents())
		for _, v := range c.GetIntContents() {
			raw = AppendInteger(raw, integers[datatype], uint64(v))
		}
	case "INT64":
		n = len(c.GetInt64Contents())
		for _, v := range c.GetInt64Contents() {
			raw = AppendInteger(raw, 8, uint64(v))
		}
	case "UINT8", "UINT16", "UINT32":
		n = len(c.GetUintContents())
		for _, v := range c.GetUintContents() {
			raw = AppendInteger(raw, integers[datatype], uint64(v))
		}
	case "UINT64":
		n = len(c.GetUint64Contents())
		for _, v := range c.GetUint64Contents() {
			raw = AppendInteger(raw, 8, v)
		}
	case "FP32":
		n = len(c.GetFp32Contents())
		for _, v := range c.GetFp32Contents() {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
	case "FP64":
		n = len(c.GetFp64Contents())
		for _, v := range c.GetFp64Contents() {
			raw = AppendInteger(raw, 8, math.Float64bits(v))
		}
	case "BYTES":
		n = len(c.GetBytesContents())
		for _, v := range c.GetBytesContents() {
			raw = append(binary.LittleEndian.AppendUint32(raw, uint32(len(v))), v...)
		}
	}
	return raw, n == Count(c)
}

// AppendInteger appends the lowest bytes of a number.
func AppendInteger(to []byte, size int, v uint64) []byte {
	var all [8]byte
	binary.LittleEndian.PutUint64(all[:], v)
	return append(to, all[:size]...)
}

// Integer returns the number whose lowest bytes are raw, at most eight.
func Integer(raw []byte) uint64 {
	var all [8]byte
	copy(all[:], raw)
	return binary.LittleEndian.Uint64(all[:])
}

// Typed returns bytes as typed elements. It reports false if the datatype has no typed form, or if
// the last element breaks off.
func Typed(raw []byte, datatype string) (c *pb.InferTensorContents, ok bool) {
	c = &pb.InferTensorContents{}
	switch datatype {
	case "BOOL":
		for _, v := range raw {
			c.BoolContents = append(c.BoolContents, v != 0)
		}
		return c, true
	case "INT8", "INT16", "INT32":
		raw = eachInteger(raw, integers[datatype], func(v uint64, unused int) {
			c.IntContents = append(c.IntContents, int32(int64(v<<unused)>>unused))
		})
	case "INT64":
		raw = eachInteger(raw, 8, func(v uint64, _ int) { c.Int64Contents = append(c.Int64Contents, int64(v)) })
	case "UINT8", "UINT16", "UINT32":
		raw = eachInteger(raw, integers[datatype], func(v uint64, _ int) { c.UintContents = append(c.UintContents, uint32(v)) })
	case "UINT64":
		raw = eachInteger(raw, 8, func(v uint64, _ int) { c.Uint64Contents = append(c.Uint64Contents, v) })
	case "FP32":
		raw = eachInteger(raw, 4, func(v uint64, _ int) {
			c.Fp32Contents = append(c.Fp32Contents, math.Float32frombits(uint32(v)))
		})
	case "FP64":
		raw = eachInteger(raw, 8, func(v uint64, _ int) { c.Fp64Contents = append(c.Fp64Contents, math.Float64frombits(v)) })
	case "BYTES":
		for len(raw) >= 4 && uint64(binary.LittleEndian.Uint32(raw)) <= uint64(len(raw)-4) {
			n := 4 + int(binary.LittleEndian.Uint32(raw))
			c.BytesContents = append(c.BytesContents, raw[4:n])
			raw = raw[n:]
		}
	}
	return c, len(raw) == 0
}

// eachInteger calls each with every number of size bytes in raw, and with how many of its 64 bits
// are unused. It returns the bytes that are left over.
func eachInteger(raw []byte, size int, each func(v uint64, unused int)) []byte {
	for ; len(raw) >= size; raw = raw[size:] {
		each(Integer(raw[:size]), 64-8*size)
	}
	return raw
}
