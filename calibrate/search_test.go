package calibrate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/policy"
)

// TestFolds checks that the folds divide the part between them, and spread missed and other
// critical inputs evenly.
func TestFolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t)
		p := drawPart(t, s)
		k := rapid.IntRange(1, 7).Draw(t, "folds")
		parts := s.foldsOf(p, k, newRand(rapid.Uint64().Draw(t, "seed"), streamFolds))
		if len(parts) != k {
			t.Fatalf("%d folds, want %d", len(parts), k)
		}
		for _, one := range parts {
			if one.n < p.n/k || one.n > (p.n+k-1)/k {
				t.Fatalf("a fold of %d inputs, of %d", one.n, p.n)
			}
		}
		checkShares(t, s, p, parts, func(int, int) float64 { return 1 / float64(k) })
	})
}

// TestSplitOfTheRecording checks that a third of the inputs chooses and the rest certifies,
// whatever the labels are: otherwise the two would not be independent.
func TestSplitOfTheRecording(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t)
		r := &run{sample: s, Options: Options{Seed: rapid.Uint64().Draw(t, "seed")}}
		chooses, certifies := r.split()
		if n := float64(s.n); math.Abs(float64(chooses.n)-n/3) > 0.5 || chooses.n+certifies.n != s.n {
			t.Fatalf("%d and %d of %d inputs", chooses.n, certifies.n, s.n)
		}
		for i := range s.n {
			if chooses.of[i] == certifies.of[i] {
				t.Fatalf("input %d is in both parts or in none", i)
			}
			s.critical[i], s.missed[i] = !s.critical[i], !s.critical[i]
		}
		if again, _ := r.split(); !slices.Equal(again.of, chooses.of) {
			t.Fatal("the split depends on the labels")
		}
	})
}

// checkShares checks that each part has its share of each stratum, within one input.
func checkShares(t *rapid.T, s *sample, whole part, parts []part, share func(of, stratum int) float64) {
	stratum := func(i int) int { return index(s.critical[i]) + index(s.missed[i]) }
	in := make([]int, s.n)
	var strata [3]int
	for _, i := range whole.inputs() {
		strata[stratum(i)]++
	}
	for of, p := range parts {
		var found [3]int
		for _, i := range p.inputs() {
			in[i]++
			found[stratum(i)]++
		}
		if p.n != found[0]+found[1]+found[2] {
			t.Fatalf("part %d says that it has %d inputs, it has %v", of, p.n, found)
		}
		for k, n := range found {
			if math.Abs(float64(n)-share(of, k)*float64(strata[k])) >= 1 {
				t.Fatalf("part %d has %d inputs of stratum %d, of %d", of, n, k, strata[k])
			}
		}
	}
	for i := range s.n {
		if in[i] != index(whole.of[i]) {
			t.Fatalf("input %d is in %d parts", i, in[i])
		}
	}
}

// options returns options to calibrate made-up tables with.
func options(t testing.TB, o Objective, scope policy.Scope, seed uint64) Options {
	return Options{Base: basePolicy(t, 3, "critical: [\"1\", \"2\"]"), Objective: o, Scope: scope, Seed: seed}
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
	r := &run{
		sample: newSample(table, labels, o.Base.Degenerate, o.Base.Saturated), Options: o, ctx: t.Context(),
	}
	r.grouping = newGrouping(o.Groups)
	return r
}

// only returns the inputs of a part, in their order, as a recording of its own.
func only(table *eval.Table, labels []int, p part) (*eval.Table, []int) {
	var own []int
	for _, i := range p.inputs() {
		own = append(own, labels[i])
	}
	return table.Select(p.inputs()), own
}

// TestSearchSeesItsPartOnly checks that a search in a part of a recording finds what it finds in a
// recording of that part alone.
func TestSearchSeesItsPartOnly(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		m := usual
		m.ties, m.identical = seed%2 == 1, 0.05
		table, labels := m.table(rand.New(rand.NewPCG(seed, 4)))
		scope := []policy.Scope{policy.AllInputs, policy.PredictedSafe}[seed/2]
		o := options(t, Objective{Coverage: 0.7}, scope, seed)
		r := runOf(t, table, labels, o)
		chooses, _ := r.split()
		for _, i := range chooses.inputs() {
			table.Scores[decomp.VarCrit][i] = 0.5 // constant in the part alone
		}
		r = runOf(t, table, labels, o)
		partTable, partLabels := only(table, labels, chooses)
		alone := runOf(t, partTable, partLabels, o)

		same := func(what string, a, b any) {
			t.Helper()
			if !reflect.DeepEqual(a, b) {
				t.Errorf("seed %d: %s: %v, alone %v", seed, what, a, b)
			}
		}
		samePath := func(a, b *search, one candidate) {
			t.Helper()
			pathA, pathB := a.curve(one), b.curve(one)
			for _, c := range coverageGrid() {
				same(fmt.Sprintf("thresholds at %v", c), pathA(c), pathB(c))
			}
		}
		same("FNR of the path", r.curveFNR(chooses), alone.curveFNR(alone.all()))
		s, sAlone := must(r.search(chooses, scope, r.curveFNR(chooses))), must(alone.search(alone.all(), scope, r.curveFNR(chooses)))
		same("rules", s.candidates, sAlone.candidates)
		best := must(s.bestAt(r, 0.7))
		bestAlone := must(sAlone.bestAt(alone, 0.7))
		same("rule at a coverage", best, bestAlone)
		samePath(s, sAlone, best)

		ranked := func(r *run, chooses, certifies part) ranking {
			m := riskControl{limit: limit{target: 0.1}, n: 60,
				certification: certification{run: r, to: newReporter(r), chooses: chooses, certifies: certifies}}
			return must(m.compareRanks(0.1, m.rank))[0]
		}
		by, byAlone := ranked(r, chooses, r.all().without(chooses)), ranked(alone, alone.all(), alone.all())
		same("rule that promises most", by.chosen, byAlone.chosen)
		same("its rank", by.best, byAlone.best)
		samePath(by.search, byAlone.search, by.chosen)
	}
}

