package decomp

import (
	"math"
	"testing"
)

// TestDigammaExcess compares psi(x+1) - log x with values of 17 digits: psi(1) = -gamma, psi(3/2) =
// 2 - gamma - 2 log 2, psi(n+1) = H_n - gamma, and Abramowitz & Stegun 6.3.18 for large x.
func TestDigammaExcess(t *testing.T) {
	const gamma = 0.57721566490153286061
	harmonic := func(n int) float64 {
		h := 0.0
		for i := n; i > 0; i-- {
			h += 1 / float64(i)
		}
		return h
	}
	for _, c := range []struct{ x, want, tolerance float64 }{
		{1, 1 - gamma, 1e-15},
		{0.5, 2 - gamma - math.Ln2, 1e-15},
		{2, 1.5 - gamma - math.Ln2, 1e-15},
		{15, harmonic(15) - gamma - math.Log(15), 2e-14},
		{16, harmonic(16) - gamma - math.Log(16), 2e-14},
		{1000, 1/2000. - 1/12e6 + 1/120e12, 1e-15},
		{1e9, 0.5e-9, 1e-9},
		{1e-12, -gamma - math.Log(1e-12), 1e-12},
		{1e-300, -gamma - math.Log(1e-300), 1e-15},
	} {
		if got := digammaExcess(c.x); !(math.Abs(got-c.want) <= c.tolerance*math.Abs(c.want)) {
			t.Errorf("psi(%v+1) - log %v: got %.17g, want %.17g", c.x, c.x, got, c.want)
		}
	}
}
