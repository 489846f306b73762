package eval_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// TestTableIsTheResults compares every column with results computed one by one.
func TestTableIsTheResults(t *testing.T) {
	passes, _ := recording(t, "ctg-ensemble")
	var told atomic.Int64
	spec := ctg
	spec.Classes = passes.Classes
	table, err := eval.NewTable(t.Context(), passes, spec, func(done, total int) {
		if total != passes.Passes.Inputs {
			t.Errorf("told of %d inputs", total)
		}
		if done == total {
			told.Add(1)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if told.Load() != 1 {
		t.Errorf("told %d times that all is done", told.Load())
	}
	spec.AllPairs = true
	plan, err := decomp.NewPlan(spec)
	if err != nil {
		t.Fatal(err)
	}
	batch, r := plan.NewBatch(), plan.NewResult()
	if err := batch.Reset(passes.Passes); err != nil {
		t.Fatal(err)
	}
	pairs := make([]float64, 3)
	for i := range passes.Passes.Inputs {
		if err := batch.Result(i, r); err != nil {
			t.Fatal(err)
		}
		part := slice(i*3, 3)
		for s, column := range table.Scores {
			if column[i] != r.Scores[s] {
				t.Fatalf("input %d: %v is %v, want %v", i, decomp.Score(s), column[i], r.Scores[s])
			}
		}
		agree := table.Predicted[i] == r.Predicted && table.SumC[i] == r.SumC &&
			table.ExpectedEntropy[i] == r.ExpectedEntropy && slices.Equal(part(table.Mean), r.Mean) && slices.Equal(part(table.C), r.C) &&
			slices.Equal(part(table.Skewness), r.Skewness) && table.Degenerate[i] == r.Degenerate &&
			table.Saturated[i] == r.Saturated && table.CriticalSkewness[i] == max(r.Skewness[1], r.Skewness[2])
		if !agree {
			t.Fatalf("input %d differs from %+v", i, r)
		}
		for p := range pairs {
			pairs[p] += r.PairTerm[p] / float64(passes.Passes.Inputs)
		}
	}
	same(t, "pair means", table.PairMean, []float64{0, pairs[0], pairs[1], pairs[0], 0, pairs[2], pairs[1], pairs[2], 0})
}

func slice(from, n int) func([]float64) []float64 {
	return func(v []float64) []float64 { return v[from : from+n] }
}

// TestRefusedRows expects a typed error that names file, input, pass and class of the first fault.
func TestRefusedRows(t *testing.T) {
	passes, _ := gradedRecording(500, 4, 3)
	for _, i := range []int{433, 77, 499} {
		passes.Passes.Float32[(2*500+i)*3+1] = float32(math.NaN())
	}
	p := &policy.Policy{
		Name: "m", Classes: abc, Kind: policy.Probabilities, SumTolerance: 1e-3,
		Primary: policy.Rule{Score: policy.MI}, Fallback: policy.Rule{Score: policy.MI},
	}
	_, tableErr := eval.NewTable(t.Context(), passes, decomp.Spec{Classes: 3}, nil)
	_, decideErr := eval.Decide(t.Context(), passes, p, nil)
	for _, err := range []error{tableErr, decideErr} {
		var row *decomp.RowError
		if !errors.As(err, &row) || row.Pass != 2 || row.Class != 1 || !strings.HasPrefix(err.Error(), "synthetic: input 77: ") {
			t.Errorf("error %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := eval.NewTable(ctx, passes, decomp.Spec{Classes: 3}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := eval.NewTable(t.Context(), passes, decomp.Spec{Classes: 3, Critical: []int{3}}, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "synthetic: ") {
		t.Errorf("a spec with a fault: %v", err)
	}
}

// TestDecide compares with decisions of the engine.
func TestDecide(t *testing.T) {
	passes, _ := recording(t, "ctg-lowrank")
	p := &policy.Policy{
		Name: "m", Classes: abc, Critical: []int{1, 2}, Safe: []int{0}, Kind: policy.Probabilities, SumTolerance: 1e-3,
		Gate: policy.AnyCritical, Scope: policy.PredictedSafe, ReliabilityThreshold: 0.3,
		Primary:  policy.Rule{Score: policy.CCritMax, Threshold: 0.01, HasThreshold: true},
		Fallback: policy.Rule{Score: policy.CBEC, Threshold: 0.01, HasThreshold: true},
	}
	decisions, err := eval.Decide(t.Context(), passes, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	model, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	batch, outcome := model.NewBatch(), model.NewOutcome()
	if err := batch.Reset(passes.Passes); err != nil {
		t.Fatal(err)
	}
	seen := map[policy.Action]bool{}
	for i, d := range decisions {
		if err := batch.Outcome(i, outcome); err != nil {
			t.Fatal(err)
		}
		if d != outcome.Decision {
			t.Fatalf("input %d: %+v, want %+v", i, d, outcome.Decision)
		}
		seen[d.Action] = true
	}
	if len(seen) != 2 {
		t.Errorf("only %v", seen)
	}
}

func TestCheckLabels(t *testing.T) {
	for _, c := range []struct {
		labels   []int
		fragment string
	}{
		{[]int{0, 1, 1}, ""},
		{[]int{0, 1}, "2 labels, expected 3: one for each input of p.npy"},
		{[]int{0, 1, 2}, "label 2 is 2, expected 0 to 1: p.npy has 2 classes"},
		{[]int{0, -1, 1}, "label 1 is -1"},
		{[]int{1, 2, 1}, "label 1 is 2, expected 0 to 1: p.npy has 2 classes (do your labels count from 1?)"},
		{[]int{1, 3, 1}, "p.npy has 2 classes$"},
		{[]int{0, 2, 1}, "p.npy has 2 classes$"},
	} {
		r := eval.Recording{Name: "p.npy", Classes: 2, Passes: decomp.Tensor{Inputs: 3}, Labels: c.labels}
		err := r.CheckLabels()
		if (err == nil) != (c.fragment == "") || err != nil && !strings.Contains(err.Error()+"$", c.fragment) {
			t.Errorf("%v: error %v, want %q", c.labels, err, c.fragment)
		}
	}
}
