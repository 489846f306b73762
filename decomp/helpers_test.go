package decomp_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
)

func mustPlan(t rapid.TB, spec decomp.Spec) *decomp.Plan {
	t.Helper()
	p, err := decomp.NewPlan(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// flatten returns passes[s][k] of one input as [S][K].
func flatten(passes [][]float64) []float64 {
	var flat []float64
	for _, p := range passes {
		flat = append(flat, p...)
	}
	return flat
}

// batchResult computes one input by the two-pass path.
func batchResult(t rapid.TB, plan *decomp.Plan, passes [][]float64) *decomp.Result {
	t.Helper()
	b, r := plan.NewBatch(), plan.NewResult()
	if err := b.Reset(decomp.Tensor{Passes: len(passes), Inputs: 1, Float64: flatten(passes)}); err != nil {
		t.Fatal(err)
	}
	if err := b.Result(0, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// stream returns an accumulator of one input that joins parts of seven passes.
type stream struct {
	*decomp.Accumulator[float64]
	batch *decomp.Batch
}

func newStream(plan *decomp.Plan) stream {
	return stream{decomp.NewAccumulator[float64](plan, 1, 7), plan.NewBatch()}
}

func (s stream) Add(row []float64) error { return s.Accumulator.Add(s.batch, 0, row) }

func (s stream) Passes() int { return s.Accumulator.Passes(0) }

func (s stream) Finish(r *decomp.Result) error {
	if err := s.Accumulator.Finish(s.batch, 0, 1); err != nil {
		return err
	}
	return s.batch.Result(0, r)
}

// streamResult computes one input by the incremental path.
func streamResult(t rapid.TB, plan *decomp.Plan, passes [][]float64) *decomp.Result {
	t.Helper()
	a, r := newStream(plan), plan.NewResult()
	for _, p := range passes {
		if err := a.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Finish(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// drawPasses draws S rows of K probabilities from logits of some spread, rounded
// to float32 as model servers send them.
func drawPasses(t *rapid.T, s, k int) [][]float64 {
	seed := rapid.Uint64().Draw(t, "seed")
	centre := rapid.Float64Range(0, 8).Draw(t, "centre")
	spread := rapid.SampledFrom([]float64{1e-3, 0.1, 1, 4}).Draw(t, "spread")
	return randomPasses(rand.New(rand.NewPCG(seed, 1)), s, k, centre, spread)
}

func randomPasses(rng *rand.Rand, s, k int, centre, spread float64) [][]float64 {
	base := make([]float64, k)
	for j := range base {
		base[j] = centre * rng.NormFloat64()
	}
	passes := make([][]float64, s)
	for i := range passes {
		row, sum := make([]float64, k), 0.0
		for j := range row {
			row[j] = math.Exp(base[j] + spread*rng.NormFloat64())
			sum += row[j]
		}
		for j := range row {
			row[j] = float64(float32(row[j] / sum))
		}
		passes[i] = row
	}
	return passes
}

// drawSets draws disjoint, non-empty safe and critical sets.
func drawSets(t *rapid.T, k int) (safe, critical []int) {
	perm := rapid.Permutation(upTo(k)).Draw(t, "classes")
	cut := rapid.IntRange(1, k-1).Draw(t, "cut")
	return perm[:cut], perm[cut:]
}

func upTo(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// at names an element of a vector.
func element(name string, k int) string { return name + "[" + strconv.Itoa(k) + "]" }

// numbers lists every number of a result with its name.
func numbers(plan *decomp.Plan, r *decomp.Result) map[string]float64 {
	m := map[string]float64{
		"entropy": r.Entropy, "expected_entropy": r.ExpectedEntropy, "mi": r.MI, "sum_c": r.SumC,
		"sum_c_weighted": r.SumCWeighted(), "sum_c_top": r.SumCTop(3),
	}
	add := func(name string, v []float64) {
		for k, x := range v {
			m[element(name, k)] = x
		}
	}
	add("mean", r.Mean)
	add("variance", r.Variance)
	add("third_moment", r.ThirdMoment)
	add("c", r.C)
	add("skewness", r.Skewness)
	add("m", r.M)
	add("pair", r.PairTerm)
	add("correlation", r.Correlation)
	for s := range decomp.NumScores {
		if plan.Defines(decomp.Score(s)) {
			m["score "+decomp.Score(s).String()] = r.Scores[s]
		}
	}
	return m
}

func TestScoreNames(t *testing.T) {
	if !decomp.CBEC.InPaper() || decomp.PCritical.InPaper() {
		t.Error("the paper's scores do not end with cbec")
	}
	for s := range decomp.NumScores {
		got, ok := decomp.ParseScore(decomp.Score(s).String())
		if !ok || int(got) != s {
			t.Errorf("score %d: name %q parses to %v, %v", s, decomp.Score(s), got, ok)
		}
	}
	if _, ok := decomp.ParseScore("sum_c"); ok {
		t.Error("sum_c is no deferral score")
	}
}
