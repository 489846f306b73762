package record

import "math"

// Widen returns the float32 equal to an IEEE 754 binary16 value. The conversion is exact, and NaN
// keeps its sign and payload.
func Widen(half uint16) float32 {
	sign := uint32(half>>15) << 31
	exponent := uint32(half>>10) & 0x1f
	fraction := uint32(half) & 0x3ff
	switch exponent {
	case 0: // zero or subnormal: a multiple of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	default: // the biases differ by 127-15
		return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
	}
}
