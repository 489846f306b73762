package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// TestRisk calibrates a real recording whose critical calls are acted on, with a guard, and checks
// what the report and the policy say: what the guard defers is part of every figure.
func TestRisk(t *testing.T) {
	t.Parallel()
	recording := ctgRecording("mcdropout")
	o := options(t, Objective{Coverage: 0.8}, policy.AllInputs, 1)
	o.Guard, o.CriticalCalls = 0.02, eval.ActedOn
	found := must(Run(t.Context(), recording, o))
	if found.Chosen.Primary.Score != "risk" || found.Chosen.Guard == nil || !found.Gain.Supports || found.Gain.Deferred == 0 {
		t.Fatalf("chosen %+v, gain %+v", found.Chosen, found.Gain)
	}
	if r := found.Risk; r == nil || r.Critical != found.Missed || len(r.Bins) != 10 || r.ObservedOverExpected.Low > 1 ||
		r.ObservedOverExpected.High < 1 {
		t.Errorf("risk %+v", r)
	}
	if notes := strings.Join(found.Notes, "\n"); !strings.Contains(notes, "inputs as unfamiliar (2") {
		t.Errorf("no note says what the guard deferred: %s", notes)
	}
	// The policy decides as the report expects, defers as many as unfamiliar as the guard says, and
	// retains whatever else is called critical.
	decisions := must(eval.Decide(t.Context(), recording, found.Policy, nil))
	table := must(eval.NewTable(t.Context(), recording, engine.Spec(o.Base), nil))
	foreign, deferred := 0, 0
	for i, d := range decisions {
		foreign += index(d.Reason == policy.Unfamiliar)
		deferred += index(d.Action == policy.Defer)
		if d.Reason == policy.Unfamiliar != (table.Scores[decomp.MI][i] > found.Policy.Guard.Threshold) {
			t.Fatalf("input %d: %+v", i, d)
		}
		if table.Predicted[i] > 0 && d.Action == policy.Defer && d.Reason != policy.Unfamiliar {
			t.Fatalf("input %d is called critical and deferred: %+v", i, d)
		}
	}
	n := float64(len(decisions))
	if got := float64(foreign) / n; math.Abs(got-o.Guard) > 0.002 {
		t.Errorf("a share of %v is unfamiliar", got)
	}
	if got := float64(deferred) / n; math.Abs(got-0.2) > 0.002 {
		t.Errorf("a share of %v is deferred", got)
	}
}

// TestCriticalCalls checks that, in scope all, risk is chosen only where critical calls are said to be
// acted on, and offered with its numbers elsewhere, whatever the objective.
func TestCriticalCalls(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "mcdropout")
	for _, objective := range []Objective{{Coverage: 0.8}, missesUpTo(0.1, 0.9)} {
		for calls, keeps := range map[eval.CriticalCalls]bool{"": false, eval.Reviewed: false, eval.ActedOn: true} {
			o := options(t, objective, policy.AllInputs, 1)
			o.CriticalCalls = calls
			found := calibrated(t, table, labels, o)
			if got := found.Chosen.Primary.Score == "risk"; got != keeps {
				t.Errorf("%s, critical calls %q: chosen %+v", objective, calls, found.Chosen)
			}
			if !slices.ContainsFunc(found.Comparison, func(row Row) bool { return row.Rule == "risk" && row.Scope == policy.AllInputs && row.KeepsCalls }) {
				t.Errorf("%s, critical calls %q: the comparison does not offer risk", objective, calls)
			}
		}
	}
	o := options(t, Objective{CostRatio: 30}, policy.AllInputs, 1)
	if err := o.check(); err == nil || !strings.Contains(err.Error(), "--critical-calls acted-on") {
		t.Errorf("a cost ratio in scope all: %v", err)
	}
	o.CriticalCalls = eval.ActedOn
	if err := o.check(); err != nil {
		t.Error(err)
	}
}

// TestBest checks that the simplest rule stays until another misses clearly fewer: p_critical, unless
// its scope defers critical calls.
func TestBest(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		m := usual
		m.signal = 0
		table, labels := m.table(rand.New(rand.NewPCG(seed, 19)))
		r := runOf(t, table, labels, options(t, Objective{Coverage: 0.7}, policy.PredictedSafe, seed))
		mark := func(score decomp.Score) { // has it find every missed input
			for i, missed := range r.missed {
				if missed {
					table.Scores[score][i] = float64(100 + i)
				}
			}
			r = runOf(t, table, labels, r.Options)
		}
		best := func(keepsCalls bool) decomp.Score {
			return must(r.search(r.all(), policy.PredictedSafe)).best(0.7, keepsCalls).primary
		}
		mark(decomp.PCritical)
		if got := best(false); got != decomp.PCritical {
			t.Errorf("seed %d: %v misses more than p_critical and is chosen", seed, got)
		}
		mark(decomp.EUVar)
		if got := best(true); got != decomp.PCritical {
			t.Errorf("seed %d: %v is chosen, which misses about as many as p_critical", seed, got)
		}
		if got := best(false); got != decomp.EUVar {
			t.Errorf("seed %d: %v is chosen, which misses about as many as the best score", seed, got)
		}
	}
}

