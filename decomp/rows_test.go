package decomp_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/record"
)

// ways computes the inputs of [passes][inputs][classes], values that a float32 holds, in every way that
// passes can come. It returns by way what becomes of each input: its numbers, or its error. It fails
// the test if an argument is written to, if complete passes give other numbers in another layout or
// type, if Check refuses other inputs than Result, or if an accumulator that keeps all passes differs.
func ways(t *rapid.T, plan *decomp.Plan, passes [][][]float64, kept, block int) map[string]string {
	s, n := len(passes), len(passes[0])
	said := map[string]string{}
	b, r := plan.NewBatch(), plan.NewResult()
	read := func(way string, at, i int, err error) {
		if err == nil {
			err = b.Result(at, r)
		}
		text := fmt.Sprint("error: ", err)
		if err == nil {
			text = fmt.Sprint(r.Mean, r.Variance, r.ThirdMoment, r.C, r.M, r.PairTerm, r.MI, r.Scores, r.Passes, r.Degenerate)
		}
		said[fmt.Sprintf("%s: input %d", way, i)] = text
		if first, known := said[fmt.Sprint("input ", i)]; !known {
			said[fmt.Sprint("input ", i)] = text
		} else if text != first && kept >= s {
			t.Fatalf("%s: input %d: %s, the first way %s", way, i, text, first)
		}
	}
	single := func(values []float64) (rounded []float32) {
		for _, v := range values {
			rounded = append(rounded, float32(v))
		}
		return rounded
	}
	var snk, nsk []float64
	for _, inputs := range passes {
		snk = append(snk, slices.Concat(inputs...)...)
	}
	for i := range n {
		for _, inputs := range passes {
			nsk = append(nsk, inputs[i]...)
		}
	}
	for way, tensor := range map[string]decomp.Tensor{
		"SNK, float32": {Float32: single(snk)}, "SNK, float64": {Float64: slices.Clone(snk)},
		"NSK, float32": {Layout: decomp.NSK, Float32: single(nsk)}, "NSK, float64": {Layout: decomp.NSK, Float64: slices.Clone(nsk)},
	} {
		tensor.Passes, tensor.Inputs = s, n
		singles, doubles := slices.Clone(tensor.Float32), slices.Clone(tensor.Float64)
		for _, way := range []string{way, way + ", checked"} {
			if err := b.Reset(tensor); err != nil {
				t.Fatal(err)
			}
			refused := map[int]string{}
			checks := way[len(way)-1] == 'd'
			if checks && b.Check(func(i int, err error) { refused[i] = fmt.Sprint("error: ", err) }) != (len(refused) == 0) {
				t.Fatalf("%s: Check refused %v", way, refused)
			}
			for i := range n {
				read(way, i, i, nil)
				text := said[fmt.Sprintf("%s: input %d", way, i)]
				if why, bad := refused[i]; checks && (bad != strings.HasPrefix(text, "error: ") || bad && why != text) {
					t.Fatalf("%s: input %d: Check says %q, Result %s", way, i, why, text)
				}
			}
		}
		if !slices.Equal(singles, tensor.Float32) || !slices.Equal(doubles, tensor.Float64) {
			t.Fatalf("%s: the tensor was written to", way)
		}
	}
	filled, from := decomp.NewAccumulator[float32](plan, n, kept), source(single(snk))
	for had := 0; had < s; had += block {
		if _, err := filled.Fill(b, 0, n, min(block, s-had), &from); err != nil {
			t.Fatal(err)
		}
	}
	added := decomp.NewAccumulator[float64](plan, n, kept)
	for i := range n {
		fault := filled.Fault(i)
		if fault == nil {
			fault = filled.Finish(b, i, 1)
		}
		read("Fill", 0, i, fault)
		fault = nil
		for pass := 0; pass < s && fault == nil; pass++ {
			row := slices.Clone(passes[pass][i])
			fault = added.Add(b, i, row)
			if !slices.Equal(row, passes[pass][i]) {
				t.Fatal("Add wrote to its row")
			}
		}
		if fault == nil {
			fault = added.Finish(b, i, 1)
		}
		read("Add", 0, i, fault)
	}
	return said
}

