package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// someClasses lists all small numbers of classes, and some that need a loop.
var someClasses = func() (all []int) {
	for k := 2; k <= 40; k++ {
		all = append(all, k)
	}
	return append(all, 100, 1000)
}()

// goodRows returns rows that sum to 1 up to float32 rounding.
func goodRows(r *rand.Rand, n, classes int) []float32 {
	rows := make([]float32, n*classes)
	e := make([]float64, classes)
	for i := range n {
		sum := 0.0
		for j := range e {
			e[j] = r.ExpFloat64()
			sum += e[j]
		}
		for j := range e {
			rows[i*classes+j] = float32(e[j] / sum)
		}
	}
	return rows
}

const tolerance = 1e-3

func TestPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, v := range versions() {
		for _, classes := range someClasses {
			t.Run(fmt.Sprintf("%v/%d", v, classes), func(t *testing.T) {
				plain := func(rows []float32) (yes bool) {
					runVariant(v, func() { yes = Plain(rows, classes, tolerance) })
					return yes
				}
				for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33} {
					if classes > 40 && n > 9 {
						continue
					}
					rows := goodRows(r, n, classes)
					if !plain(rows) {
						t.Fatalf("%d good rows: not plain", n)
					}
					try := func(i int, p float32, what string, good bool) {
						was := rows[i]
						rows[i] = p
						if plain(rows) != good {
							t.Fatalf("%d rows, value %d is %v, %s: plain is %v", n, i, p, what, !good)
						}
						rows[i] = was
					}
					for i := range rows {
						if classes == 1000 && i%7 != 0 && i%classes < 980 {
							continue
						}
						p := rows[i]
						try(i, p+1.1*tolerance, "which is too much", false)
						try(i, p-1.1*tolerance, "which is too little", false)
						if p < 1-tolerance {
							try(i, p+0.9*tolerance, "within tolerance", true)
						}
						for _, bad := range []float64{
							-1e-9, -1, -math.SmallestNonzeroFloat32, 1.0000001, 2, math.Inf(1), math.Inf(-1), math.NaN(),
						} {
							try(i, float32(bad), "which is no probability", false)
						}
						if p > 2*tolerance && n > 1 { // take it from the neighbouring row
							other := (i + classes) % len(rows)
							was := rows[other]
							rows[other] += 2 * tolerance
							try(i, p-2*tolerance, "and the next row makes up for it", false)
							rows[other] = was
						}
					}
				}
			})
		}
	}
}

// TestPlainIsSure checks that no version accepts rows that exact sums reject.
func TestPlainIsSure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		classes, n := rapid.SampledFrom(someClasses).Draw(t, "classes"), rapid.IntRange(1, 40).Draw(t, "rows")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		tolerance := rapid.SampledFrom([]float64{0, 1e-7, 1e-6, 1e-5, 1e-3, 0.5, 2, math.NaN()}).Draw(t, "tolerance")
		for range 20 {
			rows := goodRows(r, n, classes)
			for range r.IntN(3) { // close to the tolerance
				i := r.IntN(n)
				row := rows[i*classes:][:classes]
				for j := range row {
					row[j] = float32(float64(row[j]) * (1 + tolerance*(0.99+0.02*r.Float64())*float64(1-2*(i%2))))
				}
			}
			good := scalarPlain(rows, classes, tolerance)
			for _, v := range versions() {
				runVariant(v, func() {
					if Plain(rows, classes, tolerance) && !good {
						t.Fatalf("%v: plain, but a row is bad", v)
					}
				})
			}
		}
	})
}

func TestPlainShapes(t *testing.T) {
	for _, v := range versions() {
		runVariant(v, func() {
			if !Plain(nil, 4, tolerance) {
				t.Errorf("%v: no rows are not plain", v)
			}
			if Plain(make([]float32, 5), 4, tolerance) {
				t.Errorf("%v: a part of a row is plain", v)
			}
			if !Plain([]float32{1, 1, 1}, 1, tolerance) || Plain([]float32{1, 0.5, 1}, 1, tolerance) {
				t.Errorf("%v: one class is not its own sum", v)
			}
		})
	}
}
