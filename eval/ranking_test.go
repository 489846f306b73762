package eval_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// TestGatesHandOver expects gates to use c_crit_max and, for the inputs that fall back, cbec.
func TestGatesHandOver(t *testing.T) {
	table, labels := tiny()
	table.Scores[decomp.CCritMax] = []float64{0.1, 0.2, 0.3, 0.4, 0.5}
	table.Scores[decomp.CBEC] = []float64{0.5, 0.4, 0.3, 0.2, 0.1}
	table.CriticalSkewness = []float64{1, 1, 1, 1, 1}
	r := evaluate(t, table, labels, eval.Options{Coverage: 0.4, Bootstrap: 10})
	for scope := range map[policy.Scope]bool{policy.AllInputs: true, policy.PredictedSafe: true} {
		// All inputs fall back, so that the gate ranks as cbec does.
		gate, cbec := row(t, r, "any-critical", scope), row(t, r, "cbec", scope)
		if gate.SameAs != "cbec" {
			t.Errorf("any-critical is the same as %q, expected cbec", gate.SameAs)
		}
		gate.Name, gate.SameAs = "cbec", ""
		same(t, "any-critical", gate, cbec)
	}
	// Input 4 alone falls back, with the quantile 0.5. It comes between inputs 1 and 2 of the other
	// four, which have 0.375 and 0.625.
	table.CriticalSkewness = []float64{0, 0, 0, 0, 1}
	r = evaluate(t, table, labels, eval.Options{Coverage: 0.4, Bootstrap: 10})
	got := row(t, r, "any-critical", policy.AllInputs)
	if got.Retained != 2 || got.CriticalMissed != 1 || got.Accuracy != 0.5 {
		t.Errorf("of inputs 0 and 1 are retained %+v", got.At)
	}
	r = evaluate(t, table, labels, eval.Options{Coverage: 0.6})
	if got := row(t, r, "any-critical", policy.AllInputs); got.CriticalRetained != 1 || got.Accuracy != 1./3 {
		t.Errorf("of inputs 0, 1 and 4 are retained %+v", got.At)
	}
}

// TestByPolicy expects keys up to 1 for the inputs that the policy retains.
func TestByPolicy(t *testing.T) {
	table := &eval.Table{
		Inputs: 7, K: 2, Predicted: make([]int, 7),
		Saturated:  []bool{false, false, false, false, true, false, false},
		Degenerate: []bool{false, false, false, false, true, true, false},
	}
	p := &policy.Policy{
		Primary: policy.Rule{HasThreshold: true}, Saturated: policy.HandleRetain, Degenerate: policy.HandleDefer,
	}
	decision := func(action policy.Action, reason policy.Reason, value, threshold float64) policy.Decision {
		return policy.Decision{Action: action, Reason: reason, Value: value, Threshold: threshold, HasThreshold: true}
	}
	got := eval.ByPolicy(p, table, policy.AllInputs, []policy.Decision{
		decision(policy.Retain, policy.UnderThreshold, 1, 4),
		decision(policy.Defer, policy.AboveThreshold, 6, 4),
		decision(policy.Retain, policy.UnderThreshold, 0, 0),
		decision(policy.Defer, policy.AboveThreshold, 1, 0),
		decision(policy.Retain, policy.IsSaturated, 6, 4),
		// In its own scope it is retained; in another its identical passes are deferred.
		decision(policy.Retain, policy.PredictedCritical, 1, 4),
		decision(policy.Defer, policy.AboveThreshold, math.Nextafter(1.9, 2), 1.9),
	})
	inf := math.Inf(1)
	if want := []float64{0.25, 1.5, 0, inf, 0, inf, math.Nextafter(1, 2)}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}

	// Without thresholds the key is the quantile of the score that the gate chose.
	p.Primary.HasThreshold = false
	observed := make([]policy.Decision, 7)
	for i := range observed {
		observed[i] = policy.Decision{Action: policy.Observe, Value: float64(i), Gate: policy.ByPrimary}
		if i >= 5 {
			observed[i].Gate = policy.ByFallback
		}
	}
	got = eval.ByPolicy(p, table, policy.AllInputs, observed)
	if want := []float64{.1, .3, .5, .7, .9, .25, .75}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestPaperTablesAreOfTheTenScores checks that p_critical has rows of its own, and changes nothing of
// what the paper compares.
func TestPaperTablesAreOfTheTenScores(t *testing.T) {
	passes, labels := gradedRecording(300, 4, 5)
	with := table(t, passes, decomp.Spec{Critical: []int{2, 3}, Safe: []int{0, 1}})
	without := *with
	without.Scores[decomp.PCritical] = nil
	o := eval.Options{Bootstrap: 30, Seed: 3}
	got, want := evaluate(t, with, labels, o), evaluate(t, &without, labels, o)

	rows := map[policy.Scope]eval.Row{}
	got.Policies = slices.DeleteFunc(got.Policies, func(row eval.Row) bool {
		if row.Name == decomp.PCritical.String() {
			rows[row.Scope] = row
		}
		return row.Name == decomp.PCritical.String()
	})
	if len(rows) != 2 {
		t.Fatalf("p_critical has %d rows, want one in each scope", len(rows))
	}
	for scope, row := range rows {
		// It was lowest in so many of the resamples.
		lower := eval.Figure(0)
		for b, area := range row.Bootstrap.Samples {
			lowest := eval.Figure(math.Inf(1))
			for _, other := range want.Policies {
				if score, ok := decomp.ParseScore(other.Name); ok && score.InPaper() && other.Scope == scope {
					lowest = min(lowest, other.Bootstrap.Samples[b])
				}
			}
			if area < lowest {
				lower++
			}
		}
		if share := lower / 30; row.Bootstrap.WinShare != share {
			t.Errorf("scope %s: p_critical wins %v, was lowest in %v", scope, row.Bootstrap.WinShare, share)
		}
	}
	for _, same := range []struct {
		what      string
		got, want any
	}{
		{"rows", got.Policies, want.Policies},
		{"pairwise comparisons", got.Pairwise, want.Pairwise},
		{"paper's rule", got.PaperRule, want.PaperRule},
		{"notes", got.Notes, want.Notes},
	} {
		if diff := cmp.Diff(same.want, same.got, number, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s (-without p_critical +with):\n%s", same.what, diff)
		}
	}
}
