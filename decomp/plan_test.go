package decomp_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/decomp"
)

func TestNewPlanFaults(t *testing.T) {
	for want, spec := range map[string]decomp.Spec{
		"1 classes":                      {Classes: 1},
		"critical class 3":               {Classes: 3, Critical: []int{3}},
		"safe class -1":                  {Classes: 3, Safe: []int{-1}},
		"class 1 is named twice":         {Classes: 3, Safe: []int{0, 1}, Critical: []int{1}},
		"sum tolerance -1":               {Classes: 3, SumTolerance: -1},
		"sum tolerance NaN":              {Classes: 3, SumTolerance: math.NaN()},
		"weight of pair (1,0)":           {Classes: 3, Safe: []int{0}, Critical: []int{1}, Weights: []decomp.Weight{{1, 0, 2}}},
		"weight of pair (0,7)":           {Classes: 3, Safe: []int{0}, Critical: []int{1}, Weights: []decomp.Weight{{0, 7, 2}}},
		"weight -2 of pair (0,1)":        {Classes: 3, Safe: []int{0}, Critical: []int{1}, Weights: []decomp.Weight{{0, 1, -2}}},
		"must be finite and not negativ": {Classes: 3, Safe: []int{0}, Critical: []int{1}, Weights: []decomp.Weight{{0, 1, math.Inf(1)}}},
	} {
		if _, err := decomp.NewPlan(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", spec, err, want)
		}
	}
}

