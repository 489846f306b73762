package record

import (
	"math"
	"testing"
)

// TestWidenAll compares every half with the definition of IEEE 754 binary16, computed in float64,
// which holds all of them exactly.
func TestWidenAll(t *testing.T) {
	for i := range 1 << 16 {
		half := uint16(i)
		sign, exponent, fraction := half>>15, int(half>>10&31), float64(half&1023)
		got := Widen(half)
		if exponent == 31 && fraction != 0 {
			want := uint32(sign)<<31 | 0x7f800000 | uint32(half&1023)<<13
			if !math.IsNaN(float64(got)) || math.Float32bits(got) != want {
				t.Fatalf("Widen(%#04x) = %#08x, want NaN %#08x", half, math.Float32bits(got), want)
			}
			continue
		}
		var want float64
		switch exponent {
		case 31:
			want = math.Inf(1)
		case 0:
			want = math.Ldexp(fraction/1024, -14)
		default:
			want = math.Ldexp(1+fraction/1024, exponent-15)
		}
		if sign == 1 {
			want = -want
			if want == 0 {
				want = math.Copysign(0, -1)
			}
		}
		if math.Float64bits(float64(got)) != math.Float64bits(want) {
			t.Fatalf("Widen(%#04x) = %v, want %v", half, got, want)
		}
	}
}
