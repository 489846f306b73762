package decomp_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
)

// TestStreamEqualsBatch compares the incremental path with the two-pass one: to 1e-12 relative, or,
// if a sum cancels, to that share of the size of its terms.
func TestStreamEqualsBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, k := rapid.IntRange(2, 60).Draw(t, "S"), rapid.IntRange(2, 12).Draw(t, "K")
		passes := drawPasses(t, s, k)
		safe, critical := drawSets(t, k)
		plan := mustPlan(t, decomp.Spec{
			Classes: k, Safe: safe, Critical: critical, AllPairs: rapid.Bool().Draw(t, "all"),
			Variance: decomp.Variance(rapid.IntRange(0, 1).Draw(t, "variance")),
		})
		batch, stream := batchResult(t, plan, passes), streamResult(t, plan, passes)
		want := numbers(plan, batch)
		o := oracle(passes, false)
		scale := map[string]float64{}
		for j := range k {
			scale[element("third_moment", j)] = o.absM3[j]
			if d := 3 * o.mean[j] * o.variance[j]; d > 0 {
				scale[element("skewness", j)] = o.absM3[j] / d
			}
		}
		for i, pair := range plan.Pairs() {
			scale[element("correlation", i)] = 1
			scale[element("pair", i)] = math.Sqrt(batch.C[pair.A] * batch.C[pair.B])
		}
		for name, got := range numbers(plan, stream) {
			if !within(got, want[name], 1e-12, 1e-12*scale[name]) && !within(got, want[name], 0, 1e-15) {
				t.Errorf("%s: streaming %v, two-pass %v: relative %v", name, got, want[name], relative(got, want[name]))
			}
		}
		if batch.Predicted != stream.Predicted || batch.Degenerate != stream.Degenerate || batch.Passes != stream.Passes {
			t.Errorf("flags differ: %+v, %+v", batch, stream)
		}
	})
}

// TestLean checks that a lean plan gives the same values for all that it computes.
func TestLean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, k := rapid.IntRange(2, 40).Draw(t, "S"), rapid.IntRange(2, 20).Draw(t, "K")
		passes := drawPasses(t, s, k)
		spec := decomp.Spec{Classes: k, AllPairs: rapid.Bool().Draw(t, "all")}
		spec.Safe, spec.Critical = drawSets(t, k)
		if rapid.Bool().Draw(t, "neither") && len(spec.Safe) > 1 {
			spec.Safe = spec.Safe[1:]
		}
		for _, safe := range spec.Safe[:rapid.IntRange(0, len(spec.Safe)).Draw(t, "weights")] {
			spec.Weights = append(spec.Weights, decomp.Weight{Safe: safe, Critical: spec.Critical[0], Weight: rapid.Float64Range(0, 5).Draw(t, "weight")})
		}
		full := mustPlan(t, spec)
		spec.Lean = true
		lean := mustPlan(t, spec)
		for _, compute := range []func(*decomp.Plan) *decomp.Result{
			func(p *decomp.Plan) *decomp.Result { return batchResult(t, p, passes) },
			func(p *decomp.Plan) *decomp.Result { return streamResult(t, p, passes) },
		} {
			want, got := compute(full), compute(lean)
			for i := range full.Pairs() {
				if !within(got.Confusion(i), want.Confusion(i), 1e-14, 0) || want.Confusion(i) != want.PairTerm[i] {
					t.Errorf("pair %d: lean %v, full %v", i, got.Confusion(i), want.Confusion(i))
				}
			}
			for score := range decomp.Score(decomp.NumScores) {
				if score != decomp.OvAMI && !within(got.Scores[score], want.Scores[score], 1e-14, 0) {
					t.Errorf("%s: lean %v, full %v", score, got.Scores[score], want.Scores[score])
				}
			}
			if !math.IsNaN(got.Scores[decomp.OvAMI]) || lean.Defines(decomp.OvAMI) || len(got.Correlation) != 0 {
				t.Errorf("a lean plan has ova_mi %v, %d correlations", got.Scores[decomp.OvAMI], len(got.Correlation))
			}
			if got.CBECClass != want.CBECClass || got.CCritMaxClass != want.CCritMaxClass || got.Predicted != want.Predicted || !slices.Equal(got.M, want.M) {
				t.Errorf("lean %+v, full %+v", got, want)
			}
		}
	})
}