// TestRowRefusals: every fault names pass, class, value and expectation, the
// same way on both paths, and leaves the accumulator as it was.
func TestRowRefusals(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	good := []float64{0.2, 0.3, 0.5}
	for name, c := range map[string]struct {
		kind decomp.Kind
		row  []float64
		want string
	}{
		"NaN":             {decomp.Probabilities, []float64{0.2, nan, 0.5}, "pass 1: class 1 is NaN, expected a finite number"},
		"infinite":        {decomp.Probabilities, []float64{inf, 0.3, 0.5}, "pass 1: class 0 is +Inf, expected a finite number"},
		"negative":        {decomp.Probabilities, []float64{-0.25, 0.75, 0.5}, "pass 1: class 0 is -0.25, expected a probability in [0,1]"},
		"percentages":     {decomp.Probabilities, []float64{0.5, 29.5, 69.9}, "pass 1: class 1 is 29.5, expected a probability in [0,1] (percentages? divide by 100)"},
		"no percentages":  {decomp.Probabilities, []float64{101, -0.5, -0.5}, "pass 1: class 0 is 101, expected a probability in [0,1]$"},
		"above one":       {decomp.Probabilities, []float64{0, 0, 1.5}, "pass 1: class 2 is 1.5, expected a probability in [0,1]"},
		"sum":             {decomp.Probabilities, []float64{0.25, 0.25, 0.25}, "pass 1: values sum to 0.75, expected 1 within 0.001"},
		"too few":         {decomp.Probabilities, []float64{0.5, 0.5}, "pass 1: 2 values, expected 3, one for each class"},
		"errors cancel":   {decomp.Probabilities, []float64{-0.5, 0.5, 1}, "class 0 is -0.5"},
		"infinite logit":  {decomp.Logits, []float64{0, -inf, 1}, "pass 1: class 1 is -Inf, expected a finite number"},
		"NaN logit":       {decomp.Logits, []float64{0, 3, nan}, "pass 1: class 2 is NaN, expected a finite number"},
		"too many logits": {decomp.Logits, []float64{0, 3, 1, 2}, "pass 1: 4 values, expected 3"},
	} {
		plan := mustPlan(t, decomp.Spec{Classes: 3, Kind: c.kind})
		a := newStream(plan)
		if err := a.Add(good); err != nil {
			t.Fatal(err)
		}
		var e *decomp.RowError
		err := a.Add(c.row)
		if !errors.As(err, &e) || !strings.Contains(err.Error()+"$", c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if a.Passes() != 1 {
			t.Errorf("%s: the refused pass was counted", name)
		}
		if err := a.Add(good); err != nil {
			t.Fatal(err)
		}
		r := plan.NewResult()
		if err := a.Finish(r); err != nil || !r.Degenerate {
			t.Errorf("%s: after the refused pass: %v, degenerate %v: something of it stayed", name, err, r.Degenerate)
		}
		if len(c.row) != 3 {
			continue
		}
		// In a batch the other inputs are not touched.
		b := plan.NewBatch()
		data := flatten([][]float64{good, good, good, c.row, good, good})
		if err := b.Reset(decomp.Tensor{Passes: 2, Inputs: 3, Layout: decomp.NSK, Float64: data}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			err := b.Result(i, r)
			if i == 1 && (!errors.As(err, &e) || !strings.Contains(err.Error()+"$", c.want)) {
				t.Errorf("%s: batch: got %v, want %q", name, err, c.want)
			}
			if i != 1 && err != nil {
				t.Errorf("%s: input %d: %v", name, i, err)
			}
		}
	}
}

// TestNegativeZero: -0 is 0, a probability.
func TestNegativeZero(t *testing.T) {
	plan := mustPlan(t, decomp.Spec{Classes: 2})
	r := streamResult(t, plan, [][]float64{{math.Copysign(0, -1), 1}, {0, 1}})
	if !r.Degenerate || !r.Saturated {
		t.Errorf("degenerate %v, saturated %v", r.Degenerate, r.Saturated)
	}
}

func TestPassesAndShapes(t *testing.T) {
	plan := mustPlan(t, decomp.Spec{Classes: 2})
	a, r := newStream(plan), plan.NewResult()
	var e *decomp.PassesError
	if err := a.Finish(r); !errors.As(err, &e) || err.Error() != "0 passes, expected at least 2" {
		t.Errorf("no pass: %v", err)
	}
	if err := a.Add([]float64{0.5, 0.5}); err != nil {
		t.Fatal(err)
	}
	if err := a.Finish(r); !errors.As(err, &e) {
		t.Errorf("one pass: %v", err)
	}
	b := plan.NewBatch()
	if err := b.Reset(decomp.Tensor{Passes: 1, Inputs: 1, Float64: []float64{0.5, 0.5}}); !errors.As(err, &e) {
		t.Errorf("one pass in a batch: %v", err)
	}
	var shape *decomp.ShapeError
	for _, c := range []decomp.Tensor{
		{Passes: 2, Inputs: 1, Float64: []float64{0.5, 0.5}},
		{Passes: 2, Inputs: 0, Float64: []float64{0.5, 0.5, 0.5, 0.5}},
		{Passes: -2, Inputs: -1, Float64: []float64{0.5, 0.5, 0.5, 0.5}},
		{Passes: math.MaxInt / 2, Inputs: 4, Float32: []float32{1, 0}},
	} {
		if err := b.Reset(c); !errors.As(err, &shape) {
			t.Errorf("%d passes x %d inputs, %d values: %v", c.Passes, c.Inputs, len(c.Float64), err)
		}
	}
}

// TestWeights: cbec weighs pairs, their terms stay as they are.
func TestWeights(t *testing.T) {
	passes := [][]float64{{0.7, 0.2, 0.1}, {0.3, 0.5, 0.2}, {0.5, 0.1, 0.4}}
	spec := decomp.Spec{Classes: 3, Safe: []int{0}, Critical: []int{1, 2}}
	plain := batchResult(t, mustPlan(t, spec), passes)
	spec.Weights = []decomp.Weight{{Safe: 0, Critical: 2, Weight: 10}}
	weighted := batchResult(t, mustPlan(t, spec), passes)
	if got, want := weighted.Scores[decomp.CBEC], plain.PairTerm[0]+10*plain.PairTerm[1]; got != want || plain.PairTerm[1] == 0 {
		t.Errorf("weighted cbec %v, want %v", got, want)
	}
	if weighted.PairTerm[1] != plain.PairTerm[1] {
		t.Error("the weight changed the pair's own term")
	}
	if plain.CBECClass != 1 || weighted.CBECClass != 2 {
		t.Errorf("largest share: class %d, weighted %d; want 1 and 2", plain.CBECClass, weighted.CBECClass)
	}
}

// TestTwoClasses: with K=2 the correlation is -1 and CBEC = sqrt(C_0 C_1).
func TestTwoClasses(t *testing.T) {
	passes := [][]float64{{0.75, 0.25}, {0.5, 0.5}, {0.875, 0.125}}
	r := batchResult(t, mustPlan(t, decomp.Spec{Classes: 2, Safe: []int{0}, Critical: []int{1}}), passes)
	if want := math.Sqrt(r.C[0] * r.C[1]); !within(r.Scores[decomp.CBEC], want, 1e-12, 0) || !within(r.Correlation[0], -1, 1e-12, 0) {
		t.Errorf("cbec %v, want %v; correlation %v", r.Scores[decomp.CBEC], want, r.Correlation[0])
	}
}

// TestUndefinedScores: without the sets that a score needs it is NaN.
func TestUndefinedScores(t *testing.T) {
	passes := [][]float64{{0.7, 0.2, 0.1}, {0.3, 0.5, 0.2}}
	for _, c := range []struct {
		spec    decomp.Spec
		defined int
	}{{decomp.Spec{Classes: 3}, 4}, {decomp.Spec{Classes: 3, Critical: []int{1}}, 9}, {decomp.Spec{Classes: 3, Critical: []int{1}, Safe: []int{0}}, 10}} {
		plan := mustPlan(t, c.spec)
		r := batchResult(t, plan, passes)
		defined := 0
		for s := range decomp.NumScores {
			if plan.Defines(decomp.Score(s)) {
				defined++
			}
			if plan.Defines(decomp.Score(s)) == math.IsNaN(r.Scores[s]) {
				t.Errorf("%+v: %s is %v", c.spec, decomp.Score(s), r.Scores[s])
			}
		}
		if defined != c.defined {
			t.Errorf("%+v: %d scores defined, want %d", c.spec, defined, c.defined)
		}
	}
}

// TestSkewnessCap: the cap is reached by one one-hot pass among zeros.
func TestSkewnessCap(t *testing.T) {
	if got := decomp.SkewnessCap(5, decomp.Sample); got != 0.8 {
		t.Errorf("cap at S=5 is %v, want 0.8", got)
	}
	for _, v := range []decomp.Variance{decomp.Sample, decomp.Population} {
		for _, s := range []int{2, 3, 5, 30} {
			passes := make([][]float64, s)
			for i := range passes {
				passes[i] = []float64{0, 1}
			}
			passes[0] = []float64{1, 0}
			r := batchResult(t, mustPlan(t, decomp.Spec{Classes: 2, Variance: v}), passes)
			if want := decomp.SkewnessCap(s, v); !within(r.Skewness[0], want, 1e-12, 1e-15) {
				t.Errorf("S=%d, variance %d: skewness %v, cap %v", s, v, r.Skewness[0], want)
			}
		}
	}
}

// TestHighK: the two remedies for the growth of sum_c, and the diagnostic C3.
func TestHighK(t *testing.T) {
	passes := [][]float64{{0.5, 0.25, 0.25}, {0.25, 0.25, 0.5}, {0.75, 0.125, 0.125}}
	r := batchResult(t, mustPlan(t, decomp.Spec{Classes: 3}), passes)
	if got, want := r.SumCTop(1), r.C[0]; got != want {
		t.Errorf("top 1: %v, want %v", got, want)
	}
	if got, want := r.SumCTop(2), r.C[0]+r.C[2]; got != want {
		t.Errorf("top 2: %v, want %v", got, want)
	}
	if got := r.SumCTop(99); !within(got, r.SumC, 1e-15, 0) {
		t.Errorf("top of all: %v, want %v", got, r.SumC)
	}
	want := r.Mean[0]*r.C[0] + r.Mean[1]*r.C[1] + r.Mean[2]*r.C[2]
	if got := r.SumCWeighted(); !within(got, want, 1e-15, 0) {
		t.Errorf("weighted: %v, want %v", got, want)
	}
	for k, c3 := range r.C3(make([]float64, 3)) {
		m := r.Mean[k] + decomp.Epsilon
		if want := r.C[k] - r.ThirdMoment[k]/(6*m*m); c3 != want {
			t.Errorf("C3 of class %d: %v, want %v", k, c3, want)
		}
	}
}

// TestTies go to the lowest class, in every arg max.
func TestTies(t *testing.T) {
	passes := [][]float64{{0.25, 0.5, 0.25, 0}, {0.5, 0.25, 0, 0.25}, {0.25, 0.25, 0.25, 0.25}, {0.25, 0.25, 0.25, 0.25}}
	// Classes 0 and 1 have the same passes in another order, and so have 2 and 3.
	r := batchResult(t, mustPlan(t, decomp.Spec{Classes: 4, Safe: []int{0, 1}, Critical: []int{2, 3}}), passes)
	if r.Mean[0] != r.Mean[1] || r.C[2] != r.C[3] {
		t.Fatalf("no ties: means %v, C %v", r.Mean, r.C)
	}
	if r.Predicted != 0 || r.CCritMaxClass != 2 || r.Deciding(decomp.CCritMax) != 2 {
		t.Errorf("predicted %d, c_crit_max by %d: want 0, 2", r.Predicted, r.CCritMaxClass)
	}
	if r.Dominant != 2 {
		t.Errorf("dominant %d, want 2", r.Dominant)
	}
	// CBEC: by symmetry both critical classes have the same share.
	passes = [][]float64{{0.5, 0.25, 0.25}, {0.75, 0.125, 0.125}}
	r = batchResult(t, mustPlan(t, decomp.Spec{Classes: 3, Safe: []int{0}, Critical: []int{1, 2}}), passes)
	if r.PairTerm[0] != r.PairTerm[1] || r.PairTerm[0] == 0 || r.CBECClass != 1 {
		t.Errorf("pair terms %v, cbec by %d: want 1", r.PairTerm, r.CBECClass)
	}
}

// TestTiesOfVotes: one-hot passes, as of an ensemble that votes, tie often; both
// ways in must see it, and go to the lowest class.
func TestTiesOfVotes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	plan := mustPlan(t, decomp.Spec{Classes: 4, Safe: []int{0}, Critical: []int{1, 2, 3}})
	ties := 0
	for range 2000 {
		votes := [4]int{}
		var passes [][]float64
		for range 2 + rng.IntN(29) {
			k := rng.IntN(4)
			votes[k]++
			row := make([]float64, 4)
			row[k] = 1
			passes = append(passes, row)
		}
		// C_k falls with the votes, from one vote on; none is 0.
		want, dominant := 1, -1
		for k := 3; k >= 0; k-- {
			if votes[k] > 0 && votes[k] < len(passes) && (dominant < 0 || votes[k] <= votes[dominant]) {
				dominant = k
			}
		}
		for k := 3; k >= 1; k-- {
			if votes[k] > 0 && votes[k] < len(passes) && (votes[want] == 0 || votes[want] == len(passes) || votes[k] <= votes[want]) {
				want = k
			}
		}
		if votes[1] == votes[2] || votes[2] == votes[3] || votes[1] == votes[3] {
			ties++
		}
		for name, r := range map[string]*decomp.Result{"two-pass": batchResult(t, plan, passes), "streaming": streamResult(t, plan, passes)} {
			if r.CCritMaxClass != want || r.Dominant != dominant {
				t.Errorf("%s: votes %v: c_crit_max by %d, dominant %d, want %d, %d (C %v)", name, votes, r.CCritMaxClass, r.Dominant, want, dominant, r.C)
			}
		}
	}
	if ties < 100 {
		t.Errorf("only %d ties", ties)
	}
}

