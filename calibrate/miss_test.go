package calibrate

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/policy"
)

// TestLeastCasesForMiss checks that the smallest number of cases is the least n with 1/(n+1) <= a.
func TestLeastCasesForMiss(t *testing.T) {
	t.Parallel()
	for a, want := range map[float64]int{
		0.5: 1, 0.99: 1, 1 - 1e-12: 1, 0.3: 3, 1. / 3: 2, 0.1: 9, 0.05: 19, 0.02: 49, 0.01: 99, 0.001: 999, 1e-6: 999999,
		1e-300: 1e15, math.SmallestNonzeroFloat64: 1e15,
	} {
		if got := leastCasesForMiss(a, 1); got != want {
			t.Errorf("%v: %d, want %d", a, got, want)
		}
	}
}

// TestPointOfMiss checks that (misses+1)/(n+1) is at most a at the chosen point, and above a at the
// next distinct point, if there is one.
func TestPointOfMiss(t *testing.T) {
	t.Parallel()
	ends, inside := 0, 0
	for seed := range uint64(24) {
		m := usual
		m.n, m.passes, m.missed, m.identical = 300, []int{2, 10}[seed%2], []float64{0.05, 0.3}[seed/2%2], 0.03
		a := []float64{0.02, 0.1, 0.3}[seed%3]
		table, labels := m.table(rand.New(rand.NewPCG(seed, 9)))
		o := options(t, Objective{MaxCriticalMiss: a, OnAverage: true}, []policy.Scope{policy.AllInputs, policy.PredictedSafe}[seed/3%2], seed)
		found := calibrated(t, table, labels, o)
		if found.Policy == nil {
			t.Fatalf("seed %d: %s", seed, found.Refusal.Reason)
		}
		r := runOf(t, table, labels, o)
		chooses, certifies := r.split()
		n := certifies.count(r.critical)
		s := must(r.search(chooses, o.Scope, 0))
		for _, one := range s.candidates {
			if !found.Chosen.is(one) {
				continue
			}
			curve, last, next := s.curve(one), -1, -1
			for step := range chooses.n + 1 {
				at := curve(float64(step) / float64(chooses.n))
				misses := r.count(certifies, o.Scope, one, at).Missed
				if float64(misses+1) <= a*float64(n+1)+1e-9 {
					last = step
				} else if next < 0 {
					next = step
				}
				if found.Chosen.isAt(at) && misses != found.Certificate.Misses {
					t.Errorf("seed %d: %d misses at the chosen point, certified with %d", seed, misses, found.Certificate.Misses)
				}
			}
			if next >= 0 && next <= last {
				t.Fatalf("seed %d: misses go back", seed)
			}
			want := curve(float64(last) / float64(chooses.n))
			if want[byPrimary] != found.Chosen.Primary.Threshold {
				t.Errorf("seed %d: threshold %v, want %v", seed, found.Chosen.Primary.Threshold, want)
			}
			if last == chooses.n {
				ends++
			} else {
				inside++
			}
		}
		if c := found.Certificate; c.Cases != n || c.Kind != policy.ConformalRiskControl || c.PValue != 0 || c.Confidence != 0 {
			t.Errorf("seed %d: certificate %+v, want one of %d cases", seed, c, n)
		}
	}
	if ends < 2 || inside < 10 {
		t.Errorf("the point was %d times at the end of the path and %d times inside: the test shows little", ends, inside)
	}
}