// TestWays takes rows of every kind in every way that they can come, some of them bad: an input with a
// bad row affects no other. See ways.
func TestWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, n, k := rapid.IntRange(2, 5).Draw(t, "S"), rapid.SampledFrom([]int{1, 3, 400}).Draw(t, "N"), rapid.SampledFrom([]int{2, 3, 40}).Draw(t, "K")
		kind := rapid.SampledFrom([]decomp.Kind{decomp.Probabilities, decomp.Logits}).Draw(t, "kind")
		plan := mustPlan(t, decomp.Spec{Classes: k, Kind: kind, Critical: []int{1}, Safe: []int{0}})
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		passes := make([][][]float64, s)
		for pass := range passes {
			passes[pass] = randomPasses(rng, n, k, 1, 1)
			for _, row := range passes[pass] {
				if kind == decomp.Logits {
					row[0] = float64(float32(row[0] + 4)) // no probabilities
				}
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "bad") {
			i := rng.IntN(n) // two bad rows may meet in an input: the first counts
			passes[rng.IntN(s)][i][rng.IntN(k)] = []float64{-1, 3, math.Inf(1), math.Inf(-1)}[rng.IntN(4)]
		}
		ways(t, plan, passes, rapid.SampledFrom([]int{2, s}).Draw(t, "kept"), rapid.IntRange(1, s).Draw(t, "block"))
	})
}

// TestClamped takes rows with values outside of [0,1] by no more than the tolerance, as 1.0000001 of
// a softmax in half precision: the surest inputs of a model were refused for it. Clamped rows give the
// same numbers, bit for bit, whatever the way. Beyond the tolerance they are refused.
func TestClamped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, n, k := rapid.IntRange(2, 9).Draw(t, "S"), rapid.SampledFrom([]int{1, 3, 50}).Draw(t, "N"), rapid.SampledFrom([]int{2, 3, 40}).Draw(t, "K")
		plan := mustPlan(t, decomp.Spec{Classes: k, Critical: []int{1}, Safe: []int{0}, SumTolerance: 0.01})
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		off, clamped := make([][][]float64, s), make([][][]float64, s)
		for pass := range off {
			off[pass], clamped[pass] = randomPasses(rng, n, k, 3, 1), make([][]float64, n)
			for i, row := range off[pass] {
				clamped[pass][i] = slices.Clone(row)
				if rng.IntN(3) > 0 {
					continue
				}
				clear(row)
				high, low := rng.IntN(k), rng.IntN(k)
				row[high] = float64(float32(1 + 0.009*rng.Float64()))
				if low != high {
					row[low] = float64(float32(-0.009 * rng.Float64()))
				}
				clamped[pass][i] = make([]float64, k)
				clamped[pass][i][high] = 1
			}
		}
		kept, block := rapid.SampledFrom([]int{2, s}).Draw(t, "kept"), rapid.IntRange(1, s).Draw(t, "block")
		want := ways(t, plan, clamped, kept, block)
		for way, got := range ways(t, plan, off, kept, block) {
			if got != want[way] {
				t.Fatalf("%s: %s, want %s", way, got, want[way])
			}
		}
	})
	for name, c := range map[string]struct {
		row   []float64
		fault decomp.RowFault
	}{
		"too far above":              {[]float64{1.002, -0.0005, 0, 0}, decomp.AboveOne},
		"too far below":              {[]float64{0.5, 0.5015, -0.0015, 0}, decomp.Negative},
		"the sum":                    {[]float64{1.0009, 0.0009, 0, 0}, decomp.SumNotOne},
		"the sum once it is clamped": {[]float64{0.5008, 0.5008, -0.0009, -0.0009}, decomp.Negative},
	} {
		plan := mustPlan(t, decomp.Spec{Classes: 4})
		row := (*decomp.RowError)(nil)
		err := newStream(plan).Add(c.row)
		if !errors.As(err, &row) || row.Fault != c.fault {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProbabilitiesAsLogits takes probabilities where logits were declared: their softmax hardly
// varies, and every input was retained. An input is refused if all its passes are probabilities, also
// rounded ones; a pass that is not lets it through, wherever it stands, like logits that happen to sum
// to 1.
func TestProbabilitiesAsLogits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, n, k := rapid.IntRange(2, 9).Draw(t, "S"), rapid.SampledFrom([]int{1, 3, 50}).Draw(t, "N"), rapid.SampledFrom([]int{2, 3, 40}).Draw(t, "K")
		plan := mustPlan(t, decomp.Spec{Classes: k, Kind: decomp.Logits, Critical: []int{1}, Safe: []int{0}})
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		refused := make([]bool, n)
		passes := make([][][]float64, s)
		for pass := range passes {
			passes[pass] = randomPasses(rng, n, k, 3, 1)
		}
		for i := range n {
			switch rng.IntN(4) {
			case 0:
				refused[i] = true
			case 1: // a softmax in bfloat16, whose largest value came out above 1
				refused[i] = true
				for pass := range passes {
					passes[pass][i] = make([]float64, k)
					passes[pass][i][rng.IntN(k)] = float64(float32(1 + 0.0078*rng.Float64()))
				}
			case 2:
				row, class := passes[rng.IntN(s)][i], rng.IntN(k)
				row[class] = float64(float32(row[class] + 0.25*float64(1-2*rng.IntN(2))))
			default:
				for pass := range passes {
					for c := range k {
						passes[pass][i][c] = float64(float32(3 * rng.NormFloat64()))
					}
				}
			}
		}
		kept, block := rapid.SampledFrom([]int{2, s}).Draw(t, "kept"), rapid.IntRange(1, s).Draw(t, "block")
		for way, said := range ways(t, plan, passes, kept, block) {
			var i int
			_, _ = fmt.Sscanf(way[len(way)-2:], "%d", &i)
			if want := fmt.Sprintf("error: all %d passes", s); (said[:min(len(said), len(want))] == want) != refused[i] {
				t.Fatalf("%s: %s, refused should be %v", way, said, refused[i])
			}
		}
	})
}

