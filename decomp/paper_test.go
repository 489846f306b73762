package decomp_test

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/record"
)

// golden is a line of recordings/golden/*.decompose.jsonl, which an independent float64
// implementation of the paper's definitions wrote.
type golden map[string]any

// numbers returns a field that is a number or a list of numbers.
func (g golden) numbers(field string) (all []float64) {
	list, ok := g[field].([]any)
	if !ok {
		list = []any{g[field]}
	}
	for _, v := range list {
		all = append(all, v.(float64))
	}
	return all
}

// TestGolden compares every field of 100 real inputs of each of three models, on both paths, to
// 1e-9 relative or 1e-15 absolute.
func TestGolden(t *testing.T) {
	for _, name := range []string{"ctg-mcdropout", "ctg-lowrank", "ctg-ensemble"} {
		t.Run(name, func(t *testing.T) {
			const dir = "../internal/recordings/"
			passes, err := record.ReadPasses(dir+name+".passes.npy", record.Options{})
			if err != nil {
				t.Fatal(err)
			}
			plan := mustPlan(t, decomp.Spec{Classes: 3, Safe: []int{0}, Critical: []int{1, 2}})
			batch, second, acc := plan.NewBatch(), plan.NewBatch(), decomp.NewAccumulator[float32](plan, 1, 8)
			if err := batch.Reset(decomp.Tensor{Passes: passes.S, Inputs: passes.N, Float32: passes.Float32}); err != nil {
				t.Fatal(err)
			}
			file, err := os.Open(dir + "golden/" + name + ".decompose.jsonl")
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			lines := 0
			for scan := bufio.NewScanner(file); scan.Scan(); lines++ {
				var g golden
				if err := json.Unmarshal(scan.Bytes(), &g); err != nil {
					t.Fatal(err)
				}
				index := int(g.numbers("index")[0])
				r, q := plan.NewResult(), plan.NewResult()
				if err := batch.Result(index, r); err != nil {
					t.Fatal(err)
				}
				acc.Reset(1, 8)
				for s := range passes.S {
					at := (s*passes.N + index) * 3
					if err := acc.Add(second, 0, passes.Float32[at:at+3]); err != nil {
						t.Fatal(err)
					}
				}
				if err := acc.Finish(second, 0, 1); err != nil {
					t.Fatal(err)
				}
				if err := second.Result(0, q); err != nil {
					t.Fatal(err)
				}
				compareGolden(t, "two-pass", g, r)
				compareGolden(t, "streaming", g, q)
			}
			if lines != 100 {
				t.Errorf("%d golden inputs, want 100", lines)
			}
		})
	}
}

func compareGolden(t *testing.T, path string, g golden, r *decomp.Result) {
	t.Helper()
	compare := func(field string, got, want []float64) {
		if len(got) != len(want) {
			t.Errorf("%s, input %v: %s: %d numbers, want %d", path, g["index"], field, len(got), len(want))
			return
		}
		for i := range want {
			if !within(got[i], want[i], 1e-9, 1e-15) {
				t.Errorf("%s, input %v: %s: got %v, want %v: relative %v", path, g["index"], field, got[i], want[i], relative(got[i], want[i]))
			}
		}
	}
	for field, got := range map[string][]float64{
		"predicted": {float64(r.Predicted)}, "mean": r.Mean, "variance": r.Variance, "third_moment": r.ThirdMoment, "c": r.C,
		"skewness": r.Skewness, "m": r.M, "entropy": {r.Entropy}, "expected_entropy": {r.ExpectedEntropy}, "mi": {r.MI}, "sum_c": {r.SumC},
	} {
		compare(field, got, g.numbers(field))
	}
	mean, scores := g.numbers("mean"), golden(g["scores"].(map[string]any))
	compare("p_critical", []float64{r.Scores[decomp.PCritical]}, []float64{mean[1] + mean[2]})
	if len(scores) != decomp.PaperScores {
		t.Errorf("%d golden scores, want %d", len(scores), decomp.PaperScores)
	}
	for s := range decomp.PaperScores {
		name := decomp.Score(s).String()
		compare(name, []float64{r.Scores[s]}, scores.numbers(name))
	}
}

