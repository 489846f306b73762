package calibrate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/policy"
)

// options returns options to calibrate made-up tables with.
func options(t testing.TB, o Objective, scope policy.Scope, seed uint64) Options {
	return Options{Base: basePolicy(t, 3, "critical: [\"1\", \"2\"]"), Objective: o, Scope: scope, Seed: seed, Force: true}
}

// fnrUpTo and missesUpTo return objectives that bound a share of all critical inputs, and more.
func fnrUpTo(most, confidence float64, more ...Limit) Objective {
	return Objective{Limits: append([]Limit{{"", policy.CriticalFNR, most}}, more...), Confidence: confidence}
}

func missesUpTo(most, confidence float64, more ...Limit) Objective {
	return Objective{Limits: append([]Limit{{"", policy.CriticalMissRate, most}}, more...), Confidence: confidence}
}

// basePolicy returns a policy of k classes 0, 1, ... that observes, with some further lines.
func basePolicy(t testing.TB, k int, lines ...string) *policy.Policy {
	t.Helper()
	text := "models:\n  - name: made\n    gate: never\n    classes: ["
	for c := range k {
		text += fmt.Sprintf("%q,", fmt.Sprint(c))
	}
	text += "]\n"
	for _, line := range lines {
		text += "    " + line + "\n"
	}
	set, err := policy.Parse(policy.File{Name: "base", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return set.All()[0]
}

// runOf returns a run before it looks at its objective.
func runOf(t testing.TB, table *eval.Table, labels []int, o Options) *run {
	return newRun(t.Context(), table, labels, o)
}

// only returns the inputs of a part, in their order, as a recording of its own.
func only(table *eval.Table, labels []int, p part) (*eval.Table, []int) {
	var own []int
	for _, i := range p.inputs() {
		own = append(own, labels[i])
	}
	return table.Select(p.inputs()), own
}

// TestExpectedOfCoverage checks that the expected figures are those of policies on the folds of the
// recording, each calibrated without its fold.
func TestExpectedOfCoverage(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	for seed := range uint64(2) {
		m := usual
		m.n, m.signal, m.identical = 160, 0.5, 0.05
		table, labels := m.table(rand.New(rand.NewPCG(seed, 5)))
		scope := []policy.Scope{policy.AllInputs, policy.PredictedSafe}[seed%2]
		o := options(t, Objective{Coverage: 0.6}, scope, seed)
		found := calibrated(t, table, labels, o)
		r := runOf(t, table, labels, o)
		retained := make([]bool, r.n)
		for _, out := range r.foldsOf(r.all(), folds, newRand(seed, streamOuter)) {
			restTable, restLabels := only(table, labels, r.all().without(out))
			rest := calibrated(t, restTable, restLabels, o)
			for i, keeps := range retainedBy(rest.Policy, table) {
				retained[i] = retained[i] || keeps && out.holds[i]
			}
		}
		sum := eval.Select(labels, table.Predicted, retained, table.Spec.Critical)
		if e := found.Expected; e.Coverage != sum.Coverage() || *e.CriticalFNR != sum.CriticalFNR() {
			t.Errorf("seed %d: expected %+v, the folds show coverage %v and critical FNR %v", seed, e, sum.Coverage(), sum.CriticalFNR())
		}
		own := found.Comparison[slices.IndexFunc(found.Comparison, func(r Row) bool { return r.Calibrated && r.Scope == scope })]
		if own.Coverage != sum.Coverage() || own.Missed != sum.Missed || own.CriticalRetained != sum.Critical ||
			*own.Accuracy != sum.Accuracy() || *own.CriticalMissRate != float64(sum.Missed)/float64(found.Critical) {
			t.Errorf("seed %d: the comparison has %+v, the folds show %+v", seed, own, sum)
		}
	}
}

// retainedBy returns which inputs of a table policy.Decide retains.
func retainedBy(p *policy.Policy, table *eval.Table) []bool {
	score := func(name policy.Score, i int) float64 {
		for s, known := range policy.Scores() {
			if known == name {
				return table.Scores[s][i]
			}
		}
		panic("unknown score " + name)
	}
	retained := make([]bool, table.Inputs)
	for i := range retained {
		skewness := make([]float64, len(p.Classes))
		skewness[p.Critical[0]] = table.CriticalSkewness[i]
		retained[i] = p.Decide(policy.Evidence{
			Predicted: table.Predicted[i], Primary: score(p.Primary.Score, i), Fallback: score(p.Fallback.Score, i),
			Skewness: skewness, Degenerate: table.Degenerate[i], Saturated: table.Saturated[i],
		}).Action == policy.Retain
	}
	return retained
}

// reported returns the report of a choice with its policy.
func (c *choice) reported(r *run) *Report {
	fresh := newRun(r.ctx, r.table, r.label, r.Options)
	fresh.choose(c)
	fresh.report.Policy = must(build(*fresh.draft(c)))
	return fresh.report
}

// must returns v, whose error only the test itself can cause.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestPromises checks that the candidate that promises most is chosen, and that each row of the
// comparison counts the certifying part at the coverage that its rule promises.
func TestPromises(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		table, labels := usual.table(rand.New(rand.NewPCG(seed, 21)))
		r := runOf(t, table, labels, options(t, missesUpTo(0.2, 0.8), policy.AllInputs, seed))
		l := r.newLimitTest()
		own := must(l.rank(policy.AllInputs))
		if rows := l.report.Comparison; !rows[0].Calibrated || len(rows) != len(own.candidates)+1 {
			t.Fatalf("seed %d: rows %+v", seed, rows)
		}
		for i, rule := range own.candidates {
			other, got := l.predict(own.search, rule), l.report.Comparison[1+i]
			if other.last > own.last || other.last == own.last && other.pValue < own.pValue {
				t.Errorf("seed %d: %v is chosen with %+v, %v has %+v", seed, own.chosen, own.promise, rule, other)
			}
			want := eval.Selective{Inputs: l.certifies.n}
			if other.last >= 0 {
				want = own.choiceAt(rule, coverageGrid()[other.last]).selective(l.certifies)
			}
			if got.Rule != rule.String() || got.Nothing != (other.last < 0) || got.Missed != want.Missed ||
				got.CriticalRetained != want.Critical || got.Coverage != want.Coverage() || !isShare(got.Accuracy, want.Correct, want.Retained) {
				t.Errorf("seed %d: row %+v, the certifying part shows %+v", seed, got, want)
			}
		}
	}
}

// TestCertifyingPartChoosesNothing checks that neither the labels nor the scores of the certifying
// part change which rule is chosen, or its threshold curve.
func TestCertifyingPartChoosesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		scope := []policy.Scope{policy.AllInputs, policy.PredictedSafe}[seed%2]
		o := options(t, objectives[1], scope, seed)
		m := usual
		m.n, m.missed = 600, 0.2
		rng := rand.New(rand.NewPCG(seed, 6))
		table, labels := m.table(rng)
		first := calibrated(t, table, labels, o)
		if first.Chosen == nil {
			t.Fatalf("seed %d: nothing certifies: %s", seed, first.Refusal.Reason)
		}
		r := runOf(t, table, labels, o)
		chooses, certifies := r.split()
		found := must(r.search(chooses, scope))

		// Draw the scores of the certifying part anew.
		other := table.Select(r.all().inputs())
		for _, i := range certifies.inputs() {
			for s := range other.Scores {
				other.Scores[s][i] = 0.01 + rng.ExpFloat64()
			}
			other.CriticalSkewness[i] = 1
		}
		checkChoice(t, first, calibrated(t, other, labels, o), found)

		// Swap labels within the certifying part, between neighbours of which one is missed and the
		// other not critical. The part that chooses stays the same.
		swapped, swaps := slices.Clone(labels), 0
		for i := 0; i+1 < r.n; i++ {
			free := certifies.holds[i] && certifies.holds[i+1] && !r.predictedCritical[i] && !r.predictedCritical[i+1]
			if free && r.missed[i] != r.missed[i+1] {
				swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
				swaps++
				i++
			}
		}
		if swaps < 10 {
			t.Fatalf("only %d labels are swapped", swaps)
		}
		checkChoice(t, first, calibrated(t, table, swapped, o), found)
	}
}

