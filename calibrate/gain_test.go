package calibrate

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/policy"
)

// TestNothingGained calibrates on parts of a real recording. Those that show no gain give a policy only
// if it is forced.
func TestNothingGained(t *testing.T) {
	t.Parallel()
	table, truth := ctg(t, "ensemble")
	isMiss := func(i int) bool { return truth[i] > 0 && table.Predicted[i] == 0 }
	inputs := func(most, misses int) (all []int) { // the first inputs, with so many missed ones
		for i := range truth {
			if isMiss(i) {
				if misses--; misses < 0 {
					continue
				}
			}
			if len(all) < most {
				all = append(all, i)
			}
		}
		return all
	}
	random := rand.New(rand.NewPCG(5, 8))
	pairs := func(n int) (groups []int) {
		for i := range n {
			groups = append(groups, i/2)
		}
		return groups
	}
	for _, c := range []struct {
		name      string
		objective Objective
		scope     policy.Scope
		inputs    []int
		labels    func(labels, predicted []int)
		groups    bool
		says      string // empty if a policy is made
	}{
		{"everything", Objective{Coverage: 0.8}, policy.AllInputs, inputs(3000, 100), nil, false, ""},
		{"everything, called safe alone", Objective{Coverage: 0.8}, policy.PredictedSafe, inputs(3000, 100), nil, false, ""},
		{"by groups", Objective{Coverage: 0.8}, policy.PredictedSafe, inputs(3000, 100), nil, true, ""},
		{"costs", Objective{CostRatio: 20}, policy.PredictedSafe, inputs(3000, 100), nil, false, ""},
		{"a bound", missesUpTo(0.1, 0.95), policy.PredictedSafe, inputs(3000, 100), nil, false, ""},
		{"nothing missed", Objective{Coverage: 0.8}, policy.AllInputs, inputs(3000, 0), nil, false, "none of its"},
		{"one miss that the model is sure of", Objective{Coverage: 0.95}, policy.PredictedSafe, inputs(3000, 1), nil, false, "misses 1 of"},
		{"few inputs", Objective{Coverage: 0.8}, policy.AllInputs, inputs(12, 2), nil, false, "cannot support a policy"},
		{"a perfect model", Objective{Coverage: 0.8}, policy.AllInputs, inputs(3000, 100),
			func(labels, predicted []int) { copy(labels, predicted) }, false, "none of its"},
		{"chance labels of what is called safe", Objective{Coverage: 0.8}, policy.PredictedSafe, inputs(3000, 100), func(labels, predicted []int) {
			for i, k := range predicted {
				if k == 0 {
					labels[i] = index(random.Float64() < 0.1)
				}
			}
		}, false, "drawn at random"},
		{"nothing to review", Objective{Coverage: 1}, policy.AllInputs, inputs(3000, 100), nil, false, "of 2126 inputs"},
		{"a bound that holds without review", missesUpTo(0.3, 0.95), policy.PredictedSafe, inputs(3000, 100), nil, false, "No policy is needed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			part, labels := take(table, truth, c.inputs)
			if c.labels != nil {
				c.labels(labels, part.Predicted)
			}
			o := options(t, c.objective, c.scope, 1)
			o.Force = false
			if c.groups {
				o.Groups = pairs(len(labels))
			}
			found := must(Choose(t.Context(), part, labels, o))
			if found.Gain == nil || found.Unsupported != "" != (c.says != "") || !strings.Contains(found.Unsupported, c.says) {
				t.Fatalf("%q, gain %+v, refusal %+v", found.Unsupported, found.Gain, found.Refusal)
			}
			if found.Refused() != (c.says != "") || (found.Policy == nil) != found.Refused() || (found.Chosen == nil) != found.Refused() {
				t.Errorf("policy %v, refusal %+v", found.Policy, found.Refusal)
			}
			o.Force = true
			forced := must(Choose(t.Context(), part, labels, o))
			if forced.Policy == nil || forced.Policy.Calibration.Unsupported != found.Unsupported || len(forced.Warnings) != index(c.says != "") {
				t.Errorf("forced: policy %v, warnings %q", forced.Policy, forced.Warnings)
			}
		})
	}
}

// TestForceCertifiesNothing expects no policy where nothing certifies.
func TestForceCertifiesNothing(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "ensemble")
	if found := must(Choose(t.Context(), table, labels, options(t, missesUpTo(0.001, 0.95), policy.AllInputs, 1))); !found.Refused() || found.Policy != nil {
		t.Errorf("policy %v", found.Policy)
	}
}

// TestCurve expects the chosen point's neighbourhood on the curve, from everything deferred to nothing.
func TestCurve(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "ensemble")
	for _, objective := range []Objective{{Coverage: 0.8}, {CostRatio: 20}, missesUpTo(0.1, 0.95)} {
		found := must(Choose(t.Context(), table, labels, options(t, objective, policy.PredictedSafe, 1)))
		none, curve := found.Comparison[0], found.Curve
		if curve.Inputs != none.Inputs || curve.Critical != none.CriticalInputs || len(curve.Policy) != len(curve.MI) {
			t.Fatalf("%s: %d inputs of %d", objective, curve.Inputs, none.Inputs)
		}
		first, last := curve.Policy[0], curve.Policy[len(curve.Policy)-1]
		if first.Missed > 0 || last.Missed < none.Missed-3 || last.Deferred > none.Inputs/100 {
			t.Errorf("%s: from %+v to %+v", objective, first, last)
		}
		for i := range curve.Policy[1:] {
			if p, q := curve.Policy[i], curve.Policy[i+1]; q.Deferred > p.Deferred || q.Missed < p.Missed {
				t.Errorf("%s: %+v after %+v", objective, q, p)
			}
		}
	}
}