// TestAxioms checks the axioms of the paper's Theorem "Axiomatic Profile" for sum_c. The paper's
// numbers are of the distribution itself, so they use the population variance.
func TestAxioms(t *testing.T) {
	plan := func(t rapid.TB, k int) *decomp.Plan {
		t.Helper()
		return mustPlan(t, decomp.Spec{Classes: k, Variance: decomp.Population})
	}

	t.Run("A0 non-negative, A1 zero iff certain", rapid.MakeCheck(func(t *rapid.T) {
		s, k := rapid.IntRange(2, 20).Draw(t, "S"), rapid.IntRange(2, 6).Draw(t, "K")
		passes := drawPasses(t, s, k)
		r := batchResult(t, plan(t, k), passes)
		if r.SumC < 0 || r.SumC == 0 && !r.Degenerate {
			t.Errorf("sum_c %v, degenerate %v", r.SumC, r.Degenerate)
		}
	}))

	t.Run("A3 strictly monotone under mean-preserving spreads", rapid.MakeCheck(func(t *rapid.T) {
		s, k := rapid.IntRange(2, 10).Draw(t, "S"), rapid.IntRange(2, 6).Draw(t, "K")
		passes := drawPasses(t, s, k)
		// Every pass becomes two, moved by +z and -z between two classes.
		i, j := rapid.IntRange(0, k-1).Draw(t, "from"), rapid.IntRange(0, k-2).Draw(t, "to")
		if j >= i {
			j++
		}
		var spread [][]float64
		moved := false
		for _, p := range passes {
			z := 0.5 * min(p[i], p[j], 1-p[i], 1-p[j])
			moved = moved || z > 1e-6
			for _, sign := range []float64{1, -1} {
				q := append([]float64(nil), p...)
				q[i] += sign * z
				q[j] -= sign * z
				spread = append(spread, q)
			}
		}
		if !moved {
			t.Skip("nothing to spread")
		}
		before, after := batchResult(t, plan(t, k), passes), batchResult(t, plan(t, k), spread)
		if !(after.SumC > before.SumC) {
			t.Errorf("sum_c %v after a spread, %v before", after.SumC, before.SumC)
		}
	}))

	t.Run("A2 is violated: vertices beat uniform", func(t *testing.T) {
		for _, k := range []int{2, 3, 7} {
			vertices := make([][]float64, k)
			for i := range vertices {
				vertices[i] = make([]float64, k)
				vertices[i][i] = 1
			}
			r := batchResult(t, plan(t, k), vertices)
			// (K-1)/2, up to Epsilon in C_k: 1e-10 relative to mu = 1/K.
			if want := float64(k-1) / 2; !within(r.SumC, want, 1e-8, 0) {
				t.Errorf("K=%d: sum_c of the vertex mixture %v, want %v", k, r.SumC, want)
			}
		}
	})

	t.Run("A5 is violated: the paper's counterexample", func(t *testing.T) {
		before := batchResult(t, plan(t, 2), [][]float64{{0.2, 0.8}, {0.4, 0.6}})
		after := batchResult(t, plan(t, 2), [][]float64{{0.35, 0.65}, {0.55, 0.45}})
		// 0.0238 and 0.0202 in the paper; 0.005/0.3+0.005/0.7 and 0.005/0.45+0.005/0.55.
		if !within(before.SumC, 0.005/0.3+0.005/0.7, 1e-8, 0) || !within(after.SumC, 0.005/0.45+0.005/0.55, 1e-8, 0) {
			t.Errorf("sum_c %v and %v, want 0.0238 and 0.0202", before.SumC, after.SumC)
		}
	})
}
