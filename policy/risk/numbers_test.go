package risk

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestNumbers compares log-odds and their inverse with package math.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.OneOf(rapid.Float64Range(0, 1), rapid.Float64Range(0, 1e-5), rapid.SampledFrom([]float64{0, 1, 0.5, clip, 1 - clip})).Draw(t, "p")
		clipped := min(max(p, clip), 1-clip)
		if got, want := LogOdds(p), math.Log(clipped/(1-clipped)); math.Abs(got-want) > 4e-15 { // 14 is the largest
			t.Errorf("log-odds of %v: %v, want %v", p, got, want)
		}
		z := rapid.OneOf(rapid.Float64Range(-40, 40), rapid.Float64Range(-1000, 1000), rapid.Float64()).Draw(t, "z")
		want := 1 / (1 + math.Exp(-z))
		if got := Logistic(z); math.Abs(got-want) > 2e-15*want || got < 0 || got > 1 {
			t.Errorf("probability of log-odds %v: %v, want %v", z, got, want)
		}
	})
	for z, want := range map[float64]float64{0: 0.5, math.Inf(1): 1, math.Inf(-1): 0} {
		if got := Logistic(z); got != want {
			t.Errorf("probability of log-odds %v: %v, want %v", z, got, want)
		}
	}
	if !math.IsNaN(Logistic(math.NaN())) || !math.IsNaN(LogOdds(math.NaN())) {
		t.Error("NaN is lost")
	}
}
