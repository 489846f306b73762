package eval

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// maxMatrixClasses bounds the classes for which every pair of classes is computed and tables of
// class by class are given. Beyond it such tables would be larger than the recording, and
// unreadable.
const maxMatrixClasses = 128

// Table holds a decomposed recording: a column for each quantity, with an entry for each of its N
// inputs in their order. Entry [i*K+k] of a column over classes is that of input i and class k.
// decomp.Result has the formula, range and equation of each quantity.
type Table struct {
	Inputs, Passes, K int
	Spec              decomp.Spec

	Predicted []int
	// Scores by decomp.Score; nil where the class sets do not define the score.
	Scores          [decomp.NumScores][]float64
	SumC            []float64
	ExpectedEntropy []float64
	Mean            []float64 // over classes
	C, Skewness     []float64 // over classes
	// CriticalSkewness is the largest skewness of a critical class, which gate any-critical reads; nil
	// without a critical set.
	CriticalSkewness []float64
	// PairMean [a*K+b] is the mean pair term of classes a and b over the inputs, in nats (app-eij):
	// symmetric, 0 on the diagonal. Nil beyond maxMatrixClasses.
	PairMean []float64
	// Degenerate marks inputs whose passes hardly differ; Saturated marks the degenerate inputs that are
	// one-hot.
	Degenerate, Saturated []bool
	// Signs says in which ways the passes of the recording are not what they seem.
	Signs []passcheck.Sign
	// Copies has the group of each input, the same for inputs that are equal in every pass; nil where
	// there are none.
	Copies []int
}

// Progress is called as inputs or resamples are done, from several goroutines and not always in
// order. It may be nil.
type Progress func(done, total int)

// NewTable decomposes the passes of a recording. Classes of the spec may be 0, which takes the classes of
// the recording; AllPairs is set by their number. If the passes of an input are refused, the error
// names the recording, the input, the pass and the class.
func NewTable(ctx context.Context, r Recording, spec decomp.Spec, progress Progress) (*Table, error) {
	n, k := r.Passes.Inputs, r.Classes
	if spec.Classes != 0 && spec.Classes != k {
		return nil, fmt.Errorf("%s has %d classes, expected %d, those of the spec", r.name(), k, spec.Classes)
	}
	spec.Classes, spec.AllPairs = k, k <= maxMatrixClasses
	plan, err := decomp.NewPlan(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.name(), err)
	}
	if n < 1 {
		return nil, fmt.Errorf("%s has no inputs, expected at least one", r.name())
	}
	t := &Table{
		Inputs: n, Passes: r.Passes.Passes, K: k, Spec: spec,
		Predicted:       make([]int, n),
		SumC:            make([]float64, n),
		ExpectedEntropy: make([]float64, n),
		Mean:            make([]float64, n*k),
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
		t.CriticalSkewness = make([]float64, n)
	}
	seen := passcheck.Inputs{Spread: make([]float64, n), Squashed: make([]bool, n), Mean: t.Mean}
	sums := make([][]float64, parts(n)) // sums of pair terms, by part
	err = inParallel(ctx, r, progress, func(part int) (func(i int) error, error) {
		batch, result := plan.NewBatch(), plan.NewResult()
		if spec.AllPairs {
			sums[part] = make([]float64, len(plan.Pairs()))
		}
		return func(i int) error {
			if err := batch.Result(i, result); err != nil {
				return err
			}
			t.set(i, result)
			seen.Spread[i], seen.Squashed[i] = result.Spread, result.Squashed
			for p := range sums[part] {
				sums[part][p] += result.PairTerm[p]
			}
			return nil
		}, batch.Reset(r.Passes)
	})
	if err != nil {
		return nil, err
	}
	if spec.AllPairs {
		t.PairMean = pairMeans(plan, sums, n)
	}
	t.Signs, t.Copies = passcheck.Passes(r.Passes, spec.Kind, k, seen)
	return t, nil
}

// mostSkewness bounds the skewness of Dirichlet rows, which has no cap, so that sums over inputs
// are finite.
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
	copy(t.Mean[i*t.K:], r.Mean)
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
	}
}

