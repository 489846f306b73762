package decomp_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ckd-project/ckd/decomp"
)

// TestNoAllocations checks that the steady state allocates nothing, on any path.
func TestNoAllocations(t *testing.T) {
	const s, n, k = 10, 50, 6
	data := benchData(s, n, k)
	for i := range n {
		data[i*k] += 1e-4 // so that some are clamped
	}
	for _, kind := range []decomp.Kind{decomp.Probabilities, decomp.Logits} {
		if kind == decomp.Logits {
			for i := range data {
				data[i] *= 3 // no probabilities
			}
		}
		plan := mustPlan(t, decomp.Spec{Classes: k, Safe: []int{0, 1}, Critical: []int{2, 3, 4}, Kind: kind, AllPairs: true})
		b, a, r := plan.NewBatch(), decomp.NewAccumulator[float32](plan, n, s/2), plan.NewResult()
		c3, from := make([]float64, k), source(nil)
		work := func() {
			if err := b.Reset(decomp.Tensor{Passes: s, Inputs: n, Float32: data}); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if err := b.Result(i, r); err != nil {
					t.Fatal(err)
				}
			}
			a.Reset(n, s/2)
			from = data
			if good, err := a.Fill(b, 0, n, s-1, &from); !good || err != nil {
				t.Fatal(good, err)
			}
			for i := range n {
				if err := a.Add(b, i, from[i*k:(i+1)*k]); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.Finish(b, 0, n); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if err := b.Result(i, r); err != nil {
					t.Fatal(err)
				}
			}
			r.SumCTop(3)
			r.SumCWeighted()
			r.C3(c3)
		}
		if got := testing.AllocsPerRun(20, work); got != 0 {
			t.Errorf("kind %d: %v allocations", kind, got)
		}
	}
}

// source supplies its values one after the other.
type source []float32

func (s *source) Next(to []float32) { *s = (*s)[copy(to, *s):] }

// benchShapes lists passes, inputs and classes. Half of the classes, at most 10, are critical.
var benchShapes = [][3]int{{30, 1, 4}, {30, 64, 4}, {50, 64, 10}, {30, 8, 100}, {30, 1, 1000}}

func benchPlan(b *testing.B, k int) *decomp.Plan {
	critical := min(k/2, 10)
	return mustPlan(b, decomp.Spec{Classes: k, Safe: upTo(k)[critical:], Critical: upTo(k)[:critical], Lean: true})
}

func benchData(s, n, k int) []float32 {
	var data []float32
	for _, p := range randomPasses(rand.New(rand.NewPCG(1, 2)), s*n, k, 1, 1) {
		for _, v := range p {
			data = append(data, float32(v))
		}
	}
	return data
}

// perValue reports the time per pass, input and class.
func perValue(b *testing.B, values int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(values), "ns/value")
}

func BenchmarkBatch(b *testing.B) {
	for _, shape := range benchShapes {
		s, n, k := shape[0], shape[1], shape[2]
		b.Run(fmt.Sprintf("S%dN%dK%d", s, n, k), func(b *testing.B) {
			plan, data := benchPlan(b, k), benchData(s, n, k)
			batch, r := plan.NewBatch(), plan.NewResult()
			b.ReportAllocs()
			for b.Loop() {
				if err := batch.Reset(decomp.Tensor{Passes: s, Inputs: n, Float32: data}); err != nil {
					b.Fatal(err)
				}
				for i := range n {
					if err := batch.Result(i, r); err != nil {
						b.Fatal(err)
					}
				}
			}
			perValue(b, s*n*k)
		})
	}
}

func BenchmarkAccumulator(b *testing.B) {
	for _, shape := range benchShapes {
		s, n, k := shape[0], shape[1], shape[2]
		b.Run(fmt.Sprintf("S%dN%dK%d", s, n, k), func(b *testing.B) {
			plan, data := benchPlan(b, k), benchData(s, n, k)
			a, batch, r := decomp.NewAccumulator[float32](plan, n, s), plan.NewBatch(), plan.NewResult()
			b.ReportAllocs()
			var from source
			for b.Loop() {
				a.Reset(n, s)
				from = data
				for range s {
					if good, err := a.Fill(batch, 0, n, 1, &from); !good || err != nil {
						b.Fatal(good, err)
					}
				}
				if err := a.Finish(batch, 0, n); err != nil {
					b.Fatal(err)
				}
				for i := range n {
					if err := batch.Result(i, r); err != nil {
						b.Fatal(err)
					}
				}
			}
			perValue(b, s*n*k)
		})
	}
}
