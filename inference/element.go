package inference

import (
	"encoding/binary"
	"math"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/record"
)

// element is a type of the values of passes. All are read without rounding.
type element struct {
	size int // bytes of a raw one
	// rounding bounds the relative error of a value that a client cut off to this type,
	// and so of the sum of any number of them; 0 where the policy's tolerance is enough.
	// Rounding to nearest costs half of it. What FP16 loses below 2^-14, at most 2^-24
	// for each class, is left to the policy's tolerance.
	rounding float64
	double   bool   // it is read as float64, or else as float32
	contents string // the field for it; empty: raw only
	read     func(to *decomp.Tensor, raw []byte)
}

// elements are the types, by the names of the protocol.
var elements = map[string]element{
	"FP32": {4, 0, false, "fp32_contents", func(to *decomp.Tensor, raw []byte) {
		to.Float32 = make([]float32, len(raw)/4)
		for i := range to.Float32 {
			to.Float32[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	}},
	"FP64": {8, 0, true, "fp64_contents", func(to *decomp.Tensor, raw []byte) {
		to.Float64 = make([]float64, len(raw)/8)
		for i := range to.Float64 {
			to.Float64[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	}},
	"FP16": {2, 0x1p-10, false, "", func(to *decomp.Tensor, raw []byte) {
		to.Float32 = make([]float32, len(raw)/2)
		for i := range to.Float32 {
			to.Float32[i] = record.Widen(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	}},
	"BF16": {2, 0x1p-7, false, "", func(to *decomp.Tensor, raw []byte) {
		to.Float32 = make([]float32, len(raw)/2)
		for i := range to.Float32 {
			to.Float32[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
		}
	}},
}
