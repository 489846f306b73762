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

// TestAreaWhereDefined expects the AUSC to begin where critical inputs are retained, and the paper's
// to take 0 before.
func TestAreaWhereDefined(t *testing.T) {
	g := newGrid(200, 0.8)
	var counted [coverages + 1]counts
	for c := range coverages {
		n := counts{retained: float64(g.cuts[g.cut(c)])}
		if c >= 100 {
			n.critical, n.missed, n.criticalWrong = 4, 1, 2
		}
		counted[g.cut(c)] = n
	}
	const step = 0.95 / 199
	if from := g.definedFrom(&counted); from != 100 {
		t.Fatalf("defined from coverage %d, want 100", from)
	}
	got, paper := g.areas(&counted, 100), g.paperAreas(&counted)
	for _, c := range []struct {
		what      string
		got, want Figure
	}{
		{"critical FNR", got.CriticalFNR, 0.25 * 99 * step},
		{"critical error", got.CriticalError, 0.5 * 99 * step},
		{"the paper's", paper.CriticalFNR, 0.25 * 99.5 * step}, // with half a step from 0
		{"the paper's critical error", paper.CriticalError, 0.5 * 99.5 * step},
	} {
		if math.Abs(float64(c.got-c.want)) > 1e-12 {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if early := g.areas(&counted, 99); early.CriticalFNR.Defined() {
		t.Errorf("an area of nothing is %v", early.CriticalFNR)
	}
	if one := g.areas(&counted, coverages-1); one.CriticalFNR.Defined() {
		t.Errorf("the area over one coverage is %v", one.CriticalFNR)
	}
}
