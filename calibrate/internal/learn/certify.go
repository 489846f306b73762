package learn

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ckd-project/ckd/internal/clustered"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// Request says what to certify.
type Request struct {
	// Epsilon bounds the share of inputs decided otherwise than by all passes, with Confidence.
	// Both are between 0 and 1.
	Epsilon, Confidence float64
	// Released, between 0 and 1, bounds the share of the inputs deferred by all passes that are
	// retained instead, with Confidence too.
	Released float64
	// Risk has to hold too; nil for none.
	Risk *Risk
	// Seed draws the order of the passes of each input.
	Seed uint64
}

// Risk bounds the critical FNR with a rule in force: at Confidence, between 0 and 1, at most the
// share Target, in [0,1), of the retained critical inputs is predicted not critical. OfAll bounds the
// critical miss rate instead: the share of all critical inputs that is retained and predicted not
// critical. Both need labels.
type Risk struct {
	Target, Confidence float64
	OfAll              bool
}

// RefusedError says why no rule could be learned or certified: too few inputs, or too many
// disagreements or released inputs even under the most cautious rule.
type RefusedError struct {
	Reason string
	// OfRisk says that the most cautious rule keeps the bounds on disagreements and released inputs,
	// but not the risk.
	OfRisk bool
}

func (e *RefusedError) Error() string { return e.Reason }

// Certificate states what is guaranteed of a rule, for inputs drawn as those that certified it
// were. Request.Epsilon, Request.Released and CriticalReleasedUpper each hold with their own
// confidence, although the rule was chosen on the same inputs.
type Certificate struct {
	// Evidence is of the inputs not used for learning, in one order of passes each.
	Evidence
	// CriticalReleasedUpper bounds the share of the critical inputs deferred by all passes that are
	// retained instead; 1 if there are none. It did not choose the rule. It is the bound with
	// confidence 1 - (1-Confidence)/R for R rules in the sequence, so that it holds for all of them
	// at once.
	CriticalReleasedUpper float64
	// Missed counts what a Request.Risk is a share of, and the misses among it. RiskPValue is the
	// p-value of "the share is above the target", 1 without cases. Both are empty without a risk.
	Missed     clustered.Tally
	RiskPValue float64
}

// FewestInputs returns the least number of inputs that can certify, ln(1/delta)/epsilon: with no
// disagreement among them the bound is at most epsilon. It is 599 for 0.5% at 95%, and never above
// math.MaxInt32.
func FewestInputs(epsilon, confidence float64) int {
	l := -math.Log1p(-confidence)
	n := max(1, math.Floor(l/epsilon), math.Ceil(-l/math.Log1p(-epsilon)))
	if !(n < math.MaxInt32) { // nor a number where both are 0, or 1
		return math.MaxInt32
	}
	return int(n)
}

// Certify returns the boldest rule up to which all rules of the sequence keep the bounds on
// disagreements and on released inputs, and the risk if one is asked for. No rule may have been learned from the inputs.
// The error is a *RefusedError, or that of ctx.
//
// A rule passes if binomial.Upper(disagreements, inputs, Confidence) <= Epsilon,
// binomial.Upper(released, deferred, Confidence) <= Released and, with a risk,
// RiskPValue <= 1-Risk.Confidence. With groups, the bounds are those of package clustered. Each test has
// its full confidence, without a correction for the others, because all must pass
// (intersection-union). The first rule that fails ends the sequence. A claim is false of the returned
// rule only if the first rule of which it is false passed, and the chance of that is at most 1 - its
// confidence.
func (q *Request) Certify(ctx context.Context, d *Decisions, sequence []*earlystop.Rule, inputs []int) (
	*earlystop.Rule, *Certificate, error,
) {
	s := d.noSamples(len(inputs))
	if err := d.followOnce(ctx, s, inputs, rand.New(rand.NewPCG(q.Seed, 0xce47))); err != nil {
		return nil, nil, err
	}
	chosen, c, err := q.choose(len(sequence), func(i int) Evidence { return d.ruled(s, sequence[i]) })
	if err != nil {
		return nil, nil, err
	}
	return sequence[chosen], c, nil
}

// Fewest returns how many inputs, and how many that all passes defer, are needed to certify without a
// miss: FewestInputs, and with groups about how many in groups like those of some inputs.
func (q *Request) Fewest(d *Decisions, inputs []int) (all, deferred int) {
	e := d.evidence(inputs, func(at int) (verdict, int) { return d.final[inputs[at]], d.recording.Passes })
	return e.fewestWith(Disagreements, q.Epsilon, q.Confidence), e.fewestWith(Released, q.Released, q.Confidence)
}

// choose returns the last rule up to which all pass, given what each does.
func (q *Request) choose(rules int, counts func(i int) Evidence) (chosen int, c *Certificate, err error) {
	for i := range rules {
		next, err := q.test(counts(i), rules)
		if err != nil && i == 0 {
			return 0, nil, err
		} else if err != nil {
			break
		}
		chosen, c = i, next
	}
	return chosen, c, nil
}

// test tests a rule by what it does, as one of the given number of rules in a sequence. The error
// says why, as that of the most cautious rule.
func (q *Request) test(e Evidence, rules int) (*Certificate, error) {
	for _, bound := range []struct {
		of   Share
		most float64
		what string
	}{{Disagreements, q.Epsilon, "inputs disagree"}, {Released, q.Released, "inputs deferred by all passes are retained"}} {
		t := e.Tally(bound.of)
		if upper := t.Upper(q.Confidence); upper > bound.most {
			return nil, &RefusedError{Reason: fmt.Sprintf("%d of %d %s under the most cautious rule, so that with %.4g%% confidence the share is "+
				"at most %.4g%%: expected at most %.4g%%", t.Misses, t.Cases, bound.what, 100*q.Confidence, 100*upper, 100*bound.most)}
		}
	}
	critical := e.Tally(CriticalReleased)
	c := &Certificate{Evidence: e, CriticalReleasedUpper: critical.Upper(1 - (1-q.Confidence)/float64(rules))}
	if q.Risk == nil {
		return c, nil
	}
	missed, figure, inputs := Missed, "critical FNR", "retained critical inputs"
	if q.Risk.OfAll {
		missed, figure, inputs = MissedOfAll, "critical miss rate", "critical inputs"
	}
	c.Missed = e.Tally(missed)
	c.RiskPValue = c.Missed.PValue(q.Risk.Target)
	switch {
	case c.RiskPValue <= 1-q.Risk.Confidence:
		return c, nil
	case c.Missed.Cases == 0:
		return nil, &RefusedError{fmt.Sprintf("there are no %s with a label under the most cautious rule: expected enough to show "+
			"that at most %v are missed", inputs, q.Risk.Target), true}
	}
	return nil, &RefusedError{fmt.Sprintf("%d of %d %s are missed under the most cautious rule, which a %s of %v would bring about with "+
		"chance %.3g: expected at most %.3g", c.Missed.Misses, c.Missed.Cases, inputs, figure, q.Risk.Target, c.RiskPValue, 1-q.Risk.Confidence), true}
}

// ruled returns what a rule does on samples of one order each.
func (d *Decisions) ruled(s *samples, r *earlystop.Rule) Evidence {
	return d.evidence(s.inputs, func(at int) (verdict, int) { return s.run(r, at) })
}
