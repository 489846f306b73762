package metrics

import (
	"fmt"
	"testing"

	"github.com/ckd-project/ckd/engine"
)

// BenchmarkObserve counts inputs of K classes, 4 of them critical, in messages of one and of 64
// inputs, on one goroutine and on one per processor.
func BenchmarkObserve(b *testing.B) {
	for _, k := range []int{5, 32, 1000} {
		p, m := manyClasses(b, k, 0, 1, 2, 3)
		model := newDaemon(b, 0).put(p, m)
		var inputs [64]*engine.Outcome
		for i := range inputs {
			outcomes(b, m, randomInputs(uint64(i), 1, 30, k), func(o *engine.Outcome) { inputs[i] = o })
		}
		b.Run(fmt.Sprintf("K%d/ckd", k), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				o := inputs[i%len(inputs)]
				model.Observe(0, o.Result, o.Decision)
			}
		})
		message := func(hint uint32) {
			rec := model.Record(hint)
			for _, o := range inputs {
				rec.Observe(o.Result, &o.Decision)
			}
			rec.Done()
		}
		perInput := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(inputs)), "ns/input")
		}
		b.Run(fmt.Sprintf("K%d/ckd/message", k), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				message(0)
			}
			perInput(b)
		})
		b.Run(fmt.Sprintf("K%d/ckd/parallel", k), func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					message(0)
				}
			})
			perInput(b)
		})
		b.Run(fmt.Sprintf("K%d/ckd/drift", k), func(b *testing.B) {
			var of results
			for _, o := range inputs {
				of = append(of, o.Result)
			}
			model := newDaemon(b, 0).put(withReference(p, of, of.classes()[:min(k, defaultClassLabels)]...), m)
			b.ReportAllocs()
			for b.Loop() {
				rec := model.Record(0)
				for _, o := range inputs {
					rec.Observe(o.Result, &o.Decision)
				}
				rec.Done()
			}
			perInput(b)
		})
	}
}