// TestConstantColumns: a class whose probability is the same in every pass has
// it as its mean, without rounding, though other classes vary.
func TestConstantColumns(t *testing.T) {
	var passes [][]float64
	for i := range 10 {
		p := 0.01 * float64(i)
		passes = append(passes, []float64{0.1, 0.3 + p, 0.6 - p})
	}
	plan := mustPlan(t, decomp.Spec{Classes: 3})
	for _, r := range []*decomp.Result{batchResult(t, plan, passes), streamResult(t, plan, passes)} {
		if r.Mean[0] != 0.1 || r.Degenerate { // ten times 0.1 does not sum to 1
			t.Errorf("mean of ten times 0.1: %v", r.Mean[0])
		}
	}
}

// TestTinyLogits: probabilities whose squares underflow have their mean.
func TestTinyLogits(t *testing.T) {
	var logits [][]float64
	want := 0.0
	for _, z := range []float64{-400, -401, -402, -405} {
		logits = append(logits, []float64{0, z})
		want += math.Exp(z) / 4
	}
	plan := mustPlan(t, decomp.Spec{Classes: 2, Kind: decomp.Logits})
	for _, r := range []*decomp.Result{batchResult(t, plan, logits), streamResult(t, plan, logits)} {
		if !within(r.Mean[1], want, 1e-12, 0) || r.Degenerate {
			t.Errorf("mean %v, want %v; degenerate %v", r.Mean[1], want, r.Degenerate)
		}
	}
}

