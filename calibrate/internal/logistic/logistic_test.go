package logistic

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestFitIsTheMinimum checks that the gradient is 0 at the fitted weights, also of classes that the
// column separates, and of a constant one.
func TestFitIsTheMinimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		r := New(2, 0)
		kind := rapid.SampledFrom([]string{"noise", "separates", "falls", "constant"}).Draw(t, "kind")
		for i := range rapid.IntRange(4, 80).Draw(t, "rows") {
			y := i == 0 || i > 1 && rng.Float64() < 0.3
			x := map[string]float64{"noise": rng.NormFloat64()}[kind]
			if y {
				x = map[string]float64{"noise": x, "separates": 3, "falls": -3}[kind]
			}
			r.X, r.Y = append(r.X, 1, x), append(r.Y, y)
		}
		r.Centre[1] = rapid.SampledFrom([]float64{0, 2}).Draw(t, "centre")
		r.Penalty[1] = rapid.SampledFrom([]float64{0.1, 1, 10}).Draw(t, "penalty")
		b := make([]float64, 2)
		r.Fit(b, 1e-8)
		const tolerance = 1e-4 // of a gradient, against terms of about the number of rows
		if gradient, _ := r.derivatives(b); math.Abs(gradient[0]) > tolerance || math.Abs(gradient[1]) > tolerance {
			t.Errorf("%s: weights %v, gradient %v", kind, b, gradient)
		}
	})
}
