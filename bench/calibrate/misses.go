package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/ckd-project/ckd/bench/internal/labelled"
	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// misses prints critical miss rates on the other halves, means over n halves of each recording.
func misses(only string, n int) error {
	type setting struct {
		scope    policy.Scope
		coverage float64
	}
	settings := []setting{{policy.AllInputs, 0.8}, {policy.AllInputs, 0.95}, {policy.PredictedSafe, 0.8}, {policy.PredictedSafe, 0.95}}
	sums, recordings, above := make([]cell, len(settings)), 0., 0
	err := labelled.Each(only, func(r *labelled.Recording) error {
		recordings++
		for i, s := range settings {
			o := calibrate.Options{Base: r.Base, Scope: s.scope, Objective: calibrate.Objective{Coverage: s.coverage}}
			c, err := measure(r, n, o)
			if err != nil {
				return err
			}
			sums[i].none, sums[i].naive, sums[i].best, sums[i].own = sums[i].none+c.none, sums[i].naive+c.naive, sums[i].best+c.best, sums[i].own+c.own
			above += index(c.own-c.best > 2*c.se)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("Critical miss rate on the other half, means of %v recordings and of %d halves of each.\n\n", recordings, n)
	fmt.Print("| scope | coverage | no deferral | naive pick | best score, with hindsight | calibrated |\n|---|---|---|---|---|---|\n")
	all := cell{}
	for i, s := range settings {
		c := sums[i]
		fmt.Printf("| %s | %v | %.3f | %.3f | %.3f | %.3f |\n", s.scope, s.coverage, c.none/recordings, c.naive/recordings, c.best/recordings, c.own/recordings)
		all.own, all.naive, all.best = all.own+c.own, all.naive+c.naive, all.best+c.best
	}
	cells := recordings * float64(len(settings))
	fmt.Printf("\nOn the mean of %v cells: calibrated %.4f, naive pick %.4f, best score with hindsight %.4f. Cells above the best by more than two "+
		"standard errors: %d.\n", cells, all.own/cells, all.naive/cells, all.best/cells, above)
	return nil
}

// cell holds mean critical miss rates of one recording, scope and coverage.
type cell struct {
	none, naive, best, own float64
	se                     float64 // of own - best
}

// measure calibrates on n random halves, and measures on the others.
func measure(r *labelled.Recording, n int, o calibrate.Options) (*cell, error) {
	own, naive, none := make([]float64, n), make([]float64, n), make([]float64, n)
	var scores [decomp.NumScores][]float64
	for s := range scores {
		scores[s] = slices.Repeat([]float64{math.Inf(1)}, n)
	}
	err := inParallel(n, func(h int) error {
		order := rand.New(rand.NewPCG(seed, uint64(h))).Perm(r.Table.Inputs)
		first, second := order[:r.Table.Inputs/2], order[r.Table.Inputs/2:]
		t, labels := r.Take(first)
		o := o
		o.Seed, o.Force = uint64(h), true
		found, err := calibrate.Choose(context.Background(), t, labels, o)
		if err != nil {
			return err
		}
		decisions, err := eval.Decide(context.Background(), r.Recording, found.Policy, nil) // by the code that decides live
		if err != nil {
			return err
		}
		t, labels = r.Take(second)
		rate := func(retained []bool) float64 {
			critical := eval.Select(labels, t.Predicted, slices.Repeat([]bool{true}, len(second)), r.Base.Critical).Critical
			return float64(eval.Select(labels, t.Predicted, retained, r.Base.Critical).Missed) / float64(critical)
		}
		retained := make([]bool, len(second))
		for j, i := range second {
			retained[j] = decisions[i].Action == policy.Retain
		}
		own[h], none[h] = rate(retained), rate(slices.Repeat([]bool{true}, len(second)))
		fewest := math.MaxInt
		for s := range decomp.Score(decomp.NumScores) {
			if r.Table.Scores[s] == nil {
				continue
			}
			threshold := thresholdOf(r, s, o, first)
			scores[s][h] = rate(retainedBy(r, s, o.Scope, threshold, second))
			t, labels := r.Take(first)
			on := eval.Select(labels, t.Predicted, retainedBy(r, s, o.Scope, threshold, first), r.Base.Critical).Missed
			if s < decomp.PaperScores && on < fewest {
				fewest, naive[h] = on, scores[s][h]
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	best := slices.MinFunc(scores[:], func(a, b []float64) int {
		if stat.Mean(a, nil) < stat.Mean(b, nil) {
			return -1
		}
		return 1
	})
	return &cell{stat.Mean(none, nil), stat.Mean(naive, nil), stat.Mean(best, nil), stat.Mean(own, nil), standardError(own, best)}, nil
}

// standardError returns the standard error of the mean of a-b over n random halves. Halves share inputs.
// It therefore takes for the variance of the mean (1/n + 1) times that of a single difference (Nadeau and
// Bengio 2003, for as many test inputs as training inputs).
func standardError(a, b []float64) float64 {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return math.Sqrt((1/float64(len(d)) + 1) * stat.Variance(d, nil))
}

// thresholdOf returns the threshold of a score alone for a coverage of some inputs.
func thresholdOf(r *labelled.Recording, score decomp.Score, o calibrate.Options, inputs []int) float64 {
	var values []float64
	for _, i := range inputs {
		if o.Scope == policy.AllInputs || !r.IsCritical(r.Table.Predicted[i]) {
			values = append(values, r.Table.Scores[score][i])
		}
	}
	n, kept := float64(len(inputs)), float64(len(inputs)-len(values))
	return eval.Threshold(values, max(0.001, (o.Objective.Coverage*n-kept)/float64(len(values))))
}

// retainedBy marks the inputs that a score with a threshold retains.
func retainedBy(r *labelled.Recording, score decomp.Score, scope policy.Scope, threshold float64, inputs []int) []bool {
	retained := make([]bool, len(inputs))
	for j, i := range inputs {
		retained[j] = r.Table.Scores[score][i] <= threshold || scope == policy.PredictedSafe && r.IsCritical(r.Table.Predicted[i])
	}
	return retained
}
