package follow

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestLogarithm checks that logarithm agrees with math.Log to 6e-3 and never falls.
func TestLogarithm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := math.Exp2(rapid.Float64Range(-1020, 1022).Draw(t, "exponent"))
		if got, want := logarithm(v), math.Log(v); math.Abs(got-want) > 6e-3 {
			t.Fatalf("of %v: %v, expected %v", v, got, want)
		}
		if next := v * (1 + rapid.Float64Range(1e-9, 1e-3).Draw(t, "step")); logarithm(next) < logarithm(v) {
			t.Fatalf("of %v less than of %v", next, v)
		}
	})
	for _, v := range []float64{1, math.Sqrt2, math.Nextafter(math.Sqrt2, 2), math.Sqrt2 / 2, math.Nextafter(1, 0), 1e-300} {
		if got, want := logarithm(v), math.Log(v); math.Abs(got-want) > 6e-3 {
			t.Errorf("of %v: %v, expected %v", v, got, want)
		}
	}
	for _, v := range []float64{-1, 0, 1e-310, math.Inf(1), math.Inf(-1), math.NaN(), -math.NaN()} {
		if got := logarithm(v); !math.IsNaN(got) {
			t.Errorf("of %v: %v, expected none", v, got)
		}
	}
}
