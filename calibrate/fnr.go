package calibrate

import (
	"fmt"
	"math"
	"sort"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy"
)

// margin adds a share to the misses that a candidate predicts of itself, because it was chosen for
// having few.
const margin = 0.15

// forFNR bounds the critical FNR among the retained by Learn-then-Test (Angelopoulos et al. 2021).
//
// About a third of the recording chooses the candidate, its threshold curve, a grid of points on
// the curve, and the point to start from: the one with the least predicted p-value. The rest tests
// the hypothesis "the critical FNR is above a", point by point from there upward in coverage, and
// stops at the first point where it is not rejected. This fixed-sequence testing costs no
// correction. The p-value of a point is exact: the chance of so few misses among so many retained
// critical inputs if each were missed with chance a. The last point that rejects is certified: its
// critical FNR is above a with a chance of at most 1 - confidence.
func (r *run) forFNR() error {
	a, alpha := r.Objective.MaxCriticalFNR, 1-r.Objective.Confidence
	chooses, certifies := r.split()
	grid := coverageGrid()
	r.steps(2)
	scale := float64(certifies.n) / float64(max(chooses.n, 1)*repeats)
	predicted := func(at counts) float64 {
		return binomial.Tail(at.missed*scale*(1+margin), at.critical*scale, a)
	}
	start := func(found []counts) int {
		least := 0
		for c := range found {
			if predicted(found[c]) < predicted(found[least]) {
				least = c
			}
		}
		return least
	}
	s, chosen, found, err := r.compareRanks(chooses, certifies, a, func(found []counts, _ float64) rank {
		from := start(found)
		s := rank{-1, predicted(found[from])}
		for c := from; c < len(found) && predicted(found[c]) <= alpha; c++ {
			s.last = c
		}
		return s
	})
	if err != nil {
		return err
	}

	curve, compared := s.curve(chosen), len(s.candidates)
	var certified *eval.Selective
	var point thresholds
	var closest Refusal
	for c := start(found); c < len(grid); c++ {
		t := curve(grid[c])
		got := r.count(certifies, r.Scope, chosen, t)
		p := binomial.Tail(got.Missed, got.Critical, a)
		if p > alpha {
			if certified == nil {
				closest = Refusal{Cases: got.Critical, Misses: got.Missed, PValue: p}
			}
			break
		}
		certified, point = &got, t
	}
	if certified == nil {
		r.refuseFNR(closest, a, alpha)
		r.explainParts(chosen, compared, chooses, certifies, "promises most")
		return nil
	}
	r.result.expectCoverage(*certified)
	r.result.Certificate = &Certificate{
		Kind: policy.LearnThenTest, Target: a, Confidence: r.Objective.Confidence,
		Cases: certified.Critical, Misses: certified.Missed,
		PValue: binomial.Tail(certified.Missed, certified.Critical, a),
		Statement: fmt.Sprintf("With confidence %v, at most %v of the critical inputs that are retained are called safe, for "+
			"inputs drawn as those of the recording were; %d of %d were.", r.Objective.Confidence, a,
			certified.Missed, certified.Critical),
	}
	r.choose(chosen, point, compared)
	r.explainParts(chosen, compared, chooses, certifies, "promises the largest certified coverage")
	return nil
}

// refuseFNR says how far off the point was that came closest.
func (r *run) refuseFNR(closest Refusal, a, alpha float64) {
	f := 0.0
	if closest.Cases > 0 {
		f = float64(closest.Misses) / float64(closest.Cases)
	}
	closest.SmallestCases = smallestCases(f, a, alpha)
	closest.Reason = fmt.Sprintf("where the rule should be safest it misses %d of %d retained critical inputs (%.3g), which a critical "+
		"FNR of %v would bring about with chance %.3g, and at most %.3g is allowed", closest.Misses, closest.Cases, f, a,
		closest.PValue, alpha)
	switch {
	case closest.Cases == 0:
		closest.Reason = fmt.Sprintf("no critical input is retained where the rule should be safest; without a miss, %d retained "+
			"critical inputs could certify", closest.SmallestCases)
	case f >= a:
		closest.Reason += fmt.Sprintf("; a share of %.3g cannot be certified as at most %v by any number of inputs", f, a)
	case closest.SmallestCases == 0:
		closest.Reason += fmt.Sprintf("; at that share more than %d retained critical inputs would be needed", mostCases)
	default:
		total := int(math.Ceil(float64(closest.SmallestCases) * float64(r.result.Critical) / float64(closest.Cases)))
		closest.Reason += fmt.Sprintf("; at that share %d retained critical inputs could certify, about %d in the whole recording",
			closest.SmallestCases, total)
	}
	r.result.Refusal = &closest
}

// mostCases is more critical inputs than any recording has.
const mostCases = 1_000_000

// smallestCases returns the least n with P(X <= floor(f n)) <= alpha, where X counts n events of
// chance a. It returns 0 if f >= a, or if n would be above mostCases.
func smallestCases(f, a, alpha float64) int {
	if f >= a {
		return 0
	}
	misses := func(n int) int { return int(math.Floor(f*float64(n) + 1e-9)) }
	// The chance falls with n as long as the misses stay the same, and jumps up when they rise.
	for n := 1; n <= mostCases; {
		last := n + sort.Search(mostCases-n, func(i int) bool { return misses(n+1+i) > misses(n) })
		enough := func(i int) bool { return binomial.Tail(misses(n), n+i, a) <= alpha }
		if enough(last - n) {
			return n + sort.Search(last-n, enough)
		}
		n = last + 1
	}
	return 0
}
