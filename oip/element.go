package oip

import (
	"encoding/binary"
	"math"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/record"
)

// element describes a type that values of passes may have. Reading never rounds a value.
type element struct {
	size int // bytes of a raw element
	// rounding bounds the relative error of a value that a client truncated to this type, and so of
	// any sum of such values. 0 means that the policy's tolerance is enough. Rounding to nearest
	// needs half of it. The policy's tolerance also covers what FP16 loses below 2^-14, at most
	// 2^-24 for each class.
	rounding float64
	double   bool   // whether it is read as float64, not as float32
	contents string // the field of typed values; empty if they must be raw
	read     func(to *decomp.Tensor, raw []byte)
}

// elements holds the types by their names in the protocol.
var elements = map[string]element{
	"FP32": {4, 0, false, "fp32_contents", func(to *decomp.Tensor, raw []byte) {
		to.Float32 = make([]float32, len(raw)/4)
		_, _ = binary.Decode(raw, binary.LittleEndian, to.Float32) // never fails: raw has as many
	}},
	"FP64": {8, 0, true, "fp64_contents", func(to *decomp.Tensor, raw []byte) {
		to.Float64 = make([]float64, len(raw)/8)
		_, _ = binary.Decode(raw, binary.LittleEndian, to.Float64) // never fails: raw has as many
	}},
	"FP16": {2, 0x1p-10, false, "", readHalves(record.Widen)},
	"BF16": {2, 0x1p-7, false, "", readHalves(func(half uint16) float32 { return math.Float32frombits(uint32(half) << 16) })},
}

// readHalves returns a function that reads elements of two bytes.
func readHalves(widen func(uint16) float32) func(*decomp.Tensor, []byte) {
	return func(to *decomp.Tensor, raw []byte) {
		to.Float32 = make([]float32, len(raw)/2)
		for i := range to.Float32 {
			to.Float32[i] = widen(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	}
}
