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
	of := &Decisions{recording: Recording{Passes: 10, Inputs: n * copies, Groups: make([]int, n*copies)}}
	var inputs, alone []int
	var early []verdict
	for i := range n * copies {
		group := i / copies
		of.recording.Groups[i] = group
		of.final = append(of.final, verdict{defers: group%2 == 0})
		inputs, early = append(inputs, i), append(early, of.final[i])
		if i%copies == 0 {
			alone = append(alone, i)
			early[i].defers = early[i].defers != (rng.Float64() < 0.05)
		} else {
			early[i] = early[group*copies]
		}
	}
	of.all = of.evidence(inputs, func(int) (verdict, int) { return verdict{}, 10 }).outcomes
	e := of.evidence(inputs, func(at int) (verdict, int) { return early[at], 10 })
	single := &Decisions{recording: Recording{Passes: 10}, final: of.final}
	one := single.evidence(alone, func(at int) (verdict, int) { return early[alone[at]], 10 })
	for name, share := range map[string]Share{"disagreements": Disagreements, "released": Released} {
		got, want := e.Tally(share), one.Tally(share)
		if got.Cases != copies*want.Cases || got.Misses != copies*want.Misses || len(got.Groups) != want.Cases || got.Most != copies || want.Misses == 0 {
			t.Errorf("%s: %+v of %+v", name, got, want)
		}
		if got, want := got.Upper(0.9), binomial.Upper(want.Misses, want.Cases, 0.9); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: at most %v, want %v", name, got, want)
		}
		if got, want := got.PValue(0.08), binomial.Tail(want.Misses, want.Cases, 0.08); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: p-value %v, want %v", name, got, want)
		}
		interval := got.Interval()
		if low, high := binomial.Interval(want.Misses, want.Cases, 0.95); math.Abs(interval[0]-low) > 1e-9 || math.Abs(interval[1]-high) > 1e-9 {
			t.Errorf("%s: interval %v, want %v to %v", name, interval, low, high)
		}
	}
	// 230 groups without a miss show at most 1% at 90%: all of their inputs are needed.
	q := &Request{Epsilon: 0.01, Released: 0.05, Confidence: 0.9}
	fewest, deferred := q.Fewest(of, inputs)
	if want := copies * FewestInputs(0.01, 0.9); fewest < want-copies || fewest > want+copies {
		t.Errorf("%d inputs could certify, want about %d", fewest, want)
	}
	if want := copies * FewestInputs(0.05, 0.9); deferred < want-copies || deferred > want+copies {
		t.Errorf("%d deferred inputs could certify, want about %d", deferred, want)
	}
}
