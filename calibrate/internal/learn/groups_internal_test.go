package learn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ckd-project/ckd/internal/binomial"
)

// TestEvidenceByGroup expects copies of an input to be no new evidence, and inputs of one group that
// share their fate to count as one.
func TestEvidenceByGroup(t *testing.T) {
	t.Parallel()
	const n, copies = 200, 4
	rng := rand.New(rand.NewPCG(5, 6))
	var alone Counts
	of := &Decisions{recording: Recording{Passes: 10, Inputs: n * copies, Groups: make([]int, n*copies)}}
	for i := range of.recording.Groups {
		of.recording.Groups[i] = i / copies
		of.final = append(of.final, verdict{defers: i/copies%2 == 0})
	}
	of.measureGroups()
	byGroup := make([]Counts, n)
	for g := range byGroup {
		one := Counts{Inputs: 1, Deferred: (g + 1) % 2}
		if rng.Float64() < 0.05 {
			one.Disagreements, one.Released = 1, one.Deferred
		}
		alone.sum(&one)
		for range copies {
			byGroup[g].sum(&one)
		}
	}
	e := of.evidence(byGroup)
	groups, largest := e.GroupsOf(Disagreements)
	if e.Inputs != n*copies || groups != n || largest != copies || e.Disagreements != copies*alone.Disagreements {
		t.Errorf("%+v", e.Counts)
	}
	for name, c := range map[string]struct {
		of   Share
		k, n int
	}{"disagreements": {Disagreements, alone.Disagreements, n}, "released": {Released, alone.Released, alone.Deferred}} {
		if got, want := e.upper(c.of, 0.9), binomial.Upper(c.k, c.n, 0.9); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: at most %v, want %v", name, got, want)
		}
		if got, want := e.tail(c.of, 0.08), binomial.Tail(c.k, c.n, 0.08); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: p-value %v, want %v", name, got, want)
		}
		low, high := e.Interval(c.of)
		if wantLow, wantHigh := binomial.Interval(c.k, c.n, 0.95); math.Abs(low-wantLow) > 1e-9 || math.Abs(high-wantHigh) > 1e-9 {
			t.Errorf("%s: interval from %v to %v, want %v to %v", name, low, high, wantLow, wantHigh)
		}
	}
	// 230 groups without a miss show at most 1% at 90%: all of their inputs are needed.
	q := &Request{Epsilon: 0.01, Released: 0.05, Confidence: 0.9}
	all := make([]int, n*copies)
	for i := range all {
		all[i] = i
	}
	inputs, deferred := q.Fewest(of, all)
	if want := copies * FewestInputs(0.01, 0.9); inputs < want-copies || inputs > want+copies {
		t.Errorf("%d inputs could certify, want about %d", inputs, want)
	}
	if want := copies * FewestInputs(0.05, 0.9); deferred < want-copies || deferred > want+copies {
		t.Errorf("%d deferred inputs could certify, want about %d", deferred, want)
	}
}
