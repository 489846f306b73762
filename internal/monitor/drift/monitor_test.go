package drift_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

// seen holds what a model says of inputs, by input and class.
type seen struct {
	c, skewness [][]float64
	predicted   []int
}

func read(t testing.TB, name string) seen {
	t.Helper()
	p, err := record.ReadPasses("../../recordings/"+name+".passes.npy", record.Options{})
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

func (s seen) reference() *policy.Reference {
	var all drift.Sample
	for i := range s.c {
		all.Add(s.c[i], s.skewness[i], s.predicted[i])
	}
	return all.Reference()
}

// live holds inputs as ranks of a reference, ready for a monitor.
type live struct {
	blocks [][]drift.Block // one input each
}

func (s seen) live(r *policy.Reference) live {
	var c, skewness []*drift.Ranks
	for _, class := range r.Classes {
		c, skewness = append(c, drift.NewRanks(class.Epistemic)), append(skewness, drift.NewRanks(class.Skewness))
	}
	var l live
	for i := range s.c {
		var single []drift.Block
		for k := range r.Classes {
			b := drift.Block{Epistemic: c[k].Of(s.c[i][k]), Skewness: skewness[k].Of(s.skewness[i][k])}
			if s.predicted[i] == k {
				b.Predicted = 1
			}
			single = append(single, b)
		}
		l.blocks = append(l.blocks, single)
	}
	return l
}

// feed gives a monitor inputs drawn at random, and returns after how many the first alarm came; 0
// for none.
func feed(m *drift.Monitor, from live, inputs int, rng *rand.Rand) int {
	return feedInputs(m, inputs, func(int) []drift.Block { return from.blocks[rng.IntN(len(from.blocks))] })
}

// feedInputs is feed with inputs in the given order.
func feedInputs(m *drift.Monitor, inputs int, next func(int) []drift.Block) int {
	var block []drift.Block
	for n := 1; n <= inputs; n++ {
		single := next(n - 1)
		if block == nil {
			block = make([]drift.Block, len(single))
		}
		for k, b := range single {
			block[k].Epistemic += b.Epistemic
			block[k].Skewness += b.Skewness
			block[k].Predicted += b.Predicted
		}
		if n%drift.BlockInputs > 0 {
			continue
		}
		if m.Add(block) {
			return n
		}
		clear(block)
	}
	return 0
}

// TestNoFalseAlarm checks that 200,000 inputs drawn like those of the reference raise no alarm,
// for real models in every regime of skewness. By chance one run in about 600 would; these seeds do
// not.
func TestNoFalseAlarm(t *testing.T) {
	for i, name := range []string{"ctg-mcdropout", "ctg-lowrank", "ctg-ensemble", "digits-id"} {
		s := read(t, name)
		ref := s.reference()
		if at := feed(drift.NewMonitor(ref), s.live(ref), 200_000, rand.New(rand.NewPCG(4, uint64(i)))); at > 0 {
			t.Errorf("%s: an alarm after %d inputs that have not changed", name, at)
		}
	}
}

// TestSeen checks that a changed world shows after few inputs: digits that the model does not know,
// and its own digits answered by a network trained on worse labels.
func TestSeen(t *testing.T) {
	for _, c := range []struct {
		calibrated, live string
		within           int
	}{
		{"digits-id", "digits-ood", 64},
		{"digits-noise-00", "digits-noise-10", 64},
		{"ctg-mcdropout", "ctg-lowrank", 256},
	} {
		t.Run(c.live, func(t *testing.T) {
			ref := read(t, c.calibrated).reference()
			before, other := read(t, c.calibrated).live(ref), read(t, c.live).live(ref)
			for seed := range uint64(20) {
				m, rng := drift.NewMonitor(ref), rand.New(rand.NewPCG(2, seed))
				if at := feed(m, before, 2048, rng); at > 0 {
					t.Fatalf("seed %d: an alarm after %d inputs that have not changed", seed, at)
				}
				if at := feed(m, other, 4096, rng); at == 0 || at > c.within {
					t.Errorf("seed %d: seen after %d inputs, want at most %d", seed, at, c.within)
				}
			}
		})
	}
}

// TestMonitor compares a Monitor with the definitions, computed from all blocks, and checks that
// the signals beyond Alarm are the alarms.
func TestMonitor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		ref := &policy.Reference{Inputs: rapid.IntRange(10, 5000).Draw(t, "reference")}
		shares := rapid.SliceOfN(rapid.OneOf(rapid.Just(0.0), rapid.Just(1.0), rapid.Float64Range(0, 0.02), rapid.Float64Range(0, 1)), 1, 3)
		for _, share := range shares.Draw(t, "shares") {
			ref.Classes = append(ref.Classes, policy.ClassReference{Predicted: share})
		}
		moved := rapid.Float64Range(-0.5, 0.5).Draw(t, "moved") // shifts live inputs far enough for some alarms
		m := drift.NewMonitor(ref)
		var all [][]drift.Block
		before := make([]drift.Alarms, len(ref.Classes))
		for range rapid.IntRange(1, 300).Draw(t, "blocks") {
			var block []drift.Block
			for _, class := range ref.Classes {
				b := drift.Block{Epistemic: 8 * min(max(rng.Float64()+moved, 0), 1), Skewness: 8 * rng.Float64()}
				for range drift.BlockInputs {
					if rng.Float64() < class.Predicted+moved/2 {
						b.Predicted++
					}
				}
				block = append(block, b)
			}
			all = append(all, block)
			changed := m.Add(block)
			want := make([]drift.Alarms, len(ref.Classes))
			for w, inputs := range drift.Windows {
				for k, s := range wanted(ref, all, inputs, w, m.Filled(w), t) {
					got := m.Signals(w)[k]
					near := func(a, b drift.Signal, tolerance float64) bool {
						return math.Abs(a.Z-b.Z) <= tolerance && math.Abs(a.Shift-b.Shift) <= 1e-12
					}
					// Differences of log likelihoods of 6000 inputs are exact to 1e-11 of them,
					// before the root is taken.
					if !near(got.Epistemic, s.Epistemic, 1e-9) || !near(got.Skewness, s.Skewness, 1e-9) ||
						!near(got.Predicted, s.Predicted, 1e-5) {
						t.Fatalf("window %d, class %d: %+v, want %+v", inputs, k, got, s)
					}
					want[k].Epistemic = want[k].Epistemic || math.Abs(got.Epistemic.Z) > drift.Alarm
					want[k].Skewness = want[k].Skewness || math.Abs(got.Skewness.Z) > drift.Alarm
					want[k].Predicted = want[k].Predicted || math.Abs(got.Predicted.Z) > drift.Alarm
				}
			}
			if got := m.Alarms(); !slices.Equal(got, want) {
				t.Fatalf("alarms %v, want %v", got, want)
			}
			if changed == slices.Equal(want, before) {
				t.Fatalf("alarms were %v and are %v: changed %v", before, want, changed)
			}
			before = want
		}
	})
}

