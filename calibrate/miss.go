package calibrate

import (
	"fmt"
	"math"
	"sort"

	"github.com/ckd-project/ckd/policy"
)

// riskControl bounds the critical miss rate on average over recordings, by conformal risk control
// (Angelopoulos et al. 2024).
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
type riskControl struct {
	certification
	limit   limit
	n       int // critical inputs of the part that certifies
	allowed int // misses of them; negative where n is too small for any
}

func newRiskControl(r *run, to *reporter) *riskControl {
	m := &riskControl{certification: newCertification(r, to)}
	m.limit = m.limits[0]
	m.n = m.certifies.count(r.critical)
	m.allowed = allowedMisses(m.limit.target, m.n, m.limit.most)
	return m
}

// choose returns the last point that misses no more than is allowed; nil if nothing certifies, which
// the report then says.
func (m *riskControl) choose() (*choice, error) {
	if m.allowed < 0 {
		m.refuseFew()
		return nil, nil
	}
	m.run.steps.announce(2)
	ranked, err := m.compareRanks(0, m.rank)
	if err != nil {
		return nil, err
	}
	own := &ranked[0]
	curve := own.curve(own.chosen)
	// at walks the curve in steps of one input of those that made it.
	at := func(step int) *choice { return own.at(curve(float64(step) / float64(max(m.chooses.n, 1)))) }
	misses := func(step int) int { return at(step).selective(m.certifies).Missed }
	steps := sort.Search(m.chooses.n+1, func(step int) bool { return misses(step) > m.allowed })
	if steps == 0 {
		m.refuseMisses(misses(0))
		return nil, nil
	}
	c := at(steps - 1)
	m.report(own, c, m.certificate(misses(steps-1), m.test(c)), "promises the largest coverage at that share of misses")
	return c, nil
}

func (m *riskControl) certificate(misses int, at tested) *Certificate {
	return &Certificate{
		Kind: policy.ConformalRiskControl, Bounds: policy.CriticalMissRate, Target: m.limit.target, Groups: at.groups(), Cases: m.n, Misses: misses,
		Statement: fmt.Sprintf("A critical input is retained and called safe with a chance of at most %v, on average over "+
			"recordings like this one (%d of %d were), ", m.limit.target, misses, m.n) + at.drawn(),
	}
}

// refuseFew refuses to certify because too few critical inputs are left to calibrate on.
func (m *riskControl) refuseFew() {
	least := leastCasesForMiss(m.limit.target, m.limit.most)
	m.to.Refusal = &Refusal{Cases: m.n, SmallestCases: least, Reason: fmt.Sprintf(
		"%d critical inputs are left to calibrate on, and a share of %v cannot be promised from fewer than %d: "+
			"about %d critical inputs in the whole recording would do",
		m.n, m.limit.target, least, int(math.Ceil(float64(least)*float64(m.to.Critical)/float64(max(m.n, 1)))))}
}

// refuseMisses refuses to certify because even the lowest thresholds miss too many critical inputs.
// If more critical inputs would help at the same share of misses, the refusal says how many.
func (m *riskControl) refuseMisses(misses int) {
	share := float64(misses) / float64(m.n)
	refusal := &Refusal{Cases: m.n, Misses: misses, Reason: fmt.Sprintf(
		"%d of %d critical inputs are missed at the lowest thresholds, %d may be: they are retained whatever their score, or "+
			"it is below those of all inputs that chose the rule", misses, m.n, m.allowed)}
	for cases := m.n + 1; share < m.limit.target && cases <= mostCases; cases++ {
		if int(math.Floor(share*float64(cases)+1e-9)) <= allowedMisses(m.limit.target, cases, m.limit.most) {
			refusal.SmallestCases = cases
			refusal.Reason += fmt.Sprintf("; at that share %d critical inputs to calibrate on could certify", cases)
			break
		}
	}
	m.to.Refusal = refusal
}

// rank ranks each candidate by how far up the grid its held-out counts keep (misses+1)/(n+1) at most
// at the target. The misses are scaled to n critical inputs.
func (m *riskControl) rank(s *search) ([]rank, error) {
	found, err := s.estimate(m.run.ctx, coverageGrid(), m.run.Seed)
	if err != nil {
		return nil, err
	}
	critical := s.soft.heldOut(s.part)
	ranks := make([]rank, len(found))
	for i := range found {
		ranks[i] = rankOfMisses(found[i], critical, m.limit.target, float64(m.n))
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

// allowedMisses returns the largest m with m - a n + (1-a) most <= 0.
func allowedMisses(a float64, n, most int) int {
	return int(math.Floor(a*float64(n+most)+1e-9)) - most
}

// leastCasesForMiss returns the least n with (1-a) most <= a n, for groups of at most so many.
func leastCasesForMiss(a float64, most int) int {
	const limit = 1e15 // is beyond any recording, and not yet beyond an int
	return int(max(1, min(limit, math.Ceil(float64(most)*(1/a-1)-1e-9))))
}