// pairMeans returns the symmetric matrix of the means of pair terms.
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

// Suspect returns Signs, and those that the true classes of the inputs show beside Mean. It is never nil.
func (t *Table) Suspect(labels []int) []passcheck.Sign {
	signs := append([]passcheck.Sign{}, t.Signs...)
	if t.Mean == nil {
		return signs
	}
	return append(signs, passcheck.Labels(labels, t.Mean, t.K, t.Copies)...)
}

// Decide returns what a policy decides on every input of a recording, by the code that decides
// online.
func Decide(ctx context.Context, r Recording, p *policy.Policy, progress Progress) ([]policy.Decision, error) {
	model, err := engine.New(p)
	if err != nil {
		return nil, err
	}
	decisions := make([]policy.Decision, r.Passes.Inputs)
	err = inParallel(ctx, r, progress, func(int) (func(i int) error, error) {
		batch, outcome := model.NewBatch(), model.NewOutcome()
		return func(i int) error {
			if err := batch.Outcome(i, outcome); err != nil {
				return err
			}
			decisions[i] = outcome.Decision
			return nil
		}, batch.Reset(r.Passes)
	})
	return decisions, err
}

// inParallel cuts the inputs into parts, calls start for each part, and the function that start
// returns for each input. Errors name the recording and the input. The error of the earliest input
// is returned.
func inParallel(ctx context.Context, r Recording, progress Progress, start func(part int) (func(i int) error, error)) error {
	n := r.Passes.Inputs
	count := parts(n)
	faults := make([]error, count)
	var done atomic.Int64
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for part := range count {
		group.Go(func() error {
			each, err := start(part)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name(), err)
			}
			const step = 256 // inputs between looks at the context
			for i := part * n / count; i < (part+1)*n/count; i++ {
				if i%step == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				if err := each(i); err != nil {
					faults[part] = fmt.Errorf("%s: input %d: %w", r.name(), r.Place(i), err)
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

// parts returns into how many parts n inputs are cut. The number does not depend on the machine, so
// that sums over parts do not either.
func parts(n int) int {
	const most, fewest = 32, 64 // parts, and inputs that are worth one
	return max(1, min(most, n/fewest))
}

// mean returns the mean of values, and 0 of none.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return ratio(sum, float64(len(values)))
}

// ratio returns a/b, and 0 where b is 0 or the result is no finite number.
func ratio(a, b float64) float64 {
	if r := a / b; !math.IsNaN(r) && !math.IsInf(r, 0) {
		return r
	}
	return 0
}

// Select returns a table of some inputs, in any order and with repetitions: a half, or a draw with
// replacement. PairMean stays that of all inputs.
func (t *Table) Select(inputs []int) *Table {
	selected := *t
	selected.Inputs = len(inputs)
	selected.Predicted = pick(t.Predicted, inputs, 1)
	for s, column := range t.Scores {
		selected.Scores[s] = pick(column, inputs, 1)
	}
	selected.SumC, selected.ExpectedEntropy = pick(t.SumC, inputs, 1), pick(t.ExpectedEntropy, inputs, 1)
	selected.Mean, selected.C, selected.Skewness = pick(t.Mean, inputs, t.K), pick(t.C, inputs, t.K), pick(t.Skewness, inputs, t.K)
	selected.CriticalSkewness = pick(t.CriticalSkewness, inputs, 1)
	selected.Copies = pick(t.Copies, inputs, 1)
	selected.Degenerate, selected.Saturated = pick(t.Degenerate, inputs, 1), pick(t.Saturated, inputs, 1)
	return &selected
}

// pick returns the entries of some inputs in a column of the given width, or nil for nil.
func pick[T any](column []T, inputs []int, width int) []T {
	if column == nil {
		return nil
	}
	selected := make([]T, 0, len(inputs)*width)
	for _, i := range inputs {
		selected = append(selected, column[i*width:(i+1)*width]...)
	}
	return selected
}
