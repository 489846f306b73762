package decomp_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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
		t.Run(want, func(t *testing.T) {
			if _, err := decomp.NewPlan(spec); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got %v, want %q", spec, err, want)
			}
		})
	}
}

// TestRowRefusals checks that the error of a bad row names pass, class, value and expectation, in
// the same words on both paths, and that the accumulator stays as it was.
func TestRowRefusals(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
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
		t.Run(name, func(t *testing.T) {
			plan := mustPlan(t, decomp.Spec{Classes: 3, Kind: c.kind})
			good := []float64{0.2, 0.3, 0.5}
			if c.kind == decomp.Logits {
				good = []float64{-2, 3, 5}
			}
			a := newStream(plan)
			if err := a.Add(good); err != nil {
				t.Fatal(err)
			}
			var e *decomp.RowError
			err := a.Add(c.row)
			if !errors.As(err, &e) || !strings.Contains(err.Error()+"$", c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if a.Passes() != 1 {
				t.Error("the refused pass was counted")
			}
			if err := a.Add(good); err != nil {
				t.Fatal(err)
			}
			r := plan.NewResult()
			if err := a.Finish(r); err != nil || !r.Degenerate {
				t.Errorf("after the refused pass: %v, degenerate %v: something of it stayed", err, r.Degenerate)
			}
			if len(c.row) != 3 {
				return
			}
			// The other inputs of a batch are not affected.
			b := plan.NewBatch()
			data := flatten([][]float64{good, good, good, c.row, good, good})
			if err := b.Reset(decomp.Tensor{Passes: 2, Inputs: 3, Layout: decomp.NSK, Float64: data}); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				err := b.Result(i, r)
				if i == 1 && (!errors.As(err, &e) || !strings.Contains(err.Error()+"$", c.want)) {
					t.Errorf("batch: got %v, want %q", err, c.want)
				}
				if i != 1 && err != nil {
					t.Errorf("input %d: %v", i, err)
				}
			}
		})
	}
}

// TestNegativeZero checks that -0 counts as the probability 0.
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
	if err := b.Reset(decomp.Tensor{Passes: 2, Inputs: 1, Float32: []float32{1, 0}, Float64: []float64{1, 0}}); err == nil {
		t.Error("a tensor of both types was taken")
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

// TestWeights checks that weights change cbec, but not the terms of pairs.
func TestWeights(t *testing.T) {
	passes := [][]float64{{0.7, 0.2, 0.1}, {0.3, 0.5, 0.2}, {0.5, 0.1, 0.4}}
	spec := decomp.Spec{Classes: 3, Safe: []int{0}, Critical: []int{1, 2}}
	plain := batchResult(t, mustPlan(t, spec), passes)
	spec.Weights = []decomp.Weight{{Safe: 0, Critical: 2, Weight: 10}}
	weighted := batchResult(t, mustPlan(t, spec), passes)
	if got, want := weighted.Scores[decomp.CBEC], plain.PairTerm[0]+10*plain.PairTerm[1]; math.Abs(got-want) > 1e-15 || plain.PairTerm[1] == 0 { // fused multiply-add rounds once
		t.Errorf("weighted cbec %v, want %v", got, want)
	}
	if weighted.PairTerm[1] != plain.PairTerm[1] {
		t.Error("the weight changed the pair's own term")
	}
	if plain.CBECClass != 1 || weighted.CBECClass != 2 {
		t.Errorf("largest share: class %d, weighted %d; want 1 and 2", plain.CBECClass, weighted.CBECClass)
	}
}

// TestUndefinedScores checks that a score is NaN without the sets that it needs.
func TestUndefinedScores(t *testing.T) {
	passes := [][]float64{{0.7, 0.2, 0.1}, {0.3, 0.5, 0.2}}
	for _, c := range []struct {
		spec    decomp.Spec
		defined int
	}{{decomp.Spec{Classes: 3}, 4}, {decomp.Spec{Classes: 3, Critical: []int{1}}, 10}, {decomp.Spec{Classes: 3, Critical: []int{1}, Safe: []int{0}}, 11}} {
		t.Run(fmt.Sprintf("critical %v, safe %v", c.spec.Critical, c.spec.Safe), func(t *testing.T) {
			plan := mustPlan(t, c.spec)
			r := batchResult(t, plan, passes)
			defined := 0
			for s := range decomp.NumScores {
				if plan.Defines(decomp.Score(s)) {
					defined++
				}
				if plan.Defines(decomp.Score(s)) == math.IsNaN(r.Scores[s]) {
					t.Errorf("%s is %v", decomp.Score(s), r.Scores[s])
				}
			}
			if defined != c.defined {
				t.Errorf("%d scores defined, want %d", defined, c.defined)
			}
		})
	}
}

// TestSkewnessCap reaches the cap with one one-hot pass among zeros.
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

// TestHighK checks the two remedies for the growth of sum_c, and the diagnostic C3.
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

// TestTiesOfVotes checks one-hot passes, as of an ensemble that votes, which often tie. Both paths
// must see the ties, whatever the order of the votes, and choose the lowest class.
func TestTiesOfVotes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	plan := mustPlan(t, decomp.Spec{Classes: 4, Safe: []int{0}, Critical: []int{1, 2, 3}})
	ties := 0
	for range 500 {
		votes := [4]int{}
		var passes [][]float64
		for range 2 + rng.IntN(29) {
			k := rng.IntN(4)
			votes[k]++
			row := make([]float64, 4)
			row[k] = 1
			passes = append(passes, row)
		}
		// C_k falls with the number of votes from one vote on; none of them is 0.
		want, dominant, predicted := 1, -1, 0
		for k, n := range votes {
			if n > votes[predicted] {
				predicted = k
			}
		}
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
			if r.CCritMaxClass != want || r.Dominant != dominant || r.Predicted != predicted {
				t.Errorf("%s: votes %v: c_crit_max by %d, dominant %d, predicted %d, want %d, %d, %d (C %v)",
					name, votes, r.CCritMaxClass, r.Dominant, r.Predicted, want, dominant, predicted, r.C)
			}
		}
	}
	// By symmetry both critical classes have the same share of CBEC.
	symmetric := [][]float64{{0.5, 0.25, 0.25}, {0.75, 0.125, 0.125}}
	r := batchResult(t, mustPlan(t, decomp.Spec{Classes: 3, Safe: []int{0}, Critical: []int{1, 2}}), symmetric)
	if r.PairTerm[0] != r.PairTerm[1] || r.PairTerm[0] == 0 || r.CBECClass != 1 || r.Deciding(decomp.CCritMax) != 1 {
		t.Errorf("pair terms %v, cbec by %d: want 1", r.PairTerm, r.CBECClass)
	}
	if ties < 25 {
		t.Errorf("only %d ties", ties)
	}
}

// TestTinyLogits checks the mean of probabilities whose squares underflow.
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
