package calibrate

import (
	"fmt"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// candidate is a gate with the scores that it chooses between. Gate never uses the primary score
// alone.
type candidate struct {
	gate              policy.Gate
	reliability       float64
	primary, fallback decomp.Score
	// guarded candidates defer inputs that are unlike those of the recording, whatever their score.
	guarded bool
}

// riskScore stands for the risk of a sample among the scores. It is no score of package decomp,
// because it rests on a model that is fitted to labels.
const (
	riskScore = decomp.Score(decomp.NumScores)
	numScores = decomp.NumScores + 1
)

// nameOfScore returns the name of a score in policies.
func nameOfScore(s decomp.Score) policy.Score {
	if s == riskScore {
		return policy.RiskScore
	}
	return policy.Score(s.String())
}

// treatment is what a candidate does with an input before any score is looked at.
type treatment struct {
	guarded bool // defers unfamiliar inputs
	risk    bool // retains inputs called critical, which have no risk
}

func (r candidate) treatment() treatment { return treatment{r.guarded, r.primary == riskScore} }

// blind reports whether the candidate rests on where the mean prediction lies alone. Such a rule
// does not see that an input is unlike anything learned, and needs a guard.
func (r candidate) blind() bool { return r.primary == riskScore || r.primary == decomp.PCritical }

// The sides of a gate.
const (
	byPrimary  = 0
	byFallback = 1
)

// thresholds holds one threshold for the primary score and one for the fallback score.
type thresholds [2]float64

// side returns which score decides an input.
func (r candidate) side(t *eval.Table, i int) int {
	if r.gate != policy.AnyCritical || t.CriticalSkewness[i] <= r.reliability {
		return byPrimary
	}
	return byFallback
}

// score returns the score of a side.
func (r candidate) score(side int) decomp.Score {
	if side == byFallback {
		return r.fallback
	}
	return r.primary
}

// sides returns how many sides the gate has.
func (r candidate) sides() int {
	if r.gate == policy.Never {
		return 1
	}
	return 2
}

// papers reports whether the candidate has the scores of the paper's rule.
func (r candidate) papers() bool { return r.primary == decomp.CCritMax && r.fallback == decomp.CBEC }

// plain reports whether someone might write the candidate by hand: a score alone. Gate any-critical
// does not count, since it leaves hardly an input to the primary score at most thresholds.
func (r candidate) plain() bool { return r.gate == policy.Never }

func (r candidate) String() string {
	name := string(nameOfScore(r.primary))
	switch {
	case r.gate != policy.Never:
		return fmt.Sprintf("%s (%s, %s)", r.gate, r.primary, r.fallback)
	case r.guarded:
		return name + " with guard"
	}
	return name
}

// fewestOfSide is the smallest number of inputs on a side of a gate that can place a threshold of
// its own.
const fewestOfSide = 20

// candidatesFor returns the candidates for a part of a sample: every score alone, p_critical and risk
// with their guard, and gate any-critical over the pairs that the paper means it for. Gate any-critical over every pair was tried: it won by
// chance more often than by merit, and the policies did worse on unseen inputs. The notes say what
// was left out, and why.
func candidatesFor(s *sample, p part, scope policy.Scope, reliability float64) (candidates []candidate, notes []string) {
	among := ""
	if p.n < s.n {
		among = fmt.Sprintf(" among the %d inputs that choose the rule", p.n)
	}

	var usable []decomp.Score
	for score := range decomp.Score(numScores) {
		values := s.values(score)
		name := nameOfScore(score)
		switch {
		case values == nil && score == riskScore: // reporter.choose says why
		case values == nil:
			notes = append(notes, fmt.Sprintf("%s is not defined without the sets that it needs: left out", name))
		case s.stopsEarly && score == decomp.OvAMI:
			notes = append(notes, fmt.Sprintf("%s cannot be followed pass by pass, so that no input could stop early: left out", name))
		case s.constant(p, values):
			notes = append(notes, fmt.Sprintf("%s is the same for all inputs%s: no threshold can tell them apart, left out",
				name, among))
		default:
			one := candidate{gate: policy.Never, reliability: reliability, primary: score, fallback: score}
			one.guarded = one.blind() && s.hasGuard()
			candidates = append(candidates, one)
			if score.InPaper() {
				usable = append(usable, score)
			}
		}
	}
	if s.table.CriticalSkewness == nil {
		return candidates, notes
	}
	if s.table.Spec.Kind != decomp.Dirichlet {
		if most := decomp.SkewnessCap(s.table.Passes, s.table.Spec.Variance); most <= reliability {
			return candidates, append(notes, fmt.Sprintf("%d passes cannot show a skewness above %.3g, and the reliability "+
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
	for _, gate := range []policy.Gate{policy.AnyCritical} {
		sides := s.sidesOf(p, scope, candidate{gate: gate, reliability: reliability}).n
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
				if !(is(primary, decomp.CCritMax, decomp.CCritSum) && fallback == decomp.CBEC) {
					continue
				}
				candidates = append(candidates, candidate{gate: gate, reliability: reliability, primary: primary, fallback: fallback})
			}
		}
	}
	return candidates, notes
}