// TestBestAt computes the choice by its definition: the lowest mean critical FNR over coverages up
// to 0.15 from the one asked for, with Gaussian weights of standard deviation 0.06. Rules that
// nobody would write by hand have 0.2 standard errors against them.
func TestBestAt(t *testing.T) {
	t.Parallel()
	chosen := map[string]bool{}
	for seed := range uint64(12) {
		m := usual
		m.signal = []float64{0, 1, 3}[seed%3]
		table, labels := m.table(rand.New(rand.NewPCG(seed, 19)))
		coverage := []float64{0.1, 0.7, 0.95}[seed/3%3]
		var coverages, weights []float64
		for _, c := range []float64{-0.15, -0.1, -0.05, 0, 0.05, 0.1, 0.15} {
			if coverage+c > 0.049 && coverage+c < 1.001 {
				coverages = append(coverages, coverage+c)
				weights = append(weights, math.Exp(-c*c/(2*0.06*0.06)))
			}
		}
		r := runOf(t, table, labels, options(t, Objective{Coverage: coverage, Minimize: CriticalFNR}, policy.AllInputs, seed))
		s := must(r.search(r.all(), policy.AllInputs, 0.2))
		best := must(s.bestAt(r, coverage))
		found := must(s.estimate(t.Context(), coverages, seed))
		risk := func(i int) float64 {
			sum, weight, penalty := 0.0, 0.0, 0.0
			for c, at := range found[i] {
				fnr := at.missed / max(at.critical, 1e-9)
				sum, weight = sum+weights[c]*fnr, weight+weights[c]
				if coverages[c] == coverage && s.candidates[i].gate != policy.Never {
					penalty = 0.2 * math.Sqrt(fnr*(1-fnr)/max(at.critical/5, 1))
				}
			}
			return sum/weight + penalty
		}
		least := math.Inf(1)
		for i := range s.candidates {
			least = min(least, risk(i))
		}
		chosen[best.String()] = true
		if got := risk(slices.Index(s.candidates, best)); math.Abs(got-least) > 1e-12 {
			t.Errorf("seed %d: %v is chosen with %v, the lowest is %v", seed, best, got, least)
		}
	}
	if len(chosen) < 4 {
		t.Errorf("only %v are chosen: the test shows little", chosen)
	}
}

// TestEstimate checks that each input is held out once in each of five repetitions, and retained by
// thresholds that were fitted to the other folds.
func TestEstimate(t *testing.T) {
	t.Parallel()
	m := usual
	m.identical = 0.1
	table, labels := m.table(rand.New(rand.NewPCG(1, 20)))
	r := runOf(t, table, labels, options(t, Objective{Coverage: 0.7}, policy.AllInputs, 3))
	chooses, _ := r.split()
	s := must(r.search(chooses, policy.AllInputs, 0.2))
	coverages := []float64{0.3, 0.8, 1}
	found := must(s.estimate(t.Context(), coverages, 3))
	rng := newRand(3, streamFolds)
	want := make([]counts, len(coverages))
	one := len(s.candidates) - 1 // with a gate
	for range 5 {
		for _, out := range r.foldsOf(chooses, 5, rng) {
			rest := *s
			rest.part = chooses.without(out)
			for c, coverage := range coverages {
				at := rest.curve(s.candidates[one])(coverage)
				for _, i := range out.inputs() {
					if r.retains(i, policy.AllInputs, s.candidates[one], at) {
						want[c].add(counts{1, s.soft.missed[i], s.soft.critical[i]})
					}
				}
			}
		}
	}
	for c, got := range found[one] {
		if got.retained != want[c].retained || math.Abs(got.missed-want[c].missed) > 1e-9 || math.Abs(got.critical-want[c].critical) > 1e-9 {
			t.Errorf("coverage %v: %+v, want %+v", coverages[c], got, want[c])
		}
	}
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
		var sum eval.Selective
		for _, out := range r.foldsOf(r.all(), folds, newRand(seed, streamOuter)) {
			restTable, restLabels := only(table, labels, r.all().without(out))
			rest := calibrated(t, restTable, restLabels, o)
			outTable, outLabels := only(table, labels, out)
			addTo(&sum, eval.Select(outLabels, outTable.Predicted, retainedBy(rest.Policy, outTable), table.Spec.Critical))
		}
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
	to := newReporter(r)
	to.choose(c)
	to.Policy = must(build(*c.draft(r, to.Report)))
	return to.Report
}

