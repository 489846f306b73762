package calibrate

import (
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// path leads a candidate from deferring everything to deferring nothing, along a single number: the
// coverage. Under a gate both sides retain the same share of their own inputs, so that the two
// scores need no common scale.
type path struct {
	candidate
	scores [2][]float64 // of the inputs that each side decides, ascending
	inputs int          // of the part
	fixed  int          // inputs that no score decides
	kept   int          // of them, those retained
	// unseen counts the kept inputs that nobody looks at: all of them, unless critical calls count as
	// reviewed.
	unseen int
}

// path returns the path of a candidate over a part.
func (s *sample) path(p part, scope policy.Scope, rule candidate) *path {
	if s.countsReviews {
		scope = policy.PredictedSafe
	}
	way := &path{candidate: rule, inputs: p.n}
	decided := make([]bool, s.n)
	for i, inside := range p.holds {
		if !inside {
			continue
		}
		fate := s.fate(i, scope, rule)
		decided[i] = fate == 0
		way.fixed += index(fate != 0)
		if fate == policy.Retain {
			way.kept++
			way.unseen += index(!s.countsReviews || !s.predictedCritical[i])
		}
	}
	for side := range rule.sides() {
		score := rule.score(side)
		for _, i := range s.order[score] {
			if decided[i] && rule.side(s.table, int(i)) == side {
				way.scores[side] = append(way.scores[side], s.values(score)[i])
			}
		}
	}
	return way
}

// thresholds returns those for a coverage of the whole part. Both rise with the coverage.
func (p *path) thresholds(coverage float64) thresholds {
	retain := max(0, min(p.inputs-p.fixed, eval.Kept(coverage, p.inputs)-p.unseen))
	primary, fallback := p.scores[byPrimary], p.scores[byFallback]
	if p.sides() == 1 {
		t := threshold(primary, min(retain, len(primary)))
		return thresholds{t, t}
	}
	all := max(len(primary)+len(fallback), 1)
	first := (2*retain*len(primary) + all) / (2 * all) // rounded
	return thresholds{threshold(primary, first), threshold(fallback, retain-first)}
}

// reach returns the least and the largest coverage that thresholds can give. The other inputs are
// retained or deferred whatever their score.
func (p *path) reach() (least, most float64) {
	n := float64(p.inputs)
	return float64(p.kept) / n, 1 - float64(p.fixed-p.kept)/n
}

// threshold returns one that retains at least the first n of ascending scores, and no more than it
// must. It lies between two scores that are distinct, below the lowest, or above the highest.
func threshold(scores []float64, n int) float64 {
	const beyond = 1e-6 // relative, so that the end is not on a score
	if len(scores) == 0 {
		return 0
	}
	if n == 0 {
		return scores[0] / 2
	}
	for ; n < len(scores); n++ {
		if distinct(scores[n-1], scores[n]) {
			return scores[n-1] + (scores[n]-scores[n-1])/2
		}
	}
	return scores[len(scores)-1] * (1 + beyond)
}

// distinct reports whether a < b are so far apart that a threshold between them decides both in the
// same way, however they were computed: incremental and two-pass results agree to 1e-12 only.
func distinct(a, b float64) bool {
	const apart = 1e-9
	return b-a > apart*b
}
