package decomp_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ckd-project/ckd/decomp"
)

// TestHardCases states the bounds of both paths on badly conditioned passes, against 400-bit
// arithmetic:
//
//   - mean, variance, C: relative error 1e-11;
//   - third moment: 1e-11 of the mean of |p-mu|^3, the terms that may cancel, and skewness
//     accordingly;
//   - M, and M of the complement: 1e-10 relative.
//
// They hold because moments are sums of differences: passes that agree to 15 digits give their
// spread as exactly as passes that differ.
func TestHardCases(t *testing.T) {
	rng := rand.New(rand.NewPCG(20260221, 7))
	cases := map[string][][]float64{}
	for _, s := range []int{2, 3, 30, 1000} {
		for _, mu := range []float64{1e-12, 1e-6, 0.3, 0.5, 1 - 1e-6, 1 - 1e-12} {
			for _, spread := range []float64{1e-15, 1e-9, 1e-3, 0.9} {
				passes := make([][]float64, s)
				for i := range passes {
					p := mu + spread*min(mu, 1-mu)*(2*rng.Float64()-1)
					passes[i] = []float64{p, 1 - p}
				}
				cases[fmt.Sprintf("S=%d mu=%g spread=%g", s, mu, spread)] = passes
			}
		}
		outlier := make([][]float64, s) // the first pass far from all others
		for i := range outlier {
			p := 1e-12 * (1 + rng.Float64())
			outlier[i] = []float64{p, 1 - p}
		}
		outlier[0] = []float64{1, 0}
		cases[fmt.Sprintf("S=%d first pass an outlier", s)] = outlier
		ulp := make([][]float64, s) // neighbouring float32 numbers
		for i := range ulp {
			p := float64(math.Nextafter32(0.7, float32(rng.IntN(2))))
			ulp[i] = []float64{p, float64(float32(1 - p))}
		}
		cases[fmt.Sprintf("S=%d one ulp", s)] = ulp
		tiny := make([][]float64, s) // the smallest float32 numbers
		for i := range tiny {
			p := float64(math.SmallestNonzeroFloat32) * float64(rng.IntN(3))
			tiny[i] = []float64{p, 1}
		}
		cases[fmt.Sprintf("S=%d denormal", s)] = tiny
	}
	plan := mustPlan(t, decomp.Spec{Classes: 2, Safe: []int{1}, Critical: []int{0}})
	worst := map[string]float64{}
	for name, passes := range cases {
		withLogs := len(passes) <= 30
		o := oracle(passes, withLogs)
		for path, r := range map[string]*decomp.Result{
			"two-pass": batchResult(t, plan, passes), "streaming": streamResult(t, plan, passes),
		} {
			check := func(field string, got, want, scale, bound float64) {
				err := math.Abs(got - want)
				if err < 1e-100 { // the oracle's own rounding, where passes are identical
					err = 0
				}
				if scale > 0 {
					err /= scale
				}
				worst[path+" "+field] = max(worst[path+" "+field], err)
				if !(err <= bound) {
					t.Errorf("%s: %s %s: got %v, want %v: error %v, bound %v", name, path, field, got, want, err, bound)
				}
			}
			for k := range 2 {
				check("mean", r.Mean[k], o.mean[k], o.mean[k], 1e-11)
				check("variance", r.Variance[k], o.variance[k], o.variance[k], 1e-11)
				check("C", r.C[k], o.c[k], o.c[k], 1e-11)
				check("third moment", r.ThirdMoment[k], o.m3[k], o.absM3[k], 1e-11)
				if d := 3 * o.mean[k] * o.variance[k]; d > 0 {
					check("skewness", r.Skewness[k], o.skewness[k], o.absM3[k]/d, 1e-11)
				}
				if withLogs {
					check("M", r.M[k], o.m[k], o.m[k], 1e-10)
				}
			}
			if withLogs {
				check("ova_mi", r.Scores[decomp.OvAMI], o.ova[0], o.ova[0], 1e-10)
			}
		}
	}
	for what, err := range worst {
		t.Logf("worst %s: %.1e", what, err)
	}
}