// must returns v, whose error only the test itself can cause.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestCompareRanks checks that the candidate of the best rank is chosen, and that each row of the
// comparison counts the certifying part at the point of its rank.
func TestCompareRanks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		table, labels := usual.table(rand.New(rand.NewPCG(seed, 21)))
		r := runOf(t, table, labels, options(t, Objective{MaxCriticalMiss: 0.1}, policy.AllInputs, seed))
		m := newRiskControl(r, newReporter(r))
		ranked := must(m.compareRanks(0.1, m.rank))
		s, chosen, own := ranked[0].search, ranked[0].chosen, ranked[0].best
		ranks := must(m.rank(s))
		if own != ranks[slices.Index(s.candidates, chosen)] {
			t.Errorf("seed %d: the rank is not that of %v", seed, chosen)
		}
		rows := 0
		for i, one := range s.candidates {
			other := ranks[i]
			if other.last > own.last || other.last == own.last && other.badness < own.badness-1e-12 {
				t.Errorf("seed %d: %v is chosen with %+v, %v has %+v", seed, chosen, own, one, other)
			}
			at := slices.IndexFunc(m.to.Comparison, func(row Row) bool {
				return row.Scope == policy.AllInputs && (row.Rule == one.String() || row.Calibrated && one == chosen)
			})
			if at < 0 {
				continue
			}
			rows++
			want := eval.Selective{Inputs: m.certifies.n}
			if other.last >= 0 {
				want = r.count(m.certifies, policy.AllInputs, one, s.curve(one)(coverageGrid()[other.last]))
			}
			got := m.to.Comparison[at]
			if got.Nothing != (other.last < 0) || got.Missed != want.Missed || got.CriticalRetained != want.Critical ||
				got.Coverage != want.Coverage() || !isShare(got.Accuracy, want.Correct, want.Retained) {
				t.Errorf("seed %d: row %+v, the certifying part shows %+v", seed, got, want)
			}
		}
		if rows < 12 {
			t.Errorf("seed %d: only %d rows", seed, rows)
		}
	}
}

// TestCertifyingPartChoosesNothing checks that neither the labels nor the scores of the certifying
// part change which rule is chosen, or its threshold curve.
func TestCertifyingPartChoosesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		scope := []policy.Scope{policy.AllInputs, policy.PredictedSafe}[seed%2]
		o := options(t, objectives[1+seed/2], scope, seed)
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
		by := must(r.search(chooses, scope, o.Objective.MaxCriticalFNR))

		// Draw the scores of the certifying part anew.
		other := table.Select(r.all().inputs())
		for _, i := range certifies.inputs() {
			for s := range other.Scores {
				other.Scores[s][i] = 0.01 + rng.ExpFloat64()
			}
			other.CriticalSkewness[i] = 1
		}
		checkChoice(t, first, calibrated(t, other, labels, o), by)

		// Swap labels within the certifying part, between neighbours of which one is missed and the
		// other not critical. The part that chooses stays the same.
		swapped, swaps := slices.Clone(labels), 0
		for i := 0; i+1 < r.n; i++ {
			free := certifies.of[i] && certifies.of[i+1] && !r.predictedCritical[i] && !r.predictedCritical[i+1]
			if free && r.missed[i] != r.missed[i+1] {
				swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
				swaps++
				i++
			}
		}
		if swaps < 10 {
			t.Fatalf("only %d labels are swapped", swaps)
		}
		checkChoice(t, first, calibrated(t, table, swapped, o), by)
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

// is reports whether the report names a candidate.
func (c *Chosen) is(one candidate) bool {
	return one.gate == c.Gate && one.primary.String() == c.Primary.Score && (c.Fallback == nil || one.fallback.String() == c.Fallback.Score)
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
		curve := by.curve(by.candidates[slices.IndexFunc(by.candidates, r.Chosen.is)])
		onCurve := false
		for step := range by.part.n + 1 {
			onCurve = onCurve || r.Chosen.isAt(curve(float64(step)/float64(by.part.n)))
		}
		if !onCurve {
			t.Errorf("%s: the thresholds of %+v are not on the path", r.Objective, r.Chosen)
		}
	}
}