// TestDefinitions compares both paths with the definitions in 400-bit arithmetic: every field to
// 1e-12 relative or 1e-15 absolute, the cancelling third moment to 1e-12 of its terms.
func TestDefinitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, k := rapid.IntRange(2, 12).Draw(t, "S"), rapid.IntRange(2, 5).Draw(t, "K")
		passes := drawPasses(t, s, k)
		safe, critical := drawSets(t, k)
		plan := mustPlan(t, decomp.Spec{Classes: k, Safe: safe, Critical: critical})
		o := oracle(passes, true)
		for name, r := range map[string]*decomp.Result{
			"two-pass": batchResult(t, plan, passes), "streaming": streamResult(t, plan, passes),
		} {
			check := func(field string, got, want, scale float64) {
				if !within(got, want, 1e-12, max(1e-15, 1e-12*scale)) {
					t.Errorf("%s %s: got %v, want %v", name, field, got, want)
				}
			}
			cSum, cMax, varMax, varSum, ova, probability := 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
			for _, j := range critical {
				cSum += o.c[j]
				cMax = max(cMax, o.c[j])
				varMax = max(varMax, o.variance[j])
				varSum += o.variance[j]
				ova += o.ova[j]
				probability += o.mean[j]
			}
			cbec := 0.0
			for _, i := range safe {
				for _, j := range critical {
					if vi, vj := o.variance[i], o.variance[j]; vi > 0 && vj > 0 {
						cbec += math.Sqrt(o.c[i]*o.c[j]) * max(0, -o.cov[i][j]/math.Sqrt(vi*vj))
					}
				}
			}
			sumC, eu, top := 0.0, 0.0, 0.0
			for j := range k {
				check("mean", r.Mean[j], o.mean[j], 0)
				check("variance", r.Variance[j], o.variance[j], 0)
				check("third moment", r.ThirdMoment[j], o.m3[j], o.absM3[j])
				check("c", r.C[j], o.c[j], 0)
				if d := 3 * o.mean[j] * o.variance[j]; d > 0 {
					check("skewness", r.Skewness[j], o.skewness[j], o.absM3[j]/d)
				}
				check("m", r.M[j], o.m[j], 0)
				sumC += o.c[j]
				eu += o.variance[j]
				top = max(top, o.mean[j])
			}
			check("entropy", r.Entropy, o.entropy, 0)
			check("expected entropy", r.ExpectedEntropy, o.expected, 0)
			check("mi", r.MI, o.mi, 0)
			check("sum_c", r.SumC, sumC, 0)
			for score, want := range map[decomp.Score]float64{
				decomp.Entropy: o.entropy, decomp.MI: o.mi, decomp.MaxProb: 1 - top, decomp.EUVar: eu,
				decomp.VarCrit: varMax, decomp.EUVarCrit: varSum, decomp.OvAMI: ova,
				decomp.CCritSum: cSum, decomp.CCritMax: cMax, decomp.CBEC: cbec, decomp.PCritical: probability,
			} {
				check(score.String(), r.Scores[score], want, 0)
			}
		}
	})
}

