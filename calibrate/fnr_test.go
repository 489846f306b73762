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

// chanceOf at most k of n events of chance p, as the sum of its terms.
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

// TestSmallestCases against a search of the definition, number by number.
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

// sequence is a recording whose path has three last points, at coverage 0.96,
// 0.98 and 1. By the part that chooses, nothing is missed up to the first, where
// testing starts, and all misses are beyond it. What the certifying part has
// before, between and after the three points is given: critical inputs that are
// not missed, and that are.
func sequence(t *testing.T, hits, misses [4]int) (*eval.Table, []int, Options) {
	const n = 900
	table := tableOf(n)
	table.Passes = 2 // no gate can open
	table.Predicted, table.Degenerate, table.Saturated = make([]int, n), make([]bool, n), make([]bool, n)
	table.CriticalSkewness, table.DecidingSkewness = make([]float64, n), make([]float64, n)
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
	o := options(t, Objective{MaxCriticalFNR: 0.1, Confidence: 0.9}, policy.AllInputs, 1)
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
				return []float64{100, 290, 297, 400}[at] // by the thresholds 288.5, 294.5 and 300
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

// pathOf the one rule of a sequence, with the p-values of its last points on the
// certifying part.
func pathOf(t *testing.T, table *eval.Table, labels []int, o Options) (points []float64, pValues []float64) {
	r := runOf(t, table, labels, o)
	chooses, certifies := r.split()
	s := r.search(chooses, o.Scope, o.Objective.MaxCriticalFNR)
	if len(s.rules) != 1 {
		t.Fatalf("%d rules, want 1", len(s.rules))
	}
	for _, coverage := range []float64{0.96, 0.98, 1} {
		at := s.path(s.rules[0])(coverage)
		got := r.count(certifies, o.Scope, s.rules[0], at)
		points = append(points, at[0])
		pValues = append(pValues, chanceOf(got.Missed, got.Critical, o.Objective.MaxCriticalFNR))
	}
	return points, pValues
}

// TestFirstFailureStops: a point is not certified behind one that is not, though
// by itself it would pass.
func TestFirstFailureStops(t *testing.T) {
	t.Parallel()
	t.Run("at the start", func(t *testing.T) {
		table, labels, o := sequence(t, [4]int{100, 100}, [4]int{15})
		_, p := pathOf(t, table, labels, o)
		if !(p[0] > 0.1 && p[1] < 0.1) {
			t.Fatalf("p-values %v", p)
		}
		found := calibrated(t, table, labels, o)
		refusal := found.Refusal
		if refusal == nil || found.Policy != nil {
			t.Fatalf("certified %+v", found.Certificate)
		}
		if refusal.Cases != 115 || refusal.Misses != 15 || math.Abs(refusal.PValue-p[0]) > 1e-10 || refusal.SmallestCases != 0 {
			t.Errorf("refusal %+v, want 15 of 115 at p %v", refusal, p[0])
		}
		if !strings.Contains(refusal.Reason, "misses 15 of 115 ") || !strings.Contains(refusal.Reason, "cannot be certified as at most 0.1") {
			t.Errorf("reason %q", refusal.Reason)
		}
	})
	t.Run("after one that passes", func(t *testing.T) {
		table, labels, o := sequence(t, [4]int{100, 0, 100}, [4]int{2, 12})
		points, p := pathOf(t, table, labels, o)
		if !(p[0] < 0.1 && p[1] > 0.1 && p[2] < 0.1) {
			t.Fatalf("p-values %v", p)
		}
		found := calibrated(t, table, labels, o)
		c := found.Certificate
		if c == nil || c.Cases != 102 || c.Misses != 2 || math.Abs(c.PValue-p[0]) > 1e-10 || found.Chosen.Primary.Threshold != points[0] {
			t.Errorf("certificate %+v at %+v, want 2 of 102 at %v", c, found.Chosen, points[0])
		}
	})
	t.Run("nowhere", func(t *testing.T) {
		table, labels, o := sequence(t, [4]int{200}, [4]int{2, 2, 2})
		points, p := pathOf(t, table, labels, o)
		found := calibrated(t, table, labels, o)
		c := found.Certificate
		if c == nil || c.Cases != 206 || c.Misses != 6 || math.Abs(c.PValue-p[2]) > 1e-10 || found.Chosen.Primary.Threshold != points[2] {
			t.Errorf("certificate %+v at %+v, want 6 of 206 at %v", c, found.Chosen, points[2])
		}
	})
	t.Run("too few", func(t *testing.T) {
		table, labels, o := sequence(t, [4]int{10}, [4]int{})
		refusal := calibrated(t, table, labels, o).Refusal
		// log(0.1)/log(0.9) is 21.9.
		if refusal == nil || refusal.Cases != 10 || refusal.Misses != 0 || refusal.SmallestCases != 22 ||
			!strings.Contains(refusal.Reason, "22 retained critical inputs could certify") {
			t.Errorf("refusal %+v, want 22 cases", refusal)
		}
	})
	t.Run("a rule that retains none", func(t *testing.T) {
		table, labels, o := sequence(t, [4]int{}, [4]int{})
		refusal := calibrated(t, table, labels, o).Refusal
		if refusal == nil || refusal.Cases != 0 || refusal.SmallestCases != 22 || !strings.Contains(refusal.Reason, "no critical input is retained") {
			t.Errorf("refusal %+v, want 22 cases", refusal)
		}
	})
}

// TestSequence: on any recording, the certified point is the last in a row from
// the start of which each passes, and the start is the one that the part that
// chooses predicts to be the surest.
func TestSequence(t *testing.T) {
	t.Parallel()
	certified := 0
	for seed := range uint64(12) {
		m := usual
		m.n, m.passes = 400, []int{2, 10}[seed%2]
		table, labels := m.table(rand.New(rand.NewPCG(seed, 8)))
		o := options(t, Objective{MaxCriticalFNR: 0.3, Confidence: 0.9}, policy.AllInputs, seed)
		found := calibrated(t, table, labels, o)
		r := runOf(t, table, labels, o)
		chooses, certifies := r.split()
		// The surest point of the chosen rule, by the definition.
		s := r.search(chooses, o.Scope, 0.3)
		held, err := s.estimate(t.Context(), coverageGrid(), seed)
		if err != nil {
			t.Fatal(err)
		}
		passes := func(one rule, c int) (eval.Selective, bool) {
			got := r.count(certifies, o.Scope, one, s.path(one)(coverageGrid()[c]))
			return got, chanceOf(got.Missed, got.Critical, 0.3) <= 1-0.9 && got.Critical > 0
		}
		matches := false
		for i, one := range s.rules {
			start, least := 0, math.Inf(1)
			for c, at := range held[i] {
				scale := float64(certifies.n) / float64(chooses.n) / repeats
				if p := binomial.Tail(at.missed*scale*1.15, at.critical*scale, 0.3); p < least {
					start, least = c, p
				}
			}
			var last *eval.Selective
			for c := start; c < len(coverageGrid()); c++ {
				got, ok := passes(one, c)
				if !ok {
					break
				}
				last = &got
			}
			switch {
			case found.Certificate == nil:
				matches = matches || last == nil
			case one.gate == found.Chosen.Gate && one.primary.String() == found.Chosen.Primary.Score &&
				(found.Chosen.Fallback == nil || one.fallback.String() == found.Chosen.Fallback.Score):
				certified++
				matches = last != nil && found.Certificate.Cases == last.Critical && found.Certificate.Misses == last.Missed &&
					found.Expected.Coverage == last.Coverage()
			}
		}
		if !matches {
			t.Errorf("seed %d: %+v %+v is not the last of the row", seed, found.Chosen, found.Certificate)
		}
	}
	if certified < 4 {
		t.Errorf("only %d certified: the test shows little", certified)
	}
}