// TestGuardWithinCoverage asks for a coverage that leaves no room for the whole guard.
func TestGuardWithinCoverage(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "mcdropout")
	o := options(t, Objective{Coverage: 0.99}, policy.PredictedSafe, 1)
	o.Guard = 0.5
	r := runOf(t, table, labels, o)
	s := must(r.search(r.all(), o.Scope))
	for _, rule := range s.candidates {
		if got := s.choiceAt(rule, 0.99).selective(r.all()).Coverage(); rule.guarded && got < 0.985 {
			t.Errorf("%s retains a share of %v", rule, got)
		}
	}
}

// TestNoRisk calibrates where too few critical inputs are called safe, and where the inputs have no
// mean predictions.
func TestNoRisk(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "mcdropout")
	var few []int
	missed := 0
	for i, label := range labels {
		if label > 0 && table.Predicted[i] == 0 {
			if missed++; missed > 9 {
				continue
			}
		}
		few = append(few, i)
	}
	fewer, fewerLabels := take(table, labels, few)
	found := calibrated(t, fewer, fewerLabels, options(t, Objective{Coverage: 0.8}, policy.AllInputs, 1))
	if found.Risk != nil || found.Policy.Risk != nil || !strings.Contains(strings.Join(found.Notes, "\n"), "9 critical and 1591 non-critical inputs are called safe") {
		t.Errorf("risk %+v, notes %q", found.Risk, found.Notes)
	}
	_, err := Choose(t.Context(), fewer, fewerLabels, options(t, Objective{CostRatio: 50}, policy.PredictedSafe, 1))
	if err == nil || !strings.Contains(err.Error(), "9 critical and 1591 non-critical inputs are called safe") {
		t.Errorf("error %v", err)
	}
}

// TestCostRatio checks the threshold, and that dearer misses have more inputs deferred.
func TestCostRatio(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "lowrank")
	found := calibrated(t, table, labels, options(t, Objective{CostRatio: 30}, policy.PredictedSafe, 1))
	if p := found.Policy.Primary; p.Score != policy.RiskScore || p.Threshold != 1./30 {
		t.Errorf("primary %+v", p)
	}
	for i, c := range found.Costs {
		if want := 1000 * (float64(c.Deferred) + c.Ratio*float64(c.Missed)) / float64(c.Inputs); math.Abs(c.CostPer1000-want) > 1e-9 ||
			c.Inputs != table.Inputs {
			t.Errorf("costs %+v", c)
		}
		if i > 0 && (c.Deferred < found.Costs[i-1].Deferred || c.Missed > found.Costs[i-1].Missed) {
			t.Errorf("costs %+v after %+v", c, found.Costs[i-1])
		}
	}
	if len(found.Costs) != len(costRatios)+1 {
		t.Errorf("%d ratios", len(found.Costs))
	}
}

// TestServed checks that costs at another prevalence are those of a recording with that share of
// critical inputs: one in which every other input stands three times.
func TestServed(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "lowrank")
	critical := 0
	for _, label := range labels {
		critical += index(label > 0)
	}
	r := runOf(t, table, labels, options(t, Objective{CostRatio: 30}, policy.AllInputs, 1))
	others := table.Inputs - critical
	r.Prevalence = float64(critical) / float64(critical+3*others)
	got := r.costPoint(30, eval.Selective{Inputs: table.Inputs, Retained: table.Inputs - 300, Critical: critical - 100, Missed: 20})
	n := float64(critical+3*others) / 1000
	want := CostPoint{Ratio: 30, Threshold: 1. / 30, Inputs: table.Inputs, Deferred: 300, Missed: 20, DeferredPer1000: (100 + 3*200) / n,
		MissedPer1000: 20 / n, CostPer1000: (100 + 3*200 + 30*20) / n, WithoutDeferral: 30 * float64(count(r.missed)) / n}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(1e-12, 0)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	o := options(t, Objective{Coverage: 0.8}, policy.AllInputs, 1)
	o.Prevalence = 0.02
	if notes := strings.Join(calibrated(t, table, labels, o).Notes, "\n"); !strings.Contains(notes, "of which 22.2% of the inputs are critical; where 2% are") {
		t.Errorf("notes %s", notes)
	}
}