// TestRanges checks the documented ranges.
func TestRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, k := rapid.IntRange(2, 40).Draw(t, "S"), rapid.IntRange(2, 8).Draw(t, "K")
		passes := drawPasses(t, s, k)
		if rapid.Bool().Draw(t, "one-hot") { // passes disagree as much as they can
			for i := range passes {
				clear(passes[i])
				passes[i][rapid.IntRange(0, k-1).Draw(t, "class")] = 1
			}
		}
		safe, critical := drawSets(t, k)
		plan := mustPlan(t, decomp.Spec{Classes: k, Safe: safe, Critical: critical, AllPairs: true})
		r := streamResult(t, plan, passes)
		const slack = 1 + 1e-9
		limit := decomp.SkewnessCap(s, decomp.Sample) * slack
		for j := range k {
			n := float64(s)
			// Lemma "Variance Bound on the Simplex", with Bessel's factor.
			if v := r.Mean[j] * (1 - r.Mean[j]) * n / (n - 1); r.Variance[j] < 0 || r.Variance[j] > v*slack+1e-15 {
				t.Errorf("variance %v of class %d is not in [0,%v]", r.Variance[j], j, v)
			}
			if c := 0.5 * (1 - r.Mean[j]) * n / (n - 1); r.C[j] < 0 || r.C[j] > c*slack+1e-15 {
				t.Errorf("C %v of class %d is not in [0,%v]", r.C[j], j, c)
			}
			if r.Skewness[j] < 0 || r.Skewness[j] > limit+1e-12 {
				t.Errorf("skewness %v of class %d is not in [0,%v]", r.Skewness[j], j, limit)
			}
			if r.M[j] < 0 {
				t.Errorf("M %v of class %d is negative", r.M[j], j)
			}
		}
		if logK := math.Log(float64(k)); r.MI < 0 || r.MI > logK*slack+1e-6 || r.Entropy > logK+1e-6 {
			t.Errorf("MI %v, entropy %v: not in [0, log K = %v]", r.MI, r.Entropy, logK)
		}
		if !within(r.MI, r.Entropy-r.ExpectedEntropy, 1e-9, 1e-14) {
			t.Errorf("MI %v is not %v - %v", r.MI, r.Entropy, r.ExpectedEntropy)
		}
		// Rows are rounded to float32, so that they sum to 1 within the tolerance only.
		if p := r.Scores[decomp.PCritical]; p < 0 || p > 1+1e-6 {
			t.Errorf("p_critical %v: not in [0,1]", p)
		}
		for i, rho := range r.Correlation {
			if rho < -1 || rho > 1 || r.PairTerm[i] < 0 {
				t.Errorf("pair %v: correlation %v, term %v", plan.Pairs()[i], rho, r.PairTerm[i])
			}
			pair := plan.Pairs()[i]
			want := math.Sqrt(r.C[pair.A]*r.C[pair.B]) * max(0, -rho)
			if !within(r.PairTerm[i], want, 1e-9, 1e-15) {
				t.Errorf("pair %v: term %v, sqrt(C C) max(0,-rho) = %v", pair, r.PairTerm[i], want)
			}
		}
	})
}

// TestSymmetry checks that permuting passes changes nothing and permuting classes permutes the
// results.
func TestSymmetry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, k := rapid.IntRange(2, 20).Draw(t, "S"), rapid.IntRange(2, 6).Draw(t, "K")
		passes := drawPasses(t, s, k)
		plan := mustPlan(t, decomp.Spec{Classes: k, Safe: upTo(k)[:1], Critical: upTo(k)[1:]})
		r := batchResult(t, plan, passes)

		order := rapid.Permutation(upTo(s)).Draw(t, "passes")
		shuffled := make([][]float64, s)
		for i, j := range order {
			shuffled[i] = passes[j]
		}
		q := batchResult(t, plan, shuffled)
		for name, want := range numbers(plan, r) {
			if got := numbers(plan, q)[name]; !within(got, want, 1e-9, 1e-13) {
				t.Errorf("%s after permuting the passes: %v, before %v", name, got, want)
			}
		}

		perm := rapid.Permutation(upTo(k)).Draw(t, "classes")
		renamed := make([][]float64, s)
		for i, p := range passes {
			renamed[i] = make([]float64, k)
			for j := range k {
				renamed[i][perm[j]] = p[j]
			}
		}
		critical := make([]int, 0, k-1)
		for j := 1; j < k; j++ {
			critical = append(critical, perm[j])
		}
		plan2 := mustPlan(t, decomp.Spec{Classes: k, Safe: []int{perm[0]}, Critical: critical})
		q = batchResult(t, plan2, renamed)
		for j := range k {
			if r.C[j] != q.C[perm[j]] || r.Skewness[j] != q.Skewness[perm[j]] || r.M[j] != q.M[perm[j]] {
				t.Errorf("class %d: C, skewness or M changed with the order of classes", j)
			}
		}
		for i := range decomp.NumScores {
			if !within(q.Scores[i], r.Scores[i], 1e-12, 1e-15) {
				t.Errorf("%s after permuting classes: %v, before %v", decomp.Score(i), q.Scores[i], r.Scores[i])
			}
		}
	})
}

