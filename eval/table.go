package eval

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

// MaxMatrixClasses bounds the classes up to which every pair of classes is
// computed and tables of class x class are given. Beyond it they would be
// larger than the recording, and no longer to be looked at.
const MaxMatrixClasses = 128

// Table is a decomposed recording: a column for each quantity, an entry for
// each of its N inputs in their order. Entry [i*K+k] of a column over classes
// is that of input i and class k. decomp.Result has the formula, range and
// equation of each quantity.
type Table struct {
	Inputs, Passes, K int
	Spec              decomp.Spec

	Predicted []int
	// Scores by decomp.Score; nil where the sets do not define one.
	Scores          [decomp.NumScores][]float64
	SumC            []float64
	ExpectedEntropy []float64
	C, Skewness     []float64 // over classes
	// CriticalSkewness is the largest skewness of a critical class, which gate
	// any-critical reads; DecidingSkewness that of the class that sets
	// c_crit_max, which gate deciding-class reads. Nil without a critical set.
	CriticalSkewness, DecidingSkewness []float64
	// PairMean [a*K+b] is the mean pair term of classes a and b over the inputs
	// (app-eij): symmetric, 0 on the diagonal. Nil beyond MaxMatrixClasses.
	PairMean []float64
	// Degenerate: all passes are identical. Saturated: and one-hot.
	Degenerate, Saturated []bool
}

// Progress is told how many of how many inputs, or resamples, are done, by
// several goroutines and not always in order. It may be nil.
type Progress func(done, total int)

// NewTable decomposes a recording. AllPairs of the spec is set by the number of
// classes. An input whose passes are refused is an error that names the file,
// the input, the pass and the class; nothing is computed around it.
func NewTable(ctx context.Context, passes *record.Passes, spec decomp.Spec, progress Progress) (*Table, error) {
	n, k := passes.N, passes.K
	spec.AllPairs = k <= MaxMatrixClasses
	plan, err := decomp.NewPlan(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", passes.Name, err)
	}
	t := &Table{
		Inputs: n, Passes: passes.S, K: k, Spec: spec,
		Predicted:       make([]int, n),
		SumC:            make([]float64, n),
		ExpectedEntropy: make([]float64, n),
		C:               make([]float64, n*k),
		Skewness:        make([]float64, n*k),
		Degenerate:      make([]bool, n),
		Saturated:       make([]bool, n),
	}
	for s := range t.Scores {
		if plan.Defines(decomp.Score(s)) {
			t.Scores[s] = make([]float64, n)
		}
	}
	if len(spec.Critical) > 0 {
		t.CriticalSkewness, t.DecidingSkewness = make([]float64, n), make([]float64, n)
	}
	sums := make([][]float64, parts(n)) // of pair terms
	err = inParallel(ctx, passes, progress, func(part int) func(i int) error {
		batch, result := plan.NewBatch(), plan.NewResult()
		resetErr := batch.Reset(tensor(passes))
		if spec.AllPairs {
			sums[part] = make([]float64, len(plan.Pairs()))
		}
		return func(i int) error {
			if resetErr != nil {
				return resetErr
			}
			if err := batch.Result(i, result); err != nil {
				return err
			}
			t.set(i, result)
			for p := range sums[part] {
				sums[part][p] += result.PairTerm[p]
			}
			return nil
		}
	})
	if err != nil {
		return nil, err
	}
	if spec.AllPairs {
		t.PairMean = pairMeans(plan, sums, n)
	}
	return t, nil
}

// mostSkewness bounds the skewness of Dirichlet rows, which has no cap, so that
// sums over inputs are finite.
const mostSkewness = 1e300

// set copies the result of input i into the columns.
func (t *Table) set(i int, r *decomp.Result) {
	t.Predicted[i] = r.Predicted
	for s, column := range t.Scores {
		if column != nil {
			column[i] = r.Scores[s]
		}
	}
	t.SumC[i], t.ExpectedEntropy[i] = r.SumC, r.ExpectedEntropy
	copy(t.C[i*t.K:], r.C)
	skewness := t.Skewness[i*t.K : (i+1)*t.K]
	for k, v := range r.Skewness {
		skewness[k] = min(v, mostSkewness)
	}
	t.Degenerate[i], t.Saturated[i] = r.Degenerate, r.Saturated
	if t.CriticalSkewness != nil {
		for _, k := range t.Spec.Critical {
			t.CriticalSkewness[i] = max(t.CriticalSkewness[i], skewness[k])
		}
		t.DecidingSkewness[i] = skewness[r.CCritMaxClass]
	}
}

// pairMeans is the symmetric matrix of the means of pair terms.
func pairMeans(plan *decomp.Plan, sums [][]float64, n int) []float64 {
	k := plan.Classes()
	mean := make([]float64, k*k)
	for p, pair := range plan.Pairs() {
		sum := 0.0
		for _, part := range sums {
			sum += part[p]
		}
		mean[pair.A*k+pair.B] = sum / float64(n)
		mean[pair.B*k+pair.A] = sum / float64(n)
	}
	return mean
}

