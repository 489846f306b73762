package decomp_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
)

// TestCheck checks that Check finds exactly the inputs that Result refuses, with the same errors,
// whatever the layout, type and kind, and changes no result. There are more inputs than one panel
// has.
func TestCheck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := decomp.Spec{Classes: rapid.SampledFrom([]int{3, 40}).Draw(t, "K"), Critical: []int{1}, Safe: []int{0}}
		spec.Kind = rapid.SampledFrom([]decomp.Kind{decomp.Probabilities, decomp.Logits, decomp.Dirichlet}).Draw(t, "kind")
		tensor := decomp.Tensor{Passes: rapid.IntRange(2, 5).Draw(t, "S"), Inputs: rapid.SampledFrom([]int{0, 1, 30, 400}).Draw(t, "N")}
		if spec.Kind == decomp.Dirichlet {
			tensor.Passes = 1
		}
		tensor.Layout = rapid.SampledFrom([]decomp.Layout{decomp.SNK, decomp.NSK}).Draw(t, "layout")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		for range tensor.Passes * tensor.Inputs {
			for _, p := range randomPasses(rng, 1, spec.Classes, 1, 1)[0] {
				tensor.Float32 = append(tensor.Float32, float32(p))
			}
		}
		if len(tensor.Float32) > 0 {
			for range rapid.IntRange(0, 3).Draw(t, "bad") {
				at := rapid.IntRange(0, len(tensor.Float32)-1).Draw(t, "at")
				tensor.Float32[at] = rapid.SampledFrom([]float32{float32(math.NaN()), -1, 3}).Draw(t, "value")
			}
		}
		if rapid.Bool().Draw(t, "double") {
			for _, v := range tensor.Float32 {
				tensor.Float64 = append(tensor.Float64, float64(v))
			}
			tensor.Float32 = nil
		}

		plan := mustPlan(t, spec)
		b, checked, r := plan.NewBatch(), plan.NewBatch(), plan.NewResult()
		for _, batch := range []*decomp.Batch{b, checked} {
			if err := batch.Reset(tensor); err != nil {
				t.Fatal(err)
			}
		}
		last := tensor.Inputs - 1
		if last >= 0 {
			_ = checked.Result(last, r) // so that there is a current panel
		}
		found := map[int]string{}
		var order []int
		good := checked.Check(func(i int, err error) { found[i], order = err.Error(), append(order, i) })
		if good != (len(found) == 0) || !slices.IsSorted(order) || len(order) != len(found) {
			t.Fatalf("good is %v, refused are %v", good, order)
		}
		if last >= 0 {
			if err, again := b.Result(last, r), checked.Result(last, r); (again == nil) != (err == nil) {
				t.Fatalf("input %d: after Check %v, want %v", last, again, err)
			}
		}
		for i := range tensor.Inputs {
			err := b.Result(i, r)
			if want, bad := found[i]; bad != (err != nil) || bad && err.Error() != want {
				t.Fatalf("input %d: Result says %v, Check %q", i, err, want)
			}
			var want []float64
			if err == nil {
				want = append(slices.Clone(r.C), r.MI)
			}
			if again := checked.Result(i, r); (again == nil) != (err == nil) || err == nil && !slices.Equal(want, append(slices.Clone(r.C), r.MI)) {
				t.Fatalf("input %d: after Check %v, %v, want %v, %v", i, again, r.C, err, want)
			}
		}
	})
}