// TestIdenticalPasses checks that identical passes give exact zeros and are flagged.
func TestIdenticalPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, k := rapid.IntRange(2, 50).Draw(t, "S"), rapid.IntRange(2, 6).Draw(t, "K")
		row := drawPasses(t, 1, k)[0]
		oneHot := rapid.Bool().Draw(t, "one-hot")
		if oneHot {
			clear(row)
			row[k-1] = 1
		}
		passes := make([][]float64, s)
		for i := range passes {
			passes[i] = slices.Clone(row)
		}
		plan := mustPlan(t, decomp.Spec{Classes: k, Safe: upTo(k)[:1], Critical: upTo(k)[1:]})
		for _, r := range []*decomp.Result{batchResult(t, plan, passes), streamResult(t, plan, passes)} {
			if !slices.Equal(r.Mean, row) {
				t.Errorf("mean %v, want the row itself %v", r.Mean, row)
			}
			for _, v := range [][]float64{r.Variance, r.ThirdMoment, r.C, r.Skewness, r.M, r.PairTerm, r.Correlation} {
				for _, x := range v {
					if x != 0 {
						t.Errorf("%v is not exactly zero", v)
					}
				}
			}
			if r.MI != 0 || r.SumC != 0 || r.Scores[decomp.CBEC] != 0 || r.Scores[decomp.OvAMI] != 0 {
				t.Errorf("MI %v, sum_c %v, cbec, ova_mi: not exactly zero", r.MI, r.SumC)
			}
			if r.Dominant != -1 || r.CBECClass != -1 {
				t.Errorf("dominant %d, cbec class %d: want none", r.Dominant, r.CBECClass)
			}
			saturated := true // one-hot: only 0 and 1
			for _, v := range row {
				saturated = saturated && (v == 0 || v == 1)
			}
			if !r.Degenerate || r.Saturated != saturated {
				t.Errorf("degenerate %v, saturated %v, want true, %v", r.Degenerate, r.Saturated, saturated)
			}
		}
	})
}

// TestLogits checks that logits give the results of their softmax, whatever constant is added to
// them.
func TestLogits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, k := rapid.IntRange(2, 10).Draw(t, "S"), rapid.IntRange(2, 6).Draw(t, "K")
		// No shift near 0: rows that are probabilities by chance are refused as no logits.
		shift := rapid.OneOf(rapid.Float64Range(-700, -1), rapid.Float64Range(3, 700)).Draw(t, "shift")
		passes := drawPasses(t, s, k)
		logits := make([][]float64, s)
		for i, p := range passes {
			logits[i] = make([]float64, k)
			sum := 0.0
			for _, v := range p {
				sum += v
			}
			for j, v := range p {
				logits[i][j] = math.Log(v) + shift
				passes[i][j] = v / sum
			}
		}
		spec := decomp.Spec{Classes: k, Safe: upTo(k)[:1], Critical: upTo(k)[1:]}
		plan := mustPlan(t, spec)
		spec.Kind = decomp.Logits
		logitPlan := mustPlan(t, spec)
		want := batchResult(t, plan, passes)
		for _, r := range []*decomp.Result{batchResult(t, logitPlan, logits), streamResult(t, logitPlan, logits)} {
			for j := range k {
				if !within(r.Mean[j], want.Mean[j], 1e-9, 0) || !within(r.C[j], want.C[j], 1e-6, 1e-12) {
					t.Errorf("class %d: mean %v, C %v from logits, %v, %v from probabilities",
						j, r.Mean[j], r.C[j], want.Mean[j], want.C[j])
				}
			}
		}
	})
}
