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

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
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

// TestHalvesByGroup checks that halves divide the inputs between them, half of the groups each, and no
// group.
func TestHalvesByGroup(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.SliceOfN(rapid.IntRange(-3, 20), 1, 60).Draw(t, "groups")
		learns, certifies := halves(len(groups), groups, rapid.Uint64().Draw(t, "seed"))
		in := map[int]bool{}
		for _, i := range learns {
			in[groups[i]] = true
		}
		for _, i := range certifies {
			if in[groups[i]] {
				t.Fatalf("group %d is in both halves", groups[i])
			}
		}
		all := append(slices.Clone(learns), certifies...)
		slices.Sort(all)
		for i, input := range all {
			if i != input {
				t.Fatalf("the halves have inputs %v", all)
			}
		}
		distinct := slices.Compact(slices.Sorted(slices.Values(groups)))
		if len(all) != len(groups) || len(in) != len(distinct)/2 {
			t.Fatalf("%d inputs in halves, %d groups of %d learn", len(all), len(in), len(distinct))
		}
	})
}

// TestEarlyStopByGroup learns a rule with groups of one input, which changes words alone, and with
// larger groups, which are harder to certify on.
func TestEarlyStopByGroup(t *testing.T) {
	t.Parallel()
	r := ctgRecording("ensemble")
	base := basePolicy(t, 3, `critical: ["1", "2"]`, "primary: {score: c_crit_max, threshold: 0.03}", "passes: {expected: 5}")
	learned := func(size int) *Report {
		o := Options{Base: base, EarlyStop: &EarlyStopOptions{Disagreement: 0.04, Released: 0.2, Confidence: 0.8}, Seed: 1}
		for i := range r.Passes.Inputs {
			if size > 0 {
				o.Groups = append(o.Groups, -i/size)
			}
		}
		found := must(Run(t.Context(), r, o))
		if found.Refused() {
			t.Fatalf("groups of %d: %+v", size, found.EarlyStop.Refusal)
		}
		return found
	}
	alone, single, fours := learned(0), learned(1), learned(4)
	ignoring := cmpopts.IgnoreFields(EarlyStopRule{}, "Statement")
	if diff := cmp.Diff(alone.EarlyStop.Rule, single.EarlyStop.Rule, ignoring, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Errorf("groups of one (-without +with):\n%s", diff)
	}
	for _, c := range []struct {
		found  *Report
		groups int
	}{{alone, 0}, {single, 1063}, {fours, 266}} {
		s, certified := c.found.EarlyStop, c.found.Policy.EarlyStopping.Certificate
		if s.Groups != c.groups || certified.Groups != c.groups || strings.Contains(s.Rule.Statement, policy.IfIndependent) != (c.groups == 0) {
			t.Errorf("%d groups, %d in the policy, want %d: %s", s.Groups, certified.Groups, c.groups, s.Rule.Statement)
		}
	}
	if !strings.Contains(fours.EarlyStop.Rule.Statement, "for groups of at most 4 inputs") {
		t.Error(fours.EarlyStop.Rule.Statement)
	}
	o := Options{Base: base, EarlyStop: &EarlyStopOptions{Disagreement: 0.04, Released: 0.2, Confidence: 0.8}, Groups: make([]int, r.Passes.Inputs)}
	if one := must(Run(t.Context(), r, o)); one.EarlyStop.Refusal == nil {
		t.Errorf("one group certifies: %s", one.EarlyStop.Rule.Statement)
	}
}

// TestEarlyStopRiskByGroup expects a certificate about misses of groups to be tested again with the rule
// in force, by groups.
func TestEarlyStopRiskByGroup(t *testing.T) {
	t.Parallel()
	r := ctgRecording("ensemble")
	o := options(t, Objective{MaxCriticalMiss: 0.15, Confidence: 0.8}, policy.AllInputs, 42)
	o.EarlyStop = &EarlyStopOptions{Disagreement: 0.05, Released: 0.2, Confidence: 0.8, Ordered: true}
	for i := range r.Passes.Inputs {
		o.Groups = append(o.Groups, i/2)
	}
	found := must(Run(t.Context(), r, o))
	if found.Refused() || found.EarlyStop.Risk == nil || !found.EarlyStop.Risk.Kept {
		t.Fatalf("refusal %+v, %+v, early stopping %+v", found.Refusal, found.EarlyStop.Refusal, found.EarlyStop.Risk)
	}
	c := found.Policy.Calibration.Certificate
	if c.Groups == 0 || c.Groups > found.EarlyStop.Groups || !strings.Contains(c.Statement, "of at most 2 critical inputs each") ||
		strings.Contains(c.Statement, policy.IfIndependent) {
		t.Errorf("certificate %+v", c)
	}
	if got := found.Inputs + found.EarlyStop.CertifiedOn; got != r.Passes.Inputs || found.Inputs%2 != 0 {
		t.Errorf("%d inputs calibrate and %d certify", found.Inputs, found.EarlyStop.CertifiedOn)
	}
}

// TestFewestPasses checks from which pass on a rule may decide: what a policy says, or where it was
// calibrated without a rule what its gate needs, with some left to save.
func TestFewestPasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fewest, expected, passes int
		gate                     policy.Gate
		want                     int
	}{
		{2, 30, 30, policy.Never, 2}, {10, 30, 30, policy.Never, 10}, {30, 30, 30, policy.Never, 2}, {30, 0, 30, policy.Never, 30},
		{30, 30, 30, policy.AnyCritical, 5}, {2, 10, 10, policy.AnyCritical, 5}, {5, 5, 5, policy.AnyCritical, 4},
		{4, 4, 4, policy.AnyCritical, 4},
	} {
		p := &policy.Policy{FewestPasses: c.fewest, ExpectedPasses: c.expected}
		if got := fewestToLearn(p, c.gate, 0.3, c.passes); got != c.want {
			t.Errorf("%+v: %d", c, got)
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