// wanted returns the signals over a window at its last evaluation, which comes after each eighth of
// it.
func wanted(ref *policy.Reference, all [][]drift.Block, inputs, w int, filled bool, t *rapid.T) []drift.Signals {
	blocks, signals := inputs/drift.BlockInputs, make([]drift.Signals, len(ref.Classes))
	start := len(all) / (blocks / 8) * (blocks / 8)
	if filled != (start >= blocks) {
		t.Fatalf("window %d: filled %v after %d blocks", inputs, filled, len(all))
	}
	if !filled {
		return signals
	}
	for k, class := range ref.Classes {
		var sum drift.Block
		for _, block := range all[start-blocks : start] {
			sum.Epistemic += block[k].Epistemic
			sum.Skewness += block[k].Skewness
			sum.Predicted += block[k].Predicted
		}
		n, m := float64(inputs), float64(ref.Inputs)
		of := math.Sqrt((1/n + 1/m) / 12)
		rank := func(sum float64) drift.Signal { return drift.Signal{Z: (sum/n - 0.5) / of, Shift: sum/n - 0.5} }
		signals[k] = drift.Signals{
			Epistemic: rank(sum.Epistemic), Skewness: rank(sum.Skewness),
			Predicted: drift.Signal{Z: rootOfRatio(sum.Predicted, n, class.Predicted*m, m), Shift: sum.Predicted/n - class.Predicted},
		}
	}
	return signals
}

// rootOfRatio returns the signed root of the likelihood ratio, with x half a count closer.
func rootOfRatio(x, n, y, m float64) float64 {
	times := func(a, b float64) float64 {
		if a == 0 {
			return 0
		}
		return a * math.Log(b)
	}
	likelihood := func(x, n, share float64) float64 { return times(x, share) + times(n-x, 1-share) }
	expected := n * (x + y) / (n + m)
	if math.Abs(x-expected) <= 0.5 {
		return 0
	}
	near := x - 0.5
	if x < expected {
		near = x + 0.5
	}
	one := (near + y) / (n + m)
	ratio := likelihood(near, n, near/n) + likelihood(y, m, y/m) - likelihood(near, n, one) - likelihood(y, m, one)
	return math.Copysign(math.Sqrt(max(2*ratio, 0)), x-expected)
}

// TestShares compares the statistic of predicted shares with the roots of what scipy 1.10's
// chi2_contingency(correction=False, lambda_="log-likelihood") returns for the counts, with x half
// a count closer to what is expected.
func TestShares(t *testing.T) {
	for _, c := range []struct{ x, window, y, m, want float64 }{
		{2, 64, 0, 1797, 3.1849934600112664},
		{9, 64, 18, 1797, 5.126370958181575},
		{64, 64, 900, 1797, 8.974328147113718},
		{0, 256, 400, 2126, -9.722086920547655},
		{32, 1024, 30, 2126, 3.058941852749998},
		{152, 1024, 180, 2126, 5.294420167975212},
	} {
		m := drift.NewMonitor(&policy.Reference{Inputs: int(c.m), Classes: []policy.ClassReference{{Predicted: c.y / c.m}}})
		w := slices.Index(drift.Windows[:], int(c.window))
		for blocks := c.window / drift.BlockInputs; blocks > 0; blocks-- {
			m.Add([]drift.Block{{Predicted: c.x / c.window * drift.BlockInputs}})
		}
		if got := m.Signals(w)[0].Predicted.Z; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v of %v beside %v of %v: %v, want %v", c.x, c.window, c.y, c.m, got, c.want)
		}
	}
}

// TestSmallestVisible checks that a shift slightly larger than that is an alarm, and a slightly
// smaller one is not.
func TestSmallestVisible(t *testing.T) {
	for w, inputs := range drift.Windows {
		const reference = 1797
		for _, c := range []struct {
			times float64
			want  bool
		}{{0.999, false}, {1.001, true}, {-0.999, false}, {-1.001, true}} {
			m := drift.NewMonitor(&policy.Reference{Inputs: reference, Classes: make([]policy.ClassReference, 1)})
			shift := c.times * drift.SmallestVisible(inputs, reference)
			for range inputs / drift.BlockInputs {
				m.Add([]drift.Block{{Epistemic: 8 * (0.5 + shift), Skewness: 4}})
			}
			z := m.Signals(w)[0].Epistemic.Z
			if math.Abs(z) > drift.Alarm != c.want {
				t.Errorf("window %d: a shift of %v has z %v", inputs, shift, z)
			}
		}
	}
}
