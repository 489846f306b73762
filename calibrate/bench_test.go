package calibrate

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ckd-project/ckd/policy"
)

// BenchmarkRun calibrates on a real recording, and on one that is drawn from it and as long as the
// longest of the paper.
func BenchmarkRun(b *testing.B) {
	whole, all := ctg(b, "mcdropout")
	rng := rand.New(rand.NewPCG(1, 18))
	for _, n := range []int{whole.Inputs, 8000} {
		var inputs []int
		for i := range n {
			if i >= whole.Inputs {
				i = rng.IntN(whole.Inputs)
			}
			inputs = append(inputs, i)
		}
		table, labels := take(whole, all, inputs)
		for _, o := range []Objective{{Coverage: 0.8}, {MaxCriticalFNR: 0.1, Confidence: 0.9}} {
			b.Run(fmt.Sprintf("N=%d/%s", n, o), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Choose(b.Context(), table, labels, options(b, o, policy.AllInputs, 1)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
