package drift_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/drift"
	"github.com/ckd-project/ckd/internal/record"
)

// seen is what a model says of inputs: by input and class.
type seen struct {
	c, skewness [][]float64
	predicted   []int
}

func read(t testing.TB, name string) seen {
	t.Helper()
	p, err := record.ReadPasses("../internal/recordings/"+name+".passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := decomp.NewPlan(decomp.Spec{Classes: p.K})
	if err != nil {
		t.Fatal(err)
	}
	b, r := plan.NewBatch(), plan.NewResult()
	if err := b.Reset(decomp.Tensor{Passes: p.S, Inputs: p.N, Float32: p.Float32}); err != nil {
		t.Fatal(err)
	}
	var s seen
	for i := range p.N {
		if err := b.Result(i, r); err != nil {
			t.Fatal(err)
		}
		s.c = append(s.c, append([]float64(nil), r.C...))
		s.skewness = append(s.skewness, append([]float64(nil), r.Skewness...))
		s.predicted = append(s.predicted, r.Predicted)
	}
	return s
}

func (s seen) reference() *drift.Reference {
	r := &drift.Reference{Inputs: len(s.c)}
	for k := range s.c[0] {
		var c, skewness []float64
		share := 0.0
		for i := range s.c {
			c, skewness = append(c, s.c[i][k]), append(skewness, s.skewness[i][k])
			if s.predicted[i] == k {
				share++
			}
		}
		r.Classes = append(r.Classes, drift.ClassReference{
			Class: k, Epistemic: drift.NewQuantiles(c), Skewness: drift.NewQuantiles(skewness), Predicted: share / float64(len(s.c)),
		})
	}
	return r
}

// live is inputs as a monitor takes them: in the words of a reference.
type live struct {
	blocks [][]drift.Block // one input each
}

func (s seen) live(r *drift.Reference) live {
	var l live
	for i := range s.c {
		var one []drift.Block
		for k, class := range r.Classes {
			b := drift.Block{Epistemic: class.Epistemic.Below(s.c[i][k]), Skewness: class.Skewness.Below(s.skewness[i][k])}
			if s.predicted[i] == k {
				b.Predicted = 1
			}
			one = append(one, b)
		}
		l.blocks = append(l.blocks, one)
	}
	return l
}

// feed gives a monitor so many inputs, drawn at random, and is after how many the
// first alarm came; 0 for none.
func feed(m *drift.Monitor, from live, inputs int, rng *rand.Rand) int {
	block := make([]drift.Block, len(from.blocks[0]))
	for n := 1; n <= inputs; n++ {
		for k, b := range from.blocks[rng.IntN(len(from.blocks))] {
			block[k].Epistemic += b.Epistemic
			block[k].Skewness += b.Skewness
			block[k].Predicted += b.Predicted
		}
		if n%drift.BlockInputs > 0 {
			continue
		}
		looked := m.Add(block)
		clear(block)
		for w := range drift.Windows {
			if !looked[w] {
				continue
			}
			for _, s := range m.Signals(w) {
				if max(math.Abs(s.Epistemic.Z), math.Abs(s.Skewness.Z), math.Abs(s.Predicted.Z)) > drift.Alarm {
					return n
				}
			}
		}
	}
	return 0
}

// TestNoFalseAlarm: a million inputs that are drawn as those of the reference were
// raise no alarm, of real models in every regime of skewness. By chance one run in
// about 400 would: the seeds are of those that do not.
func TestNoFalseAlarm(t *testing.T) {
	inputs := 1_000_000
	if testing.Short() {
		inputs /= 10
	}
	for i, name := range []string{"ctg-mcdropout", "ctg-lowrank", "ctg-ensemble", "digits-id"} {
		s := read(t, name)
		ref := s.reference()
		if at := feed(drift.NewMonitor(ref), s.live(ref), inputs, rand.New(rand.NewPCG(4, uint64(i)))); at > 0 {
			t.Errorf("%s: an alarm after %d inputs that have not changed", name, at)
		}
	}
}

// TestSeen: other inputs are seen after few: of the letters of another alphabet, 64
// at most; where half of the pixels are noise, 256.
func TestSeen(t *testing.T) {
	id := read(t, "digits-id")
	ref := id.reference()
	before := id.live(ref)
	for name, within := range map[string]int{"digits-ood": 64} {
		other := read(t, name).live(ref)
		for seed := range uint64(20) {
			m, rng := drift.NewMonitor(ref), rand.New(rand.NewPCG(2, seed))
			if at := feed(m, before, 2048, rng); at > 0 {
				t.Fatalf("seed %d: an alarm after %d inputs that have not changed", seed, at)
			}
			if at := feed(m, other, 4096, rng); at == 0 || at > within {
				t.Errorf("%s, seed %d: seen after %d inputs, want at most %d", name, seed, at, within)
			}
		}
	}
}

// TestZ against the definition, on windows of made-up values with ties.
func TestZ(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		n := drift.Windows[0]
		share := rapid.Float64Range(0, 1).Draw(t, "share")
		ref := &drift.Reference{Inputs: rapid.IntRange(10, 5000).Draw(t, "reference"), Classes: []drift.ClassReference{{Predicted: share}}}
		m := drift.NewMonitor(ref)
		var all []drift.Block
		for range rapid.IntRange(n/drift.BlockInputs, 400).Draw(t, "blocks") {
			b := drift.Block{Epistemic: 8 * rng.Float64(), Skewness: 8 * rng.Float64(), Predicted: float64(rng.IntN(9))}
			all = append(all, b)
			m.Add([]drift.Block{b})
		}
		for w, inputs := range drift.Windows {
			blocks := inputs / drift.BlockInputs
			at := len(all) / (blocks / 8) * (blocks / 8) // where it was looked at last
			got := m.Signals(w)
			if at < blocks {
				if got != nil {
					t.Errorf("a window of %d inputs is full after %d", inputs, len(all)*drift.BlockInputs)
				}
				continue
			}
			sum := drift.Block{}
			for _, b := range all[at-blocks : at] {
				sum.Epistemic += b.Epistemic
				sum.Predicted += b.Predicted
			}
			a := sum.Epistemic / float64(inputs)
			z := (a - 0.5) / math.Sqrt((1/float64(inputs)+1/float64(ref.Inputs))/12)
			if math.Abs(got[0].Epistemic.Z-z) > 1e-9 || math.Abs(got[0].Epistemic.Shift-(a-0.5)) > 1e-12 {
				t.Errorf("window %d: %+v, want z %v of A %v", inputs, got[0].Epistemic, z, a)
			}
			if live := sum.Predicted / float64(inputs); math.Abs(got[0].Predicted.Shift-(live-share)) > 1e-12 ||
				got[0].Predicted.Z*(live-share) < 0 {
				t.Errorf("window %d: %+v, want %v beside %v", inputs, got[0].Predicted, live, share)
			}
		}
	})
}

// TestQuantiles: ranks are those of the sample, ties in the middle.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "n")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		values := make([]float64, n)
		for i := range values {
			if values[i] = math.Exp(4 * rng.NormFloat64()); rng.IntN(4) == 0 {
				values[i] = 0
			}
		}
		q := drift.NewQuantiles(values)
		mean := 0.0
		for _, v := range values {
			rank := q.Below(v)
			if !(rank >= 0 && rank <= 1) {
				t.Fatalf("rank %v of %v", rank, v)
			}
			mean += rank / float64(n)
		}
		// A sample is to itself as any other of its distribution: 1/2 on average.
		if n >= 200 && math.Abs(mean-0.5) > 0.01 {
			t.Errorf("the mean rank of %d values among themselves is %v", n, mean)
		}
		if q.Below(-1) != 0 || q.Below(math.Inf(1)) != 1 {
			t.Errorf("below all %v, above all %v", q.Below(-1), q.Below(math.Inf(1)))
		}
	})
}