// TestRankByMisses checks how far a candidate gets before (misses+1)/(n+1) is above the target,
// with its share of misses there, or at the start.
func TestRankByMisses(t *testing.T) {
	t.Parallel()
	found := []counts{{missed: 1}, {missed: 4}, {missed: 4.5}, {missed: 6}, {missed: 5}}
	for _, c := range []struct {
		a, critical float64
		want        rank
	}{
		{0.0546, 100, rank{last: 2, badness: 0.045}}, // (99*0.045+1)/100 is 0.05455
		{0.01, 100, rank{last: -1, badness: 0.01}},   // (99*0.01+1)/100 exceeds 0.01
		{0.02, 100, rank{last: 0, badness: 0.01}},
		{0.9, 100, rank{last: 4, badness: 0.05}},
		{0.9, 0, rank{last: 4, badness: 0}}, // without critical inputs nothing is missed
	} {
		if got := rankOfMisses(found, c.critical, c.a, 99); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.a, got, c.want)
		}
	}
	if !(rank{last: 3, badness: 0.9}).better(rank{last: 2, badness: 0.1}) || !(rank{last: 2, badness: 0.1}).better(rank{last: 2, badness: 0.2}) || (rank{last: 2, badness: 0.2}).better(rank{last: 2, badness: 0.2}) {
		t.Error("standings are not by how far, then by how badly")
	}
}

// TestTooFewForMiss checks that n < 1/a - 1 is refused, with the least n that would do.
func TestTooFewForMiss(t *testing.T) {
	t.Parallel()
	m := usual
	m.n, m.missed = 200, 0.05
	table, labels := m.table(rand.New(rand.NewPCG(1, 9)))
	o := options(t, Objective{}, policy.AllInputs, 1)
	r := runOf(t, table, labels, o)
	_, certifies := r.split()
	n := certifies.count(r.critical)
	o.Objective.MaxCriticalMiss, o.Objective.OnAverage = 1/(float64(n)+1), true
	if found := calibrated(t, table, labels, o); found.Refusal != nil {
		t.Errorf("%d critical inputs at %v: %s", n, o.Objective.MaxCriticalMiss, found.Refusal.Reason)
	}
	o.Objective.MaxCriticalMiss = 1 / (float64(n) + 2)
	found := calibrated(t, table, labels, o)
	refusal := found.Refusal
	if refusal == nil || refusal.Cases != n || refusal.SmallestCases != n+1 || found.Policy != nil ||
		!strings.Contains(refusal.Reason, "critical inputs in the whole recording would do") {
		t.Errorf("%d critical inputs at %v: %+v", n, o.Objective.MaxCriticalMiss, refusal)
	}
}

// TestMissedWhateverTheScore checks the refusal where no threshold helps, because missed inputs
// have the score 0 or are retained as identical. The refusal says how many cases would do.
func TestMissedWhateverTheScore(t *testing.T) {
	t.Parallel()
	m := usual
	m.n, m.identical, m.missed = 300, 0.2, 0.3
	table, labels := m.table(rand.New(rand.NewPCG(2, 9)))
	retains := []string{"degenerate: retain", "saturated: retain"}
	for _, handling := range [][]string{retains, {"degenerate: score", "saturated: score"}} {
		o := Options{Base: basePolicy(t, 3, append(handling, `critical: ["1", "2"]`)...), Scope: policy.AllInputs}
		r := runOf(t, table, labels, o)
		_, certifies := r.split()
		misses, n := 0, certifies.count(r.critical)
		for _, i := range certifies.inputs() {
			misses += index(r.missed[i] && table.Degenerate[i])
		}
		f := float64(misses) / float64(n)
		for _, a := range []float64{f / 2, (float64(misses) + 0.5) / (float64(n) + 1)} {
			o.Objective = Objective{MaxCriticalMiss: a, OnAverage: true}
			refusal := calibrated(t, table, labels, o).Refusal
			if refusal == nil || refusal.Misses != misses || refusal.Cases != n || !strings.Contains(refusal.Reason, "at the lowest thresholds") {
				t.Errorf("%s, %d of %d missed, at %v: %+v", handling, misses, n, a, refusal)
				continue
			}
			// The least number of cases, more than these, that would certify at the same share of
			// misses.
			want := 0
			for cases := n + 1; f < a && want == 0; cases++ {
				if (math.Floor(f*float64(cases)+1e-9)+1)/float64(cases+1) <= a {
					want = cases
				}
			}
			if refusal.SmallestCases != want {
				t.Errorf("%s, %d of %d missed, at %v: %d cases could do, want %d", handling, misses, n, a, refusal.SmallestCases, want)
			}
		}
	}
}
