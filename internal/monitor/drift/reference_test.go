package drift_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/policy"
)

// TestNewQuantiles compares with numpy 1.24: quantile(values, arange(65)/64).
func TestNewQuantiles(t *testing.T) {
	values := []float64{0.3, 0, 2.5, 0, 0.125, 7, 0.3}
	q := drift.NewQuantiles(values)
	if len(q) != policy.Levels || !slices.IsSorted(q) {
		t.Fatalf("%v", q)
	}
	for rank, want := range map[int]float64{
		0: 0.0, 1: 0.0, 10: 0.0, 11: 0.00390625, 12: 0.015625, 21: 0.12109375, 31: 0.28359375, 32: 0.3, 33: 0.3, 50: 1.8125, 63: 6.578125, 64: 7.0,
	} {
		if math.Abs(q[rank]-want) > 1e-12 {
			t.Errorf("level %d/64 is %v, want %v", rank, q[rank], want)
		}
	}
	if values[0] != 0.3 || values[5] != 7 {
		t.Errorf("the values were changed: %v", values)
	}
	if q := drift.NewQuantiles([]float64{1, math.Inf(1), math.Inf(1)}); q[0] != 1 || !math.IsInf(q[1], 1) || !math.IsInf(q[64], 1) {
		t.Errorf("of infinite values: %v", q)
	}
	if one := drift.NewQuantiles([]float64{4}); one[0] != 4 || one[64] != 4 {
		t.Errorf("of one value: %v", one)
	}
}

// made returns values with many ties, some of them with an infinite spread.
func made(t *rapid.T) []float64 {
	n := rapid.IntRange(1, 400).Draw(t, "n")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	values := make([]float64, n)
	for i := range values {
		if values[i] = math.Exp(4 * rng.NormFloat64()); rng.IntN(3) == 0 {
			values[i] = float64(rng.IntN(3))
		}
	}
	return values
}

// TestRanks compares ranks with the definition, the share of the distribution below a value plus half of
// what equals it, on values that the quantiles stand for; a cell is at most an eighth of an octave. A
// distribution compared with itself has mean rank 1/2, and larger values never have lower ranks.
func TestRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := made(t)
		q := drift.NewQuantiles(values)
		r := drift.NewRanks(q)
		const each = 200 // levels between two quantiles
		var drawn []float64
		for i := range each * (policy.Levels - 1) {
			at, within := i/each, (float64(i%each)+0.5)/each
			drawn = append(drawn, q[at]+within*(q[at+1]-q[at]))
		}
		below := func(x float64) float64 {
			index, _ := slices.BinarySearch(drawn, x)
			return float64(index) / float64(len(drawn))
		}
		slices.Sort(values)
		before, mean := 0.0, 0.0
		for _, v := range values {
			rank := r.Of(v)
			mean += rank / float64(len(values))
			if !(rank >= before && rank <= 1) {
				t.Fatalf("rank %v of %v, after %v", rank, v, before)
			}
			before = rank
			if low, high := below(v/1.13), below(v*1.13); v > 1e-13 && v < 1e5 && (rank < low-1e-3 || rank > high+1e-3) {
				t.Fatalf("rank %v of %v, want %v to %v", rank, v, low, high)
			}
		}
		if len(values) >= 200 && math.Abs(mean-0.5) > 0.02 {
			t.Errorf("the mean rank of %d values among themselves is %v", len(values), mean)
		}
	})
}

// TestRanksAtTheEnds checks 0 and values near it, infinite ones, and NaN. A value that all of the
// reference have has rank 1/2.
func TestRanksAtTheEnds(t *testing.T) {
	r := drift.NewRanks(drift.NewQuantiles(slices.Concat(make([]float64, 100), slices.Repeat([]float64{1}, 100))))
	for v, want := range map[float64]float64{
		0: 0.25, 1e-300: 0.25, 1e-15: 0.25, 1: 0.75, 1e-4: 0.484, 8: 1, 1e300: 1, math.Inf(1): 1, math.MaxFloat64: 1,
	} {
		if got := r.Of(v); math.Abs(got-want) > 0.01 {
			t.Errorf("%v has rank %v, want %v", v, got, want)
		}
	}
	if got := r.Of(math.NaN()); got != 0.5 {
		t.Errorf("NaN has rank %v", got)
	}
	for _, v := range []float64{0, 1e-20, 0.25, 0.3, 0.5, 1, 1e6} {
		if got := drift.NewRanks(drift.NewQuantiles([]float64{v, v, v})).Of(v); got != 0.5 {
			t.Errorf("%v among %v has rank %v", v, v, got)
		}
	}
}
