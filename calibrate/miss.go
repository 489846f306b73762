package calibrate

import (
	"fmt"
	"math"
	"sort"

	"github.com/ckd-project/ckd/policy"
)

// forMiss bounds the share of critical inputs that are retained and called safe by conformal risk
// control (Angelopoulos et al. 2024).
//
// About a third of the recording chooses the candidate and makes its threshold curve. Both
// thresholds rise along the curve, so that the miss of a critical input, 0 or 1, never goes back
// from 1 to 0. With n critical inputs in the rest, the chosen point is the last one with
// (misses+1)/(n+1) <= a. A new critical input, exchangeable with these n, is then missed with a
// chance of at most a. That needs n >= 1/a - 1.
func (r *run) forMiss() error {
	a := r.Objective.MaxCriticalMiss
	chooses, certifies := r.split()
	n := r.criticalIn(certifies)
	least := leastCasesForMiss(a)
	if n < least {
		r.result.Refusal = &Refusal{Cases: n, SmallestCases: least, Reason: fmt.Sprintf(
			"%d critical inputs are left to calibrate on, and a share of %v cannot be promised from fewer than %d "+
				"(1/%v - 1): about %d critical inputs in the whole recording would do",
			n, a, least, a, int(math.Ceil(float64(least)*float64(r.result.Critical)/float64(max(n, 1)))))}
		return nil
	}

	r.steps(2)
	s, chosen, _, err := r.compareRanks(chooses, certifies, 0, rankByMisses(a, n))
	if err != nil {
		return err
	}
	curve, compared := s.curve(chosen), len(s.candidates)
	// at walks the curve in steps of one input of those that made it.
	at := func(step int) thresholds { return curve(float64(step) / float64(max(chooses.n, 1))) }
	misses := func(step int) int { return r.count(certifies, r.Scope, chosen, at(step)).Missed }
	allowed := int(math.Floor(a*float64(n+1)+1e-9)) - 1
	steps := sort.Search(chooses.n+1, func(step int) bool { return misses(step) > allowed })
	if steps == 0 {
		r.refuseMiss(misses(0), n, allowed)
		return nil
	}
	t := at(steps - 1)
	got := r.count(certifies, r.Scope, chosen, t)
	r.result.expectCoverage(got)
	if without := float64(r.result.Missed) / float64(r.result.Critical); got.CriticalFNR() > without {
		r.result.note("of the critical inputs that are retained a share of %.3g is called safe, more than the %.3g without deferral: "+
			"the promise is kept by deferring nearly all others. Compare --max-critical-fnr, and scope %s",
			got.CriticalFNR(), without, policy.PredictedSafe)
	}
	r.result.Certificate = &Certificate{
		Kind: policy.ConformalRiskControl, Target: a, Cases: n, Misses: got.Missed,
		Statement: fmt.Sprintf("A critical input is retained and called safe with a chance of at most %v, on average over "+
			"recordings like this one, for inputs drawn as those of the recording were; %d of %d were.", a, got.Missed, n),
	}
	r.choose(chosen, t, compared)
	r.explainParts(chosen, compared, chooses, certifies, "promises the largest coverage at that share of misses")
	return nil
}

// refuseMiss refuses to certify because even the lowest thresholds miss too many critical inputs.
// If more critical inputs would help at the same share of misses, the refusal says how many.
func (r *run) refuseMiss(misses, n, allowed int) {
	f, a := float64(misses)/float64(n), r.Objective.MaxCriticalMiss
	refusal := &Refusal{Cases: n, Misses: misses, Reason: fmt.Sprintf(
		"%d of %d critical inputs are missed at the lowest thresholds, %d may be: they are retained whatever their score, or "+
			"it is below those of all inputs that chose the rule", misses, n, allowed)}
	for cases := n + 1; f < a && cases <= mostCases; cases++ {
		if math.Floor(f*float64(cases)+1e-9)+1 <= a*float64(cases+1)+1e-9 {
			refusal.SmallestCases = cases
			refusal.Reason += fmt.Sprintf("; at that share %d critical inputs to calibrate on could certify", cases)
			break
		}
	}
	r.result.Refusal = refusal
}

// leastCasesForMiss returns the least n with 1/(n+1) <= a.
func leastCasesForMiss(a float64) int {
	const most = 1e15 // is beyond any recording, and not yet beyond an int
	return int(max(1, min(most, math.Ceil(1/a-1-1e-9))))
}

// rankByMisses ranks a candidate by how far up the grid its held-out counts keep (misses+1)/(n+1)
// at most a. The misses are scaled to n critical inputs.
func rankByMisses(a float64, n int) rankFunc {
	cases := float64(n)
	return func(found []counts, critical float64) rank {
		s := rank{last: -1}
		for c, at := range found {
			share := shareOf(at.missed, critical)
			if (cases*share+1)/(cases+1) > a {
				break
			}
			s.last, s.badness = c, share
		}
		if s.last < 0 {
			s.badness = shareOf(found[0].missed, critical)
		}
		return s
	}
}