// TestPrevalence checks that another prevalence shifts risk and threshold alike: it decides as
// before.
func TestPrevalence(t *testing.T) {
	t.Parallel()
	recording := ctgRecording("mcdropout")
	table, labels := ctg(t, "mcdropout")
	o := options(t, Objective{Coverage: 0.8}, policy.PredictedSafe, 1)
	r := runOf(t, table, labels, o)
	var retained [2][]bool
	var thresholds [2]float64
	for at, prevalence := range []float64{0, 0.01} {
		r.Prevalence = prevalence
		p := must(r.search(r.all(), o.Scope)).choiceAt(single(riskScore), 0.8).reported(r).Policy
		thresholds[at] = p.Primary.Threshold
		for _, d := range must(eval.Decide(t.Context(), recording, p, nil)) {
			retained[at] = append(retained[at], d.Action == policy.Retain)
		}
	}
	if diff := cmp.Diff(retained[0], retained[1]); diff != "" {
		t.Errorf("decisions (-of the recording's share +of 0.01):\n%s", diff)
	}
	odds := func(p float64) float64 { return p / (1 - p) }
	share := float64(count(r.critical)) / float64(r.n)
	if got, want := odds(thresholds[1])/odds(thresholds[0]), odds(0.01)/odds(share); math.Abs(got/want-1) > 0.02 {
		t.Errorf("the odds of the threshold are multiplied by %v, those of the prevalence by %v", got, want)
	}
}

// TestLead works out differences by hand.
func TestLead(t *testing.T) {
	t.Parallel()
	s := &search{sample: &sample{grouping: newGrouping([]int{0, 1, 0, 2}, 4)}}
	// Group 0 differs by 1.5, group 1 by 0, group 2 by -1.
	fewer, se := s.lead(&misses{missed: []float64{0, 1, 0, 1}}, &misses{missed: []float64{1, 1, 0.5, 0}})
	if fewer != 0.5 || math.Abs(se-math.Sqrt(1.5*1.5+1)) > 1e-15 {
		t.Errorf("%v fewer, standard error %v", fewer, se)
	}
}

// TestBudgetOfReviews checks that critical calls use up part of a budget of reviews, that both scopes
// then miss the same, and that the policy keeps to the budget.
func TestBudgetOfReviews(t *testing.T) {
	t.Parallel()
	recording := ctgRecording("ensemble")
	table, labels := ctg(t, "ensemble")
	const budget = 0.3
	for _, scope := range []policy.Scope{policy.AllInputs, policy.PredictedSafe} {
		o := options(t, Objective{Reviews: budget}, scope, 1)
		o.CriticalCalls, o.Guard = eval.Reviewed, 0.02
		found := calibrated(t, table, labels, o)
		reviews, called := 0, 0
		for i, d := range must(eval.Decide(t.Context(), recording, found.Policy, nil)) {
			reviews += index(d.Action == policy.Defer || table.Predicted[i] > 0)
			called += index(table.Predicted[i] > 0)
		}
		if most := table.Inputs - eval.Kept(1-budget, table.Inputs); reviews > most || reviews < most-2 {
			t.Errorf("scope %s: %d reviews, %d of them of critical calls, the budget is %d", scope, reviews, called, most)
		}
		missed := map[policy.Scope]map[string]int{policy.AllInputs: {}, policy.PredictedSafe: {}}
		for _, row := range found.Comparison {
			if row.Rule != "no review" {
				missed[row.Scope][row.Rule] = row.Missed
			}
			if row.Reviews != row.Deferred+row.CriticalKept {
				t.Errorf("critical calls are reviewed: row %+v", row)
			}
			if got := float64(row.Reviews) / float64(row.Inputs); row.Calibrated && math.Abs(got-budget) > 0.02 {
				t.Errorf("held out, a share of %v is reviewed in scope %s", got, row.Scope)
			}
		}
		for rule, n := range missed[policy.AllInputs] {
			// What is chosen may differ: a gate needs enough inputs of a scope on either side.
			if got, both := missed[policy.PredictedSafe][rule]; both && got != n && rule != "calibrated" {
				t.Errorf("%s misses %d in scope all and %d in scope predicted-safe", rule, n, got)
			}
		}
	}
	o := options(t, Objective{Reviews: 0.1}, policy.AllInputs, 1)
	if _, err := Run(t.Context(), recording, o); err == nil {
		t.Error("a budget of reviews where critical calls are acted on")
	}
	o.CriticalCalls = eval.Reviewed
	_, err := Choose(t.Context(), table, labels, o)
	if err == nil || !strings.Contains(err.Error(), "100 reviews per 1,000") || !strings.Contains(err.Error(), "of the 2126 inputs") {
		t.Errorf("error %v", err)
	}
}