func calibrated(t *testing.T, table *eval.Table, labels []int, o Options) *Report {
	t.Helper()
	r, err := Choose(t.Context(), table, labels, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// hasRule reports whether the report names a candidate.
func (c *Chosen) hasRule(rule candidate) bool {
	return rule.gate == c.Gate && rule.primary.String() == c.Primary.Score && (c.Fallback == nil || rule.fallback.String() == c.Fallback.Score)
}

// isAt reports whether the report has these thresholds.
func (c *Chosen) isAt(at thresholds) bool {
	return at[byPrimary] == c.Primary.Threshold && (c.Fallback == nil || at[byFallback] == c.Fallback.Threshold)
}

// checkChoice checks that two reports choose the same rule, at points on the curve that the search
// made.
func checkChoice(t *testing.T, a, b *Report, by *search) {
	t.Helper()
	for _, r := range []*Report{a, b} {
		if r.Chosen == nil {
			continue
		}
		if a.Chosen != nil && (r.Chosen.Gate != a.Chosen.Gate || r.Chosen.Primary.Score != a.Chosen.Primary.Score) {
			t.Errorf("%s: chosen is %+v, and %+v", a.Objective, a.Chosen, r.Chosen)
		}
		way := by.path(by.part, by.scope, by.candidates[slices.IndexFunc(by.candidates, r.Chosen.hasRule)])
		onCurve := false
		for step := range by.part.n + 1 {
			onCurve = onCurve || r.Chosen.isAt(way.thresholds(float64(step)/float64(by.part.n)))
		}
		if !onCurve {
			t.Errorf("%s: the thresholds of %+v are not on the path", r.Objective, r.Chosen)
		}
	}
}
