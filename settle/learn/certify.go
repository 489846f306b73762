package learn

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mathext"

	"github.com/ckd-project/ckd/settle"
)

// RefusedError is why no rule could be certified.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// Certificate is what is guaranteed of a rule, for inputs drawn as those that it was
// certified on were.
type Certificate struct {
	// Epsilon bounds the share of inputs whose decision is not that of all passes,
	// with so much Confidence.
	Epsilon, Confidence float64
	// Counts on the inputs not used for learning, one order of passes each.
	Counts Counts
	// Upper is the exact bound on the share of disagreements, at most Epsilon.
	Upper float64
	// ReleasedUpper is that on the share of deferred inputs which are retained
	// instead, and CriticalReleasedUpper the same of critical ones; 1 of none. Each
	// holds with the confidence for the rule that was chosen by Upper if it is the
	// only one that is looked at.
	ReleasedUpper, CriticalReleasedUpper float64
}

// FewestInputs that can certify: ln(1/delta)/epsilon, with no disagreement among which
// the bound is at most epsilon. 599 for 0.5% at 95%.
func FewestInputs(epsilon, confidence float64) int {
	l := -math.Log1p(-confidence)
	return max(int(l/epsilon), int(math.Ceil(-l/math.Log1p(-epsilon))))
}

// UpperBound is the exact one-sided bound (Clopper and Pearson) on a share of which k
// of n were seen: the share at which k or fewer have the chance 1-confidence.
func UpperBound(k, n int, confidence float64) float64 {
	if k >= n {
		return 1
	}
	return mathext.InvRegIncBeta(float64(k+1), float64(n-k), confidence)
}

// Certify returns the boldest rule of the path up to which all keep, on inputs that
// none was learned from, the bound. The error is a *RefusedError.
func Certify(d *Decisions, path *Path, inputs []int, epsilon, confidence float64, seed uint64) (*settle.Rule, *Certificate, error) {
	if !(epsilon > 0 && epsilon < 1 && confidence > 0 && confidence < 1) {
		return nil, nil, fmt.Errorf("epsilon %v at confidence %v: expected both between 0 and 1", epsilon, confidence)
	}
	if least := FewestInputs(epsilon, confidence); len(inputs) < least {
		return nil, nil, &RefusedError{fmt.Sprintf("%d inputs to certify on: expected at least %d, "+
			"fewer cannot show that at most %v disagree with confidence %v", len(inputs), least, epsilon, confidence)}
	}
	var rule *settle.Rule
	var c Certificate
	s := d.follow(inputs, 1, path.Rules[0].Fewest, rand.New(rand.NewPCG(seed, 0xce47)))
	for _, r := range path.Rules {
		counts := d.countLabelled(s, r)
		upper := UpperBound(counts.Disagreements, counts.Inputs, confidence)
		if upper > epsilon {
			if rule == nil {
				return nil, nil, &RefusedError{fmt.Sprintf("%d of %d inputs disagree under the most cautious rule, so that "+
					"the share is at most %.3g with confidence %v: expected at most %v",
					counts.Disagreements, counts.Inputs, upper, confidence, epsilon)}
			}
			break
		}
		rule = r
		c = Certificate{Epsilon: epsilon, Confidence: confidence, Counts: counts, Upper: upper,
			ReleasedUpper:         UpperBound(counts.Released, counts.Deferred, confidence),
			CriticalReleasedUpper: UpperBound(counts.CriticalReleased, counts.CriticalDeferred, confidence)}
	}
	return rule, &c, nil
}

// countLabelled counts, with what the labels tell.
func (d *Decisions) countLabelled(s *samples, r *settle.Rule) Counts {
	c := Counts{Inputs: len(s.final), Passes: s.passes}
	for i, input := range s.inputs {
		v, used := s.run(r, i)
		c.add(v, s.final[i], used)
		if d.recording.Labels != nil && d.isCritical(d.recording.Labels[input]) {
			c.label(v, s.final[i])
		}
	}
	return c
}
