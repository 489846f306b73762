package ckernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ckd-project/ckd/bench/speed/ckernel"
	"github.com/ckd-project/ckd/decomp"
)

// TestKernelsAgree checks that every kernel computes what decomp computes, for every length of
// tail.
func TestKernelsAgree(t *testing.T) {
	if !ckernel.Runs("avx2") {
		t.Skip("no kernels in this build or for this processor")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, passes := range []int{2, 3, 30} {
		for k := 2; k <= 50; k++ {
			values := randomRows(random, passes, k)
			plan, err := decomp.NewPlan(decomp.Spec{Classes: k})
			if err != nil {
				t.Fatal(err)
			}
			b, r := plan.NewBatch(), plan.NewResult()
			if err := b.Reset(decomp.Tensor{Passes: passes, Inputs: 1, Float32: values}); err != nil {
				t.Fatal(err)
			}
			if err := b.Result(0, r); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"avx2", "avx512"} {
				if !ckernel.Runs(path) {
					continue
				}
				c := ckernel.NewColumns(k)
				ckernel.Run(path, values, passes, k, c, 1)
				same := func(what string, got, want []float64, tolerance float64) {
					t.Helper()
					for i := range want {
						if !(math.Abs(got[i]-want[i]) <= tolerance*math.Max(math.Abs(want[i]), 1e-3)) {
							t.Errorf("%s, %d passes, class %d of %d: %s is %v, decomp says %v",
								path, passes, i, k, what, got[i], want[i])
						}
					}
				}
				same("mean", c.Mean, r.Mean, 1e-12)
				same("variance", c.Variance, r.Variance, 1e-12)
				same("third moment", c.ThirdMoment, r.ThirdMoment, 1e-12)
				same("C", c.C, r.C, 1e-12)
				same("skewness", c.Skewness, r.Skewness, 1e-9)
				same("M", c.M, r.M, 1e-11)
				entropy := 0.0
				for _, x := range c.PLogP {
					entropy -= x
				}
				same("entropy", []float64{entropy}, []float64{r.Entropy}, 1e-12)
			}
		}
	}
}

func randomRows(random *rand.Rand, passes, k int) []float32 {
	values := make([]float32, 0, passes*k)
	for range passes {
		row, sum := make([]float64, k), 0.0
		for i := range row {
			row[i] = math.Exp(2 * random.NormFloat64())
			if random.IntN(8) == 0 && i > 0 || i == 3 { // class 3 never
				row[i] = 0
			}
			sum += row[i]
		}
		for _, v := range row {
			values = append(values, float32(v/sum))
		}
	}
	return values
}