// TestFirstFault: an input stays refused for its first bad row, whatever comes after.
func TestFirstFault(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		kind decomp.Kind
		row  []float64
	}{{decomp.Logits, []float64{nan, 1, 2}}, {decomp.Probabilities, []float64{0.5, 0.2, 0.2}}} {
		plan := mustPlan(t, decomp.Spec{Classes: 3, Kind: c.kind})
		data := slices.Concat(c.row, []float64{0.2, 0.3, 0.5}, c.row)
		single := make([]float32, len(data))
		for i, v := range data {
			single[i] = float32(v)
		}
		for _, tensor := range []decomp.Tensor{{Float64: data}, {Float32: single}} {
			tensor.Passes, tensor.Inputs = 3, 1
			b := plan.NewBatch()
			if err := b.Reset(tensor); err != nil {
				t.Fatal(err)
			}
			var e *decomp.RowError
			if err := b.Result(0, plan.NewResult()); !errors.As(err, &e) || e.Pass != 0 {
				t.Errorf("kind %d: %v, want the fault of pass 0", c.kind, err)
			}
		}
	}
}

// TestIdenticalAtLast: passes that are identical in every part that was joined
// last, and not before, are not degenerate.
func TestIdenticalAtLast(t *testing.T) {
	plan := mustPlan(t, decomp.Spec{Classes: 2})
	a, b, r := decomp.NewAccumulator[float64](plan, 1, 2), plan.NewBatch(), plan.NewResult()
	for _, p := range []float64{0.25, 0.75, 0.5, 0.5} {
		if err := a.Add(b, 0, []float64{p, 1 - p}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Finish(b, 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := b.Result(0, r); err != nil || r.Degenerate || r.Variance[0] == 0 {
		t.Errorf("%v: degenerate %v, variance %v", err, r.Degenerate, r.Variance)
	}
}

// TestTwoSlices: a tensor of both is refused.
func TestTwoSlices(t *testing.T) {
	plan := mustPlan(t, decomp.Spec{Classes: 2})
	b := plan.NewBatch()
	if err := b.Reset(decomp.Tensor{Passes: 2, Inputs: 1, Float32: []float32{1, 0}, Float64: []float64{1, 0}}); err == nil {
		t.Error("a tensor of both was taken")
	}
	if err := b.Reset(decomp.Tensor{Passes: 2, Inputs: 1, Float32: []float32{}, Float64: []float64{1, 0, 1, 0}}); err != nil {
		t.Error(err)
	}
	if err := b.Result(0, plan.NewResult()); err != nil {
		t.Error(err)
	}
}

// TestManyCritical: of the safe and the critical classes the fewer are fixed, so
// that memory is that of the pairs; cbec and its terms are the same.
func TestManyCritical(t *testing.T) {
	const k = 30
	passes := randomPasses(rand.New(rand.NewPCG(1, 2)), 9, k, 2, 1)
	few, many := upTo(k)[:4], upTo(k)[4:]
	a := batchResult(t, mustPlan(t, decomp.Spec{Classes: k, Safe: many, Critical: few}), passes)
	b := batchResult(t, mustPlan(t, decomp.Spec{Classes: k, Safe: few, Critical: many, Lean: true}), passes)
	if !within(a.Scores[decomp.CBEC], b.Scores[decomp.CBEC], 1e-13, 0) {
		t.Errorf("cbec %v with few critical, %v with few safe", a.Scores[decomp.CBEC], b.Scores[decomp.CBEC])
	}
	for i := range a.PairTerm {
		if !within(b.Confusion(i), a.PairTerm[i], 1e-13, 0) {
			t.Errorf("pair %d: %v, %v", i, b.Confusion(i), a.PairTerm[i])
		}
	}
}

// TestTiesOfMeans: classes with the same numbers of votes have the same mean,
// though their votes come in another order.
func TestTiesOfMeans(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	for _, s := range []int{10, 30, 50, 66, 100} {
		for range 200 {
			passes := make([][]float64, s)
			for i := range passes {
				passes[i] = make([]float64, 4)
				passes[i][i%2+1] = 1
			}
			rng.Shuffle(s, func(i, j int) { passes[i], passes[j] = passes[j], passes[i] })
			plan := mustPlan(t, decomp.Spec{Classes: 4, Safe: []int{0, 1}, Critical: []int{2, 3}})
			for _, r := range []*decomp.Result{batchResult(t, plan, passes), streamResult(t, plan, passes)} {
				if r.Predicted != 1 || r.Dominant != 1 {
					t.Fatalf("S=%d: predicted %d of means %v, dominant %d", s, r.Predicted, r.Mean, r.Dominant)
				}
			}
		}
	}
}
