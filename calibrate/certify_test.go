package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy"
)

// chanceOf returns the chance of at most k of n events of chance p, as the sum of its terms.
func chanceOf(k, n int, p float64) float64 {
	sum := 0.0
	for j := range k + 1 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(j + 1))
		c, _ := math.Lgamma(float64(n - j + 1))
		sum += math.Exp(a - b - c + float64(j)*math.Log(p) + float64(n-j)*math.Log1p(-p))
	}
	return sum
}

// TestSmallestCases searches the definition number by number.
func TestSmallestCases(t *testing.T) {
	t.Parallel()
	direct := func(f, a, alpha float64) int {
		for n := 1; f < a && n <= 3000; n++ {
			if chanceOf(int(math.Floor(f*float64(n)+1e-9)), n, a) <= alpha {
				return n
			}
		}
		return 0
	}
	for _, c := range []struct {
		misses, cases int
		a, confidence float64
	}{
		{0, 10, 0.05, 0.95}, {0, 1, 0.5, 0.5}, {0, 1, 0.02, 0.999}, {1, 30, 0.05, 0.95}, {2, 41, 0.1, 0.9}, {3, 50, 0.1, 0.9},
		{1, 3, 0.5, 0.95}, {2, 4, 0.9, 0.95}, {9, 100, 0.15, 0.999}, {4, 19, 0.25, 0.8},
		{1, 49, 0.06, 0.95}, // 1/49*49 is under 1
	} {
		f := float64(c.misses) / float64(c.cases)
		got, want := smallestCases(f, c.a, 1-c.confidence), direct(f, c.a, 1-c.confidence)
		if got != want || want == 0 {
			t.Errorf("%+v: %d, want %d", c, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		cases := rapid.IntRange(1, 40).Draw(t, "cases")
		f := float64(rapid.IntRange(0, cases).Draw(t, "misses")) / float64(cases)
		a, alpha := rapid.Float64Range(0.05, 0.95).Draw(t, "a"), rapid.Float64Range(0.01, 0.6).Draw(t, "alpha")
		got, want := smallestCases(f, a, alpha), direct(f, a, alpha)
		if want == 0 && got > 3000 || got == want {
			return
		}
		// A chance that is alpha but for rounding may go either way.
		if n := min(got, want); n > 0 && math.Abs(chanceOf(int(math.Floor(f*float64(n)+1e-9)), n, a)-alpha) < 1e-12 {
			return
		}
		t.Fatalf("f %v, a %v, alpha %v: %d, want %d", f, a, alpha, got, want)
	})
	// log(0.05)/log(1-a); with misses the chance rises as n does until there are
	// more than in any recording.
	if got := smallestCases(0, 1e-5, 0.05); got != 299572 {
		t.Errorf("without a miss at 1e-5: %d, want 299572", got)
	}
	if got := smallestCases(0.0999, 0.1, 0.05); got != 0 {
		t.Errorf("0.0999 at 0.1: %d, want 0", got)
	}
}

// sequence returns a recording whose threshold curve has three last points, at coverage 0.96, 0.98
// and 1. In the part that chooses, nothing is missed up to the first point, where testing starts,
// and all misses are beyond it. hits and misses count the critical inputs of the certifying part
// before, between and after the three points.
func sequence(t *testing.T, hits, misses [4]int) (*eval.Table, []int, Options) {
	const n = 900
	table := tableOf(n)
	table.Passes = 2 // no gate can open
	table.Predicted, table.Degenerate, table.Saturated = make([]int, n), make([]bool, n), make([]bool, n)
	table.CriticalSkewness = make([]float64, n)
	labels := make([]int, n)
	for i := range n {
		switch i % 30 {
		case 0: // missed
			labels[i] = 1
		case 1, 4, 7, 10, 13, 16, 19, 22, 25, 28:
			labels[i], table.Predicted[i] = 2, 1
		}
	}
	for s := range table.Scores {
		table.Scores[s] = slices.Repeat([]float64{1}, n)
	}
	score := table.Scores[decomp.MI]
	o := options(t, fnrUpTo(0.1, 0.9), policy.AllInputs, 1)
	r := runOf(t, table, labels, o)
	chooses, certifies := r.split()
	low, high := 0, 290 // ranks among the 300 that choose: 10 are missed
	for _, i := range chooses.inputs() {
		if r.missed[i] {
			high++
			score[i] = float64(high)
		} else {
			low++
			score[i] = float64(low)
		}
	}
	place := func(left *[4]int) float64 {
		for at, n := range left {
			if n > 0 {
				left[at]--
				return []float64{100, 290, 297, 400}[at] // scores between the thresholds 288.5, 294.5 and 300
			}
		}
		return 400
	}
	for _, i := range certifies.inputs() {
		switch {
		case r.missed[i]:
			score[i] = place(&misses)
		case r.critical[i]:
			score[i] = place(&hits)
		default:
			score[i] = 50
		}
	}
	return table, labels, o
}

// pathOf returns the last points of the only rule of a sequence, with their p-values on the
// certifying part.
func pathOf(t *testing.T, table *eval.Table, labels []int, o Options) (points []float64, pValues []float64) {
	r := runOf(t, table, labels, o)
	chooses, certifies := r.split()
	s := must(r.search(chooses, o.Scope))
	if len(s.candidates) != 1 {
		t.Fatalf("%d rules, want 1", len(s.candidates))
	}
	for _, coverage := range []float64{0.96, 0.98, 1} {
		at := s.choiceAt(s.candidates[0], coverage)
		got := at.selective(certifies)
		points = append(points, at.thresholds[0])
		pValues = append(pValues, chanceOf(got.Missed, got.Critical, o.Objective.Limits[0].Most))
	}
	return points, pValues
}

// TestFirstFailureStops checks that no point after the first failure is certified, even one that
// would pass by itself.
func TestFirstFailureStops(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		hits, misses [4]int
		passes       [3]bool // by themselves
		point        int     // the one that is certified; -1 for a refusal
		cases, found int     // critical inputs, and the missed ones
		smallest     int     // cases that could certify
		reason       string
	}{
		{"at the start", [4]int{100, 100}, [4]int{15}, [3]bool{false, true, true}, -1, 115, 15, 0, "no number of inputs certifies"},
		{"after one that passes", [4]int{100, 0, 100}, [4]int{2, 12}, [3]bool{true, false, true}, 0, 102, 2, 0, ""},
		{"nowhere", [4]int{200}, [4]int{2, 2, 2}, [3]bool{true, true, true}, 2, 206, 6, 0, ""},
		// log(0.1)/log(0.9) is 21.9.
		{"too few", [4]int{10}, [4]int{}, [3]bool{}, -1, 10, 0, 22, "22 retained critical inputs could certify"},
		{"a rule that retains none", [4]int{}, [4]int{}, [3]bool{}, -1, 0, 0, 22, "are retained where the rule should be safest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, labels, o := sequence(t, c.hits, c.misses)
			points, p := pathOf(t, table, labels, o)
			for i := range p {
				if (p[i] < 0.1) != c.passes[i] {
					t.Fatalf("p-values %v", p)
				}
			}
			found := calibrated(t, table, labels, o)
			got, refusal := found.Certificate, found.Refusal
			if c.point < 0 {
				if refusal == nil || found.Policy != nil || refusal.Cases != c.cases || refusal.Misses != c.found ||
					math.Abs(refusal.PValue-p[0]) > 1e-10 || refusal.SmallestCases != c.smallest || !strings.Contains(refusal.Reason, c.reason) {
					t.Errorf("refusal %+v, certificate %+v, want %d of %d at p %v, %d cases, %q",
						refusal, got, c.found, c.cases, p[0], c.smallest, c.reason)
				}
				return
			}
			if got == nil || got.Cases != c.cases || got.Misses != c.found || math.Abs(got.PValue-p[c.point]) > 1e-10 ||
				found.Chosen.Primary.Threshold != points[c.point] {
				t.Errorf("certificate %+v at %+v, want %d of %d at %v", got, found.Chosen, c.found, c.cases, points[c.point])
			}
		})
	}
}