// Decide is what a policy decides on every input of a recording, by the code
// that decides online.
func Decide(ctx context.Context, passes *record.Passes, p *policy.Policy, progress Progress) ([]policy.Decision, error) {
	model, err := engine.New(p)
	if err != nil {
		return nil, err
	}
	decisions := make([]policy.Decision, passes.N)
	err = inParallel(ctx, passes, progress, func(int) func(i int) error {
		batch, outcome := model.NewBatch(), model.NewOutcome()
		resetErr := batch.Reset(tensor(passes))
		return func(i int) error {
			if resetErr != nil {
				return resetErr
			}
			if err := batch.Outcome(i, outcome); err != nil {
				return err
			}
			decisions[i] = outcome.Decision
			return nil
		}
	})
	return decisions, err
}

// inParallel calls a function for every input: each part of neighbouring ones
// has its own. Errors come with the name of the recording and the number of the
// input; the first in the recording is the one returned.
func inParallel(ctx context.Context, passes *record.Passes, progress Progress, start func(part int) func(i int) error) error {
	n, count := passes.N, parts(passes.N)
	faults := make([]error, count)
	var done atomic.Int64
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for part := range count {
		group.Go(func() error {
			each := start(part)
			const step = 256 // inputs between looks at the context
			for i := part * n / count; i < (part+1)*n/count; i++ {
				if i%step == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				if err := each(i); err != nil {
					faults[part] = inputError(passes.Name, i, err)
					return nil
				}
				if d := done.Add(1); progress != nil && (d%step == 0 || d == int64(n)) {
					progress(int(d), n)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}

// parts that n inputs are cut into. It does not depend on the machine, so that
// sums over them do not either.
func parts(n int) int {
	const most, fewest = 32, 64 // parts, and inputs that are worth one
	return max(1, min(most, n/fewest))
}

func inputError(name string, i int, err error) error {
	return fmt.Errorf("%s: input %d: %w", name, i, err)
}

func tensor(p *record.Passes) decomp.Tensor {
	t := decomp.Tensor{Passes: p.S, Inputs: p.N, Float32: p.Float32, Float64: p.Float64}
	if p.Layout == record.NSK {
		t.Layout = decomp.NSK
	}
	return t
}

// CheckLabels holds labels against the recording that they belong to: one for
// each input, each the number of a class. Labels that look as if they counted from
// 1 are asked about.
func CheckLabels(name string, labels []int, passes *record.Passes) error {
	if len(labels) != passes.N {
		return fmt.Errorf("%s: %d labels, expected %d: one for each input of %s", name, len(labels), passes.N, passes.Name)
	}
	for i, label := range labels {
		if label < 0 || label >= passes.K {
			ask := ""
			if slices.Min(labels) >= 1 && slices.Max(labels) == passes.K {
				ask = " (do your labels count from 1?)"
			}
			return fmt.Errorf("%s: label %d is %d, expected 0 to %d: %s has %d classes%s", name, i, label, passes.K-1,
				passes.Name, passes.K, ask)
		}
	}
	return nil
}

// mean of values; 0 of none.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return ratio(sum, float64(len(values)))
}

// ratio is a/b, and 0 where b is 0 or the result is no number.
func ratio(a, b float64) float64 {
	if r := a / b; !math.IsNaN(r) && !math.IsInf(r, 0) {
		return r
	}
	return 0
}

// Take makes a table of some inputs, in any order and as often as one likes: a
// half, or a draw with replacement. PairMean stays that of all inputs.
func (t *Table) Take(inputs []int) *Table {
	taken := *t
	taken.Inputs = len(inputs)
	taken.Predicted = take(t.Predicted, inputs, 1)
	for s, column := range t.Scores {
		taken.Scores[s] = take(column, inputs, 1)
	}
	taken.SumC, taken.ExpectedEntropy = take(t.SumC, inputs, 1), take(t.ExpectedEntropy, inputs, 1)
	taken.C, taken.Skewness = take(t.C, inputs, t.K), take(t.Skewness, inputs, t.K)
	taken.CriticalSkewness, taken.DecidingSkewness = take(t.CriticalSkewness, inputs, 1), take(t.DecidingSkewness, inputs, 1)
	taken.Degenerate, taken.Saturated = take(t.Degenerate, inputs, 1), take(t.Saturated, inputs, 1)
	return &taken
}

// take entries of a column of some width; nil stays nil.
func take[T any](column []T, inputs []int, width int) []T {
	if column == nil {
		return nil
	}
	taken := make([]T, 0, len(inputs)*width)
	for _, i := range inputs {
		taken = append(taken, column[i*width:(i+1)*width]...)
	}
	return taken
}
