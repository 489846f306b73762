package eval

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestSameRanking expects keys that rise together to be one ranking, also where rounding exchanges
// neighbours, and any others not to be.
func TestSameRanking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(5, 60).Draw(t, "n")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		a, b := make([]float64, n), make([]float64, n)
		for i := range a {
			a[i] = float64(random.IntN(n)) / float64(n) // with ties
			b[i] = math.Sqrt(a[i]) * (1 + 1e-7*random.Float64())
		}
		same := func(a, b []float64) bool { return sameRanking(a, b, ascending(a), ascending(b)) }
		if !same(a, b) || !same(b, a) || !same(a, a) {
			t.Fatalf("%v and %v are two rankings", a, b)
		}
		// Exchange the keys of two inputs that are clearly apart.
		order := ascending(a)
		first, last := order[0], order[n-1]
		if a[last]-a[first] < 0.1 {
			return
		}
		b[first], b[last] = b[last], b[first]
		if same(a, b) {
			t.Fatalf("%v and %v are one ranking", a, b)
		}
	})
	// A tie that the other key breaks is another ranking.
	tied, broken := []float64{1, 1, 2}, []float64{1, 1.5, 2}
	if sameRanking(tied, broken, ascending(tied), ascending(broken)) {
		t.Error("a broken tie is the same ranking")
	}
}