// TestRecordingsAsLogits takes every recording as what a model gives before its softmax, with a mean of
// 0, as trained networks nearly have it: no input is refused. The probabilities themselves are refused
// in full, also in bfloat16.
func TestRecordingsAsLogits(t *testing.T) {
	paths, err := filepath.Glob("../internal/recordings/*.passes.npy")
	if err != nil || len(paths) < 10 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		p, err := record.ReadPasses(path, record.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			change  func(row []float64)
			refused int
		}{
			"logits": {func(row []float64) {
				mean := 0.0
				for k, v := range row {
					row[k] = math.Log(v + 1e-12)
					mean += row[k] / float64(len(row))
				}
				for k := range row {
					row[k] -= mean
				}
			}, 0},
			"probabilities": {func([]float64) {}, p.N},
			"bfloat16": {func(row []float64) {
				for k, v := range row {
					row[k] = float64(math.Float32frombits(math.Float32bits(float32(v)) >> 16 << 16))
				}
			}, p.N},
		} {
			var values []float64
			for pass := range p.S {
				for i := range p.N {
					start := len(values)
					values = p.Row(values, pass, i)
					c.change(values[start:])
				}
			}
			b, n := mustPlan(t, decomp.Spec{Classes: p.K, Kind: decomp.Logits}).NewBatch(), 0
			if err := b.Reset(decomp.Tensor{Passes: p.S, Inputs: p.N, Float64: values}); err != nil {
				t.Fatal(err)
			}
			if b.Check(func(int, error) { n++ }); n != c.refused {
				t.Errorf("%s as %s: %d of %d inputs refused, want %d", path, name, n, p.N, c.refused)
			}
		}
	}
}
