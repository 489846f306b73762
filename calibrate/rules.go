package calibrate

import (
	"fmt"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// rule is a gate and the scores that it chooses between. With gate never only
// the primary score is used.
type rule struct {
	gate              policy.Gate
	reliability       float64
	primary, fallback decomp.Score
}

// The sides of a gate.
const (
	byPrimary  = 0
	byFallback = 1
)

// thresholds of the primary and the fallback score.
type thresholds [2]float64

// side says which score decides an input.
func (r rule) side(t *eval.Table, i int) int {
	var skewness float64
	switch r.gate {
	case policy.AnyCritical:
		skewness = t.CriticalSkewness[i]
	case policy.DecidingClass:
		skewness = t.DecidingSkewness[i]
	default:
		return byPrimary
	}
	if skewness <= r.reliability {
		return byPrimary
	}
	return byFallback
}

// score of a side.
func (r rule) score(side int) decomp.Score {
	if side == byFallback {
		return r.fallback
	}
	return r.primary
}

// sides that the gate has.
func (r rule) sides() int {
	if r.gate == policy.Never {
		return 1
	}
	return 2
}

// papers reports whether the scores are those of the paper's rule.
func (r rule) papers() bool { return r.primary == decomp.CCritMax && r.fallback == decomp.CBEC }

// plain reports whether the rule is one that might be written by hand: a score
// alone, or the paper's scores under gate deciding-class. Under any-critical, at
// most thresholds, hardly an input is left to the primary score.
func (r rule) plain() bool {
	return r.gate == policy.Never || r.gate == policy.DecidingClass && r.papers()
}

func (r rule) String() string {
	if r.gate == policy.Never {
		return r.primary.String()
	}
	return fmt.Sprintf("%s (%s, %s)", r.gate, r.primary, r.fallback)
}

// fewestOfSide is the number of inputs under which a side of a gate is too small
// to place a threshold of its own.
const fewestOfSide = 20

// rulesFor a part of a sample in a scope: every score alone; gate deciding-class over
// every pair of scores; gate any-critical over the pairs that the paper means
// it for. Any-critical over every pair was tried: it wins by chance more often
// than by merit, and the policies were worse on unseen inputs.
//
// Notes say what was left out, and why.
func rulesFor(s *sample, p part, scope policy.Scope, reliability float64) (rules []rule, notes []string) {
	among := ""
	if p.n < s.n {
		among = fmt.Sprintf(" among the %d inputs that choose the rule", p.n)
	}

	var usable []decomp.Score
	for score := range decomp.Score(decomp.NumScores) {
		values := s.table.Scores[score]
		switch {
		case values == nil:
			notes = append(notes, fmt.Sprintf("%s is not defined without the sets that it needs: left out", score))
		case s.settles && score == decomp.OvAMI:
			notes = append(notes, fmt.Sprintf("%s cannot be followed pass by pass, so that nothing could be settled early: left out", score))
		case s.constant(p, values):
			notes = append(notes, fmt.Sprintf("%s is the same for all inputs%s: no threshold can tell them apart, left out",
				score, among))
		default:
			usable = append(usable, score)
			rules = append(rules, rule{gate: policy.Never, reliability: reliability, primary: score, fallback: score})
		}
	}
	if s.table.CriticalSkewness == nil {
		return rules, notes
	}
	if s.table.Spec.Kind != decomp.Dirichlet {
		if most := decomp.SkewnessCap(s.table.Passes, s.table.Spec.Variance); most <= reliability {
			return rules, append(notes, fmt.Sprintf("%d passes cannot show a skewness above %.3g, and the reliability "+
				"threshold is %v: no gate that reads skewness can open, only single scores are compared",
				s.table.Passes, most, reliability))
		}
	}
	is := func(score decomp.Score, of ...decomp.Score) bool {
		for _, o := range of {
			if score == o {
				return true
			}
		}
		return false
	}
	for _, gate := range []policy.Gate{policy.AnyCritical, policy.DecidingClass} {
		if gate == policy.AnyCritical && len(s.table.Spec.Critical) == 1 {
			continue // the same as deciding-class
		}
		sides := s.sidesOf(p, scope, rule{gate: gate, reliability: reliability}).n
		if least := min(sides[0], sides[1]); least < fewestOfSide {
			notes = append(notes, fmt.Sprintf("gate %s: it puts only %d inputs on one of its sides%s, too few to place a "+
				"threshold of its own, left out", gate, least, among))
			continue
		}
		for _, primary := range usable {
			for _, fallback := range usable {
				if primary == fallback {
					continue
				}
				if gate == policy.AnyCritical &&
					!(is(primary, decomp.CCritMax, decomp.CCritSum) && fallback == decomp.CBEC) {
					continue
				}
				rules = append(rules, rule{gate, reliability, primary, fallback})
			}
		}
	}
	return rules, notes
}
