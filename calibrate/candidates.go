package calibrate

import (
	"fmt"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// candidate holds a rule that the search compares: one score (gate never), or the paper's gate
// any-critical over c_crit_max and cbec.
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

// single returns the candidate of a score alone.
func single(score decomp.Score) candidate {
	return candidate{gate: policy.Never, primary: score, fallback: score}
}

// blind reports whether the candidate rests on the mean prediction alone. Such a rule does not see
// that an input is unlike anything learned, so that a guard can stand beside it.
func (r candidate) blind() bool { return r.primary == riskScore || r.primary == decomp.PCritical }

// keepsCalls reports whether the candidate can never defer an input called critical by its score:
// such inputs have no risk.
func (r candidate) keepsCalls() bool { return r.primary == riskScore }

// The sides of a gate.
const (
	byPrimary  = 0
	byFallback = 1
)

// thresholds holds one threshold for the primary score and one for the fallback score.
type thresholds [2]float64

// side returns which score decides an input.
func (r candidate) side(t *eval.Table, i int) int {
	if r.gate == policy.AnyCritical && !(t.CriticalSkewness[i] <= r.reliability) {
		return byFallback
	}
	return byPrimary
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

// inWords names a candidate in a sentence.
func (r candidate) inWords() string {
	switch {
	case r.guarded:
		return fmt.Sprintf("the %s with a guard on %s", nameOfScore(r.primary).Words(), policy.MI.Words())
	case r.gate == policy.Never:
		return fmt.Sprintf("the %s alone", nameOfScore(r.primary).Words())
	}
	return "the paper's rule"
}

// fewestOfSide is the smallest number of inputs on a side of a gate that can place a threshold of
// its own.
const fewestOfSide = 20

// candidatesFor returns the candidates for a part of a sample: every score alone, p_critical and risk
// with the guard where there is one, and the paper's gate. The notes say what was left out, and why.
func candidatesFor(s *sample, p part, scope policy.Scope, reliability float64) (candidates []candidate, notes []string) {
	among := ""
	if p.n < s.n {
		among = fmt.Sprintf(" among the %d inputs that choose the rule", p.n)
	}
	leaveOut := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)+": left out") }
	var usable [numScores]bool
	for score := range decomp.Score(numScores) {
		values := s.values(score)
		switch name := nameOfScore(score).Words(); {
		case values == nil && score == riskScore: // run.choose says why
		case values == nil:
			leaveOut("the %s is not defined without the sets that it needs", name)
		case s.constant(p, values):
			leaveOut("the %s is the same for all inputs%s, no threshold can tell them apart", name, among)
		default:
			rule := single(score)
			rule.guarded = rule.blind() && s.hasGuard()
			candidates, usable[score] = append(candidates, rule), true
		}
	}
	if s.table.CriticalSkewness == nil || !usable[decomp.CCritMax] || !usable[decomp.CBEC] {
		return candidates, notes
	}
	gate := candidate{gate: policy.AnyCritical, reliability: reliability, primary: decomp.CCritMax, fallback: decomp.CBEC}
	if s.table.Spec.Kind != decomp.Dirichlet {
		if most := decomp.SkewnessCap(s.table.Passes, s.table.Spec.Variance); most <= reliability {
			leaveOut("the paper's rule cannot fall back: %d passes cannot show a skewness above %.3g, and the reliability threshold is %v",
				s.table.Passes, most, reliability)
			return candidates, notes
		}
	}
	path := s.path(p, scope, gate)
	if least := min(len(path.scores[byPrimary]), len(path.scores[byFallback])); least < fewestOfSide {
		leaveOut("the paper's rule has only %d inputs on one of its sides%s, too few to place a threshold of its own", least, among)
		return candidates, notes
	}
	return append(candidates, gate), notes
}
