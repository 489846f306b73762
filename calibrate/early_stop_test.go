package calibrate

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

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
		g := newGrouping(groups, len(groups))
		drawn, others := g.split(g.groups/2, newRand(rapid.Uint64().Draw(t, "seed"), 1))
		learns, certifies := slices.Concat(drawn...), slices.Concat(others...)
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
		o := EarlyStopOptions{Base: base, Disagreement: 0.04, Released: 0.2, Confidence: 0.8, Seed: 1}
		for i := range r.Passes.Inputs {
			if size > 0 {
				o.Groups = append(o.Groups, -i/size)
			}
		}
		found := must(LearnEarlyStop(t.Context(), r, o))
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
	o := EarlyStopOptions{Base: base, Disagreement: 0.04, Released: 0.2, Confidence: 0.8, Groups: make([]int, r.Passes.Inputs)}
	if one := must(LearnEarlyStop(t.Context(), r, o)); one.EarlyStop.Refusal == nil {
		t.Errorf("one group certifies: %s", one.EarlyStop.Rule.Statement)
	}
}

// TestEarlyStopRiskByGroup certifies misses of groups on one half of a recording. A rule learned on
// the other half must test that certificate again, by groups. A rule learned on the same half must
// drop the certificate.
func TestEarlyStopRiskByGroup(t *testing.T) {
	t.Parallel()
	r := ctgRecording("ensemble")
	half := func(part int, name string) (eval.Recording, Source, []int) { // every second pair of inputs
		to := eval.Recording{Classes: r.Classes, Passes: decomp.Tensor{Passes: r.Passes.Passes}}
		var groups []int
		for pass := range r.Passes.Passes {
			for i := range r.Passes.Inputs {
				if i/2%2 != part {
					continue
				}
				at := (pass*r.Passes.Inputs + i) * r.Classes
				to.Passes.Float32 = append(to.Passes.Float32, r.Passes.Float32[at:at+r.Classes]...)
				if pass == 0 {
					to.Labels, groups = append(to.Labels, r.Labels[i]), append(groups, i/2)
				}
			}
		}
		to.Passes.Inputs = len(groups)
		return to, Source{Passes: eval.File{Name: name, SHA256: strings.Repeat(name, 64)}}, groups
	}
	first, source, groups := half(0, "a")
	o := options(t, missesUpTo(0.12, 0.8), policy.AllInputs, 42)
	o.Source, o.Groups = source, groups
	certified := must(Run(t.Context(), first, o))
	if certified.Refused() {
		t.Fatalf("%+v", certified.Refusal)
	}
	certified.Policy.Calibration.Certificate.Target = 0.2 // which leaves some room to the rule
	for name, kept := range map[string]bool{"a": false, "b": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			again, source, groups := half(map[bool]int{true: 1}[kept], name)
			found := must(LearnEarlyStop(t.Context(), again, EarlyStopOptions{
				Base: certified.Policy, Disagreement: 0.06, Released: 0.5, Confidence: 0.8, Ordered: true, Seed: 42, Source: source, Groups: groups,
			}))
			if found.Refused() || found.EarlyStop.Risk == nil || found.EarlyStop.Risk.Kept != kept {
				t.Fatalf("%+v, %+v", found.EarlyStop.Refusal, found.EarlyStop.Risk)
			}
			c := found.Policy.Calibration.Certificate
			if kept && (c.Groups == 0 || c.Groups > found.EarlyStop.Groups || !strings.Contains(c.Statement, "of at most 2 critical inputs each") ||
				strings.Contains(c.Statement, policy.IfIndependent)) || !kept && (c != nil || found.Certificate.Void == "") {
				t.Errorf("certificate %+v", c)
			}
		})
	}
}

// TestLeastSaving expects a rule that saves next to nothing to be refused: here the last of four passes
// decides nine tenths of the inputs, by chance.
func TestLeastSaving(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	r := eval.Recording{Classes: 3, Passes: decomp.Tensor{Passes: 4, Inputs: 1000}}
	for pass := range 4 {
		for i := range 1000 {
			suspect := []float32{0.05, 0.25, 0.15, 0.05 + 0.2*float32(rng.IntN(2))}[pass] + 0.04*rng.Float32()
			if i%10 == 0 {
				suspect /= 20
			}
			r.Passes.Float32 = append(r.Passes.Float32, 0.99-suspect, suspect, 0.01)
		}
	}
	base := basePolicy(t, 3, `critical: ["1", "2"]`, "primary: {score: entropy, threshold: 0.5}", "passes: {expected: 4}")
	found := must(LearnEarlyStop(t.Context(), r, EarlyStopOptions{Base: base, Disagreement: 0.02, Released: 0.05, Confidence: 0.9, Ordered: true, Seed: 1}))
	if refused := found.EarlyStop.Refusal; refused == nil || !strings.Contains(refused.Reason, "no rule that stops any input early") || found.Policy != nil {
		t.Errorf("%+v, rule %+v", refused, found.EarlyStop.Rule)
	}
	s := &EarlyStop{Passes: 30}
	for used, refused := range map[int]bool{2700: false, 2728: true, 3000: true} {
		why := s.savesTooLittle(50, float64(used)/100)
		if refused != strings.Contains(why, "expected at least 1.1 times") {
			t.Errorf("%d passes of 100 inputs: %q", used, why)
		}
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
		p := &policy.Policy{FewestPasses: c.fewest, ExpectedPasses: c.expected, Gate: c.gate, ReliabilityThreshold: 0.3}
		if got := fewestToLearn(p, c.passes); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
