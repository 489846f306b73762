package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestFinishesAgree: the versions of InverseRoots, Confusion and Sum give the
// same bits, and what their names say.
func TestFinishesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 70).Draw(t, "n")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		draw := func(scale float64) []float64 {
			values := make([]float64, n)
			for j := range values {
				if random.IntN(8) > 0 {
					values[j] = scale * random.NormFloat64()
				}
			}
			return values
		}
		mean, sums, weights := draw(1), draw(3), draw(2)
		for j := range mean {
			mean[j] = math.Abs(mean[j])
		}
		scale := random.Float64()
		var first []uint64
		for _, v := range versions() {
			with(v, func() {
				roots, terms := make([]float64, n), make([]float64, n)
				InverseRoots(roots, mean)
				total := Confusion(terms, sums, roots, weights, scale)
				sum := Sum(sums)
				var bits []uint64
				for _, x := range slices.Concat(roots, terms, []float64{total, sum}) {
					bits = append(bits, math.Float64bits(x))
				}
				if first == nil {
					first = bits
				}
				if !slices.Equal(bits, first) {
					t.Fatalf("%v differs from %v", v, versions()[0])
				}
				wantTotal, wantSum, size := 0.0, 0.0, 0.0
				for j := range n {
					root := 1 / math.Sqrt(mean[j]+Epsilon)
					term := math.Max(0, -sums[j]) * scale * root
					if math.Abs(roots[j]-root) > 1e-15*root || math.Abs(terms[j]-term) > 1e-14*term {
						t.Fatalf("%d: root %v, want %v; term %v, want %v", j, roots[j], root, terms[j], term)
					}
					wantTotal += weights[j] * term
					wantSum += sums[j]
					size += math.Abs(weights[j]*term) + math.Abs(sums[j])
				}
				if math.Abs(total-wantTotal) > 1e-14*size || math.Abs(sum-wantSum) > 1e-14*size {
					t.Fatalf("total %v, want %v; sum %v, want %v", total, wantTotal, sum, wantSum)
				}
			})
		}
	})
}
