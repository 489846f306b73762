package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestFinishesAgree checks that all versions of InverseRoots, Confusions and Sum give the same
// bits, and the results that their documentation states.
func TestFinishesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width, inputs := rapid.IntRange(1, 40).Draw(t, "width"), rapid.IntRange(1, 4).Draw(t, "inputs")
		rows, gap := rapid.IntRange(1, 7).Draw(t, "rows"), rapid.IntRange(0, 9).Draw(t, "gap")
		shared := rapid.Bool().Draw(t, "shared weights")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		draw := func(n int, scale float64) []float64 {
			values := make([]float64, n)
			for j := range values {
				if random.IntN(8) > 0 {
					values[j] = scale * random.NormFloat64()
				}
			}
			return values
		}
		apart := width + gap
		mean, sums, weights := draw(inputs*apart, 1), draw(inputs*rows*apart, 3), draw(rows*apart, 2)
		scales, weightsApart := draw(inputs*rows, 1), apart
		if shared {
			weightsApart = 0
		}
		for j := range mean {
			mean[j] = math.Abs(mean[j])
		}
		var first []uint64
		for _, v := range versions() {
			runVariant(v, func() {
				roots, terms, shares := make([]float64, len(mean)), make([]float64, len(sums)), make([]float64, len(scales))
				InverseRoots(roots, mean)
				Confusions(shares, terms, Matrix{sums, roots, scales, weights, inputs, rows, width, apart, weightsApart})
				sum := Sum(sums)
				var bits []uint64
				for _, x := range slices.Concat(roots, terms, shares, []float64{sum}) {
					bits = append(bits, math.Float64bits(x))
				}
				if first == nil {
					first = bits
				}
				if !slices.Equal(bits, first) {
					t.Fatalf("%v differs from %v", v, versions()[0])
				}
				for j, got := range roots {
					if want := 1 / math.Sqrt(mean[j]+Epsilon); math.Abs(got-want) > 1e-15*want {
						t.Fatalf("root %d: %v, want %v", j, got, want)
					}
				}
				for row, got := range shares {
					want, size := 0.0, 0.0
					for j := range apart {
						term := 0.0
						if j < width {
							term = math.Max(0, -sums[row*apart+j]) * scales[row] * roots[row/rows*apart+j]
						}
						if got := terms[row*apart+j]; math.Abs(got-term) > 1e-14*math.Abs(term) {
							t.Fatalf("row %d, term %d: %v, want %v", row, j, got, term)
						}
						add := weights[row%rows*weightsApart+j] * term
						want, size = want+add, size+math.Abs(add)
					}
					if math.Abs(got-want) > 1e-14*size {
						t.Fatalf("share %d: %v, want %v", row, got, want)
					}
				}
				wantSum, size := 0.0, 0.0
				for _, s := range sums {
					wantSum, size = wantSum+s, size+math.Abs(s)
				}
				if math.Abs(sum-wantSum) > 1e-14*size {
					t.Fatalf("sum %v, want %v", sum, wantSum)
				}
			})
		}
	})
}
