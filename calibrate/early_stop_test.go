package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// TestLearnable checks that every layout and width gives the same values to learn from.
func TestLearnable(t *testing.T) {
	t.Parallel()
	// [passes][inputs][classes] and [inputs][passes][classes] of 2 passes of 3 inputs over 2 classes.
	snk := []float32{0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121}
	nsk := []float32{0, 1, 100, 101, 10, 11, 110, 111, 20, 21, 120, 121}
	wide := func(narrow []float32) (v []float64) {
		for _, x := range narrow {
			v = append(v, float64(x))
		}
		return v
	}
	for name, passes := range map[string]decomp.Tensor{
		"snk float32": {Layout: decomp.SNK, Float32: snk},
		"snk float64": {Layout: decomp.SNK, Float64: wide(snk)},
		"nsk float32": {Layout: decomp.NSK, Float32: nsk},
		"nsk float64": {Layout: decomp.NSK, Float64: wide(nsk)},
	} {
		t.Run(name, func(t *testing.T) {
			passes.Passes, passes.Inputs = 2, 3
			labels := []int{0, 1, 1}
			r := learnable(eval.Recording{Classes: 2, Passes: passes, Labels: labels}, true)
			if r.Passes != 2 || r.Inputs != 3 || !r.Ordered || !slices.Equal(r.Labels, labels) || !slices.Equal(r.Values, snk) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestFewestPassesLeaveSomeToSave checks how many passes a gate that reads skewness demands: as
// many as it needs if the recording has many, and fewer if early stopping would otherwise have no
// pass left to save.
func TestFewestPassesLeaveSomeToSave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		passes, fewest, fewestOfStopped int
	}{{30, 5, 5}, {10, 5, 5}, {5, 5, 4}, {4, 5, 4}} {
		for stopsEarly, want := range map[bool]int{false: c.fewest, true: c.fewestOfStopped} {
			r := &run{sample: &sample{table: &eval.Table{Passes: c.passes, Spec: decomp.Spec{}}}}
			if stopsEarly {
				r.EarlyStop = &EarlyStopOptions{}
			}
			fewest := 2
			for r.hardlyOpens(fewest, 0.3) {
				fewest++
			}
			if fewest != want {
				t.Errorf("of %d passes (stopped early: %v) %d at least, expected %d", c.passes, stopsEarly, fewest, want)
			}
		}
	}
}

// TestDominance checks the notes that compare the learned rule with the other methods: they name
// the shares at which it saves no less, and leave out shares that a method does not reach.
func TestDominance(t *testing.T) {
	t.Parallel()
	at := func(savings ...float64) (all []FrontierAt) { // a negative saving stands for a share that is not reached
		for i, s := range savings {
			all = append(all, FrontierAt{Disagreement: frontierShares[i], Saving: math.Abs(s), Reached: s > 0})
		}
		return all
	}
	f := &Frontier{Methods: []FrontierMethod{
		{Name: LearnedRule, At: at(1.5, 2, 3, -4)},
		{Name: ScoreOnlyRule, At: at(1.6, 2.001, -2.5, 5)},
		{Name: FewerPasses, At: at(1, 1, 1, 1)},
	}}
	want := []string{
		"the learned rule against the score alone: it saves no less at 0.25%, less at 0.1% (1.50x against 1.60x)",
		"the learned rule against fewer passes for every input: it saves no less at every share where they can be compared",
	}
	if got := dominance(f); !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
}

// TestCancelledWhileLearning checks that a calibration that is cancelled ends with the step at
// hand, and that nothing of it works on once it has returned.
func TestCancelledWhileLearning(t *testing.T) {
	t.Parallel()
	r := ctgRecording("ensemble")
	base := basePolicy(t, 3, `critical: ["1", "2"]`, "primary: {score: c_crit_max, threshold: 0.03}", "passes: {expected: 5}")
	for name, run := range map[string]func(context.Context, Progress) error{
		"Run": func(ctx context.Context, p Progress) error {
			_, err := Run(ctx, r, Options{Base: base, EarlyStop: &EarlyStopOptions{Disagreement: 0.05, Confidence: 0.9}, Progress: p})
			return err
		},
		"DrawFrontier": func(ctx context.Context, p Progress) error {
			_, err := DrawFrontier(ctx, r, base, FrontierOptions{Progress: p})
			return err
		},
	} {
		for step := 1; step <= 3; step++ {
			t.Run(fmt.Sprint(name, " at step ", step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					last := 0
					err := run(ctx, func(stage string, done, _ int) {
						if !strings.HasPrefix(stage, "learning") {
							return
						}
						if last = done; done == step {
							cancel()
						}
					})
					synctest.Wait() // until goroutines that were left behind have ended
					if !errors.Is(err, context.Canceled) || last != step {
						t.Errorf("error %v, progress to step %d, expected to end at step %d", err, last, step)
					}
				})
			})
		}
	}
}