// TestPointOfMissRate checks that every limit passes at the certified point, and that some limit
// fails at the next point of the curve, where misses alone decide.
func TestPointOfMissRate(t *testing.T) {
	t.Parallel()
	inside := 0
	for seed := range uint64(12) {
		m := usual
		m.n, m.passes, m.missed = 420, 2, []float64{0.1, 0.3}[seed%2]
		table, labels := m.table(rand.New(rand.NewPCG(seed, 9)))
		o := options(t, Objective{Confidence: 0.9}, []policy.Scope{policy.AllInputs, policy.PredictedSafe}[seed/2%2], seed)
		if seed%3 < 2 {
			o.Objective.Limits = []Limit{{"", policy.CriticalMissRate, 0.15}}
		}
		if seed%3 > 0 {
			o.Objective.Limits = append(o.Objective.Limits, Limit{"2", policy.CriticalMissRate, 0.12})
		}
		if seed >= 6 { // three inputs of each group
			for i := range labels {
				o.Groups = append(o.Groups, i/3)
			}
		}
		found := calibrated(t, table, labels, o)
		if found.Policy == nil {
			t.Fatalf("seed %d: %+v", seed, found.Refusal)
		}
		r := runOf(t, table, labels, o)
		l := r.newLimitTest()
		s := must(r.search(l.chooses, o.Scope))
		rule := ranking{search: s, chosen: s.candidates[slices.IndexFunc(s.candidates, found.Chosen.hasRule)]}
		way := s.path(s.part, s.scope, rule.chosen)
		last, next := -1, -1
		for step := range l.chooses.n + 1 {
			if l.passes(&rule, way.thresholds(float64(step)/float64(l.chooses.n))) {
				last = step
			} else if next < 0 {
				next = step
			}
		}
		if next >= 0 && next < last {
			t.Fatalf("seed %d: p-values fall after %d, up to %d", seed, next, last)
		}
		inside += index(next >= 0)
		at := &choice{s, rule.chosen, way.thresholds(float64(last) / float64(l.chooses.n))}
		got, all := at.selective(l.certifies), l.test(at)
		c := found.Certificate
		if !found.Chosen.isAt(at.thresholds) || c.Misses != all[0].Misses || c.Cases != all[0].Cases ||
			c.PValue != all[0].pValue || len(c.Further) != len(l.limits)-1 || found.Expected.Coverage != got.Coverage() {
			t.Errorf("seed %d: certified %+v at %+v, want %+v", seed, c, found.Chosen, all)
		}
		if (c.Groups > 0) != (o.Groups != nil) || strings.HasSuffix(c.Statement, policy.IfIndependent+".") != (o.Groups == nil) {
			t.Errorf("seed %d: %d groups, %s", seed, c.Groups, c.Statement)
		}
	}
	if inside < 8 {
		t.Errorf("only %d points are inside the curve: the test shows little", inside)
	}
}

