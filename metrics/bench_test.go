package metrics

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/metrics/internal/sharded"
	"github.com/ckd-project/ckd/policy"
)

// BenchmarkObserve counts inputs of K classes, 4 of them critical, in messages of one and of 64
// inputs, on one goroutine and on one per processor. client_golang counts into the same series on
// one goroutine.
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
		b.Run(fmt.Sprintf("K%d/client_golang", k), func(b *testing.B) {
			model := newOfClientGolang(p, m.Plan())
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				o := inputs[i%len(inputs)]
				model.observe(o.Result, o.Decision)
			}
		})
	}
}

// ofClientGolang counts inputs in series of client_golang, with a call for each value.
type ofClientGolang struct {
	labels    classLabels
	threshold float64
	decisions map[decision]prometheus.Counter
	classes   []classOfClientGolang
	pairs     []pairOfClientGolang

	mutualInformation, entropy    prometheus.Histogram
	passes, degenerate, saturated prometheus.Counter
}

type classOfClientGolang struct {
	epistemic, skewness                       prometheus.Histogram
	unreliable, predicted, dominant, deciding prometheus.Counter
}

type pairOfClientGolang struct {
	term      int
	confusion prometheus.Counter
}

func newOfClientGolang(p *policy.Policy, plan *decomp.Plan) *ofClientGolang {
	counter := func() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: "n"}) }
	m := &ofClientGolang{
		labels: newClassLabels(p, defaultClassLabels), threshold: p.ReliabilityThreshold,
		decisions:         make(map[decision]prometheus.Counter),
		mutualInformation: histogramOfClientGolang(sharded.Total),
		entropy:           histogramOfClientGolang(sharded.Entropy),
		passes:            counter(), degenerate: counter(), saturated: counter(),
	}
	for range m.labels.names {
		m.classes = append(m.classes, classOfClientGolang{
			histogramOfClientGolang(sharded.Contribution), histogramOfClientGolang(sharded.Ratio),
			counter(), counter(), counter(), counter(),
		})
	}
	for _, d := range decisionsOf(p) {
		m.decisions[d] = counter()
	}
	for i, pair := range plan.Pairs() {
		if !m.labels.isCut(pair.A) && !m.labels.isCut(pair.B) {
			m.pairs = append(m.pairs, pairOfClientGolang{i, counter()})
		}
	}
	return m
}

// histogramOfClientGolang returns a histogram with the same buckets as ours.
func histogramOfClientGolang(of sharded.Scale) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "h", Buckets: of.Edges,
		NativeHistogramBucketFactor:  1.1, // 2^(1/8) = 1.09 is the largest step at or under it
		NativeHistogramZeroThreshold: of.ZeroThreshold,
	})
}

func (m *ofClientGolang) observe(r *decomp.Result, d policy.Decision) {
	observe := func(h prometheus.Histogram, v float64) {
		if !math.IsNaN(v) {
			h.Observe(v)
		}
	}
	m.decisions[decision{d.Action, d.Score, d.Reason}].Inc()
	for k, c := range r.C {
		class := &m.classes[m.labels.of[k]]
		observe(class.epistemic, c)
		observe(class.skewness, min(r.Skewness[k], sharded.Ratio.Largest))
		if r.Skewness[k] > m.threshold {
			class.unreliable.Inc()
		}
	}
	m.classes[m.labels.of[r.Predicted]].predicted.Inc()
	if r.Dominant >= 0 {
		m.classes[m.labels.of[r.Dominant]].dominant.Inc()
	}
	if d.Action == policy.Defer && d.Class >= 0 {
		m.classes[m.labels.of[d.Class]].deciding.Inc()
	}
	for i := range m.pairs {
		if term := r.Confusion(m.pairs[i].term); term > 0 {
			m.pairs[i].confusion.Add(term)
		}
	}
	observe(m.mutualInformation, r.MI)
	observe(m.entropy, r.Entropy)
	m.passes.Add(float64(r.Passes))
	if r.Degenerate {
		m.degenerate.Inc()
	}
	if r.Saturated {
		m.saturated.Inc()
	}
}
