package calibrate

import (
	"fmt"
	"math"
	"sort"

	"github.com/ckd-project/ckd/policy"
)

// forMissOnAverage bounds the critical miss rate on average over recordings, by conformal risk
// control (Angelopoulos et al. 2024).
//
// About a third of the recording chooses the candidate and makes its threshold curve. Both
// thresholds rise along the curve, so that the miss of a critical input, 0 or 1, never goes back
// from 1 to 0. With n critical inputs in the rest, the chosen point is the last one with
// (misses+1)/(n+1) <= a. A new critical input, exchangeable with these n, is then missed with a
// chance of at most a. That needs n >= 1/a - 1.
//
// Groups are exchangeable where inputs are not. A group of b critical inputs has the loss
// misses - a b, at most (1-a) B where no group has more than B, and the point is the last one with
// misses - a n + (1-a) B <= 0: for B = 1 the same as above.
func (r *run) forMissOnAverage() error {
	l := r.limits()[0]
	a := l.target
	chooses, certifies := r.split()
	n := r.criticalIn(certifies)
	allowed := allowedMisses(a, n, r.largestGroup(l))
	if allowed < 0 {
		least := leastCasesForMiss(a, r.largestGroup(l))
		r.result.Refusal = &Refusal{Cases: n, SmallestCases: least, Reason: fmt.Sprintf(
			"%d critical inputs are left to calibrate on, and a share of %v cannot be promised from fewer than %d: "+
				"about %d critical inputs in the whole recording would do",
			n, a, least, int(math.Ceil(float64(least)*float64(r.result.Critical)/float64(max(n, 1)))))}
		return nil
	}

	r.steps(2)
	ranked, err := r.compareRanks(chooses, certifies, 0, func(s *search) ([]rank, error) { return r.rankByMisses(s, a, n) })
	if err != nil {
		return err
	}
	own := &ranked[0]
	curve, compared := own.curve(own.chosen), len(own.candidates)
	// at walks the curve in steps of one input of those that made it.
	at := func(step int) thresholds { return curve(float64(step) / float64(max(chooses.n, 1))) }
	misses := func(step int) int { return own.final.count(certifies, r.Scope, own.chosen, at(step)).Missed }
	steps := sort.Search(chooses.n+1, func(step int) bool { return misses(step) > allowed })
	if steps == 0 {
		r.refuseMiss(misses(0), n, allowed)
		return nil
	}
	t := at(steps - 1)
	got := own.final.count(certifies, r.Scope, own.chosen, t)
	r.expectAt(own, certifies, t)
	r.noteDeferringAll(got)
	r.result.Certificate = &Certificate{
		Kind: policy.ConformalRiskControl, Bounds: policy.CriticalMissRate, Target: a, Cases: n, Misses: got.Missed,
		Statement: fmt.Sprintf("A critical input is retained and called safe with a chance of at most %v, on average over "+
			"recordings like this one (%d of %d were), ", a, got.Missed, n),
	}
	_, all := r.test(own, []limit{l}, certifies, t)
	r.result.Certificate.Statement += r.drawn(all)
	if r.group != nil {
		r.result.Certificate.Groups = certifyingGroups(all)
	}
	r.choose(own.search, own.chosen, t)
	r.explainParts(own.chosen, compared, chooses, certifies, "promises the largest coverage at that share of misses")
	return nil
}

// largestGroup returns the largest number of inputs of a group that count for a limit; 1 without
// groups.
func (r *run) largestGroup(l limit) int {
	if r.group == nil {
		return 1
	}
	return l.most
}

// allowedMisses returns the largest m with m - a n + (1-a) most <= 0.
func allowedMisses(a float64, n, most int) int {
	return int(math.Floor(a*float64(n+most)+1e-9)) - most
}

// refuseMiss refuses to certify because even the lowest thresholds miss too many critical inputs.
// If more critical inputs would help at the same share of misses, the refusal says how many.
func (r *run) refuseMiss(misses, n, allowed int) {
	f, a := float64(misses)/float64(n), r.Objective.MaxCriticalMiss
	most := r.largestGroup(r.limits()[0])
	refusal := &Refusal{Cases: n, Misses: misses, Reason: fmt.Sprintf(
		"%d of %d critical inputs are missed at the lowest thresholds, %d may be: they are retained whatever their score, or "+
			"it is below those of all inputs that chose the rule", misses, n, allowed)}
	for cases := n + 1; f < a && cases <= mostCases; cases++ {
		if int(math.Floor(f*float64(cases)+1e-9)) <= allowedMisses(a, cases, most) {
			refusal.SmallestCases = cases
			refusal.Reason += fmt.Sprintf("; at that share %d critical inputs to calibrate on could certify", cases)
			break
		}
	}
	r.result.Refusal = refusal
}

// leastCasesForMiss returns the least n with (1-a) most <= a n, for groups of at most so many.
func leastCasesForMiss(a float64, most int) int {
	const limit = 1e15 // is beyond any recording, and not yet beyond an int
	return int(max(1, min(limit, math.Ceil(float64(most)*(1/a-1)-1e-9))))
}

// rankByMisses ranks each candidate by how far up the grid its held-out counts keep (misses+1)/(n+1)
// at most a. The misses are scaled to n critical inputs.
func (r *run) rankByMisses(s *search, a float64, n int) ([]rank, error) {
	found, err := s.estimate(r.ctx, coverageGrid(), r.Seed)
	if err != nil {
		return nil, err
	}
	critical := 0.0
	for i, in := range s.part.of {
		if in {
			critical += repeats * s.soft.critical[i]
		}
	}
	ranks := make([]rank, len(found))
	for i := range found {
		ranks[i] = rankOfMisses(found[i], critical, a, float64(n))
	}
	return ranks, nil
}

// rankOfMisses ranks a candidate by its held-out counts.
func rankOfMisses(found []counts, critical, a, cases float64) rank {
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