// TestComparisonByGroup expects intervals of copied inputs to be those of a single copy: wider than
// the exact ones, which take each copy as new evidence.
func TestComparisonByGroup(t *testing.T) {
	t.Parallel()
	m := usual
	m.n, m.missed = 400, 0.3
	table, labels := m.table(rand.New(rand.NewPCG(5, 9)))
	const copies = 5
	var inputs, truth, groups []int
	for i := range m.n {
		for range copies {
			inputs, truth, groups = append(inputs, i), append(truth, labels[i]), append(groups, i)
		}
	}
	for _, objective := range []Objective{{Coverage: 0.7}, missesUpTo(0.2, 0.9)} {
		o := options(t, objective, policy.AllInputs, 3)
		o.Groups = groups
		found := calibrated(t, table.Select(inputs), truth, o)
		for _, row := range found.Comparison {
			for _, share := range []struct {
				k, n int
				is   *[2]float64
			}{{row.Missed, row.CriticalInputs, row.CriticalMissRateInterval}, {row.Missed, row.CriticalRetained, row.CriticalFNRInterval}} {
				if share.n == 0 {
					if share.is != nil {
						t.Errorf("%s, %s: an interval %v of nothing", objective, row.Rule, *share.is)
					}
					continue
				}
				low, high := binomial.Interval(share.k/copies, share.n/copies, 0.95)
				if share.k%copies != 0 || math.Abs(share.is[0]-low) > 1e-6 || math.Abs(share.is[1]-high) > 1e-6 {
					t.Errorf("%s, %s: interval %v of %d of %d, expected [%v, %v]", objective, row.Rule, *share.is, share.k, share.n, low, high)
				}
			}
		}
	}
}

// TestRefusedClass expects the class that is too rare to be named, with the number wanted.
func TestRefusedClass(t *testing.T) {
	t.Parallel()
	m := usual
	m.n, m.missed, m.signal = 600, 0.05, 3
	table, labels := m.table(rand.New(rand.NewPCG(4, 9)))
	kept := 0
	for i, label := range labels { // leaves five of class 2
		if label == 2 {
			if kept++; kept > 5 {
				labels[i] = 1
			}
		}
	}
	o := options(t, missesUpTo(0.2, 0.9, Limit{"2", policy.CriticalMissRate, 0.1}),
		policy.AllInputs, 4)
	found := calibrated(t, table, labels, o)
	// log(0.1)/log(0.9) is 21.9.
	if found.Policy != nil || !strings.Contains(found.Refusal.Reason, "class 2") || found.Refusal.SmallestCases != 22 ||
		found.Refusal.SmallestInputs < 22 || len(found.Refusal.Would) == 0 {
		t.Errorf("%+v", found.Refusal)
	}
	t.Log(found.Refusal)
}
