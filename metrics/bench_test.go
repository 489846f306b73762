package metrics

import (
	"fmt"
	"testing"

	"github.com/ckd-project/ckd/engine"
)

// BenchmarkObserve counts inputs of K classes, 4 of them critical, on one
// goroutine and on as many as there are processors.
func BenchmarkObserve(b *testing.B) {
	for _, k := range []int{5, 32, 1000} {
		p, m := manyClasses(b, k, 0, 1, 2, 3)
		model := newDaemon(b, 0).put(p, m)
		var o *engine.Outcome
		outcomes(b, m, randomInputs(1, 1, 30, k), func(done *engine.Outcome) { o = done })

		b.Run(fmt.Sprintf("K%d", k), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				model.Observe(o.Result, o.Decision)
			}
		})
		b.Run(fmt.Sprintf("K%d/parallel", k), func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					model.Observe(o.Result, o.Decision)
				}
			})
		})
	}
}
