package learn

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

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

// figure and inputs name in words what is bounded, and of what it is a share.
func (r *Risk) figure() string {
	if r.OfAll {
		return "critical miss rate"
	}
	return "critical FNR"
}

func (r *Risk) inputs() string {
	if r.OfAll {
		return "critical inputs"
	}
	return "retained critical inputs"
}

// RefusedError says why no rule could be learned or certified: too few inputs, or too many
// disagreements or released inputs even under the most cautious rule.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// RiskError says that the most cautious rule keeps the bounds on disagreements and released inputs, but not
// the risk.
// Without the risk there would be a certificate.
type RiskError struct {
	Risk
	RiskTest
}

func (e *RiskError) Error() string {
	if e.Cases == 0 {
		return fmt.Sprintf("there are no %s with a label under the most cautious rule: expected enough to show "+
			"that at most %v are missed", e.inputs(), e.Target)
	}
	return fmt.Sprintf("%d of %d %s are missed under the most cautious rule, which a %s of %v "+
		"would bring about with chance %.3g: expected at most %.3g", e.Misses, e.Cases, e.inputs(), e.figure(), e.Target, e.PValue, 1-e.Confidence)
}

// RiskTest holds the test of a risk.
type RiskTest struct {
	// Cases counts the retained critical inputs, or all with Risk.OfAll; Misses those of them that are
	// retained and predicted not critical.
	Cases, Misses int
	// PValue is P(X <= Misses) for X binomial of Cases and Risk.Target, with groups that of
	// clustered.Tail: the chance of so few misses if the risk were above the target. It is 1 without
	// cases.
	PValue float64
}

// Certificate states what is guaranteed of a rule, for inputs drawn as those that certified it
// were. Epsilon, Released and CriticalReleasedUpper each hold with their own confidence, although the
// rule was chosen on the same inputs.
type Certificate struct {
	Request
	// Evidence is of the inputs not used for learning, in one order of passes each.
	Evidence
	// Upper and ReleasedUpper are the bounds on the shares of disagreements and of released
	// inputs by which the rule was chosen, at most Epsilon and Request.Released. Because they chose
	// the rule, they bound nothing themselves: Epsilon and Request.Released do.
	Upper, ReleasedUpper float64
	// CriticalReleasedUpper bounds the share of the critical inputs deferred by all passes that are
	// retained instead; 1 if there are none. It did not choose the rule. It is the bound with
	// confidence 1 - (1-Confidence)/R for R rules in the sequence, so that it holds for all of them
	// at once.
	CriticalReleasedUpper float64
	// RiskTest is the test of the rule; nil without a Request.Risk.
	RiskTest *RiskTest
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
// The error is a *RefusedError, a *RiskError, or that of ctx.
//
// A rule passes if binomial.Upper(disagreements, inputs, Confidence) <= Epsilon,
// binomial.Upper(released, deferred, Confidence) <= Released and, with a risk,
// PValue <= 1-Risk.Confidence. With groups, the bounds are those of package clustered. Each test has
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
	e := d.full(inputs)
	return e.fewestWith(Disagreements, q.Epsilon, q.Confidence), e.fewestWith(Released, q.Released, q.Confidence)
}

// choose returns the last rule up to which all pass, given what each does.
func (q *Request) choose(rules int, counts func(i int) Evidence) (chosen int, c *Certificate, err error) {
	for i := range rules {
		next := q.test(counts(i), rules)
		if err := next.failure(); err != nil && i == 0 {
			return 0, nil, err
		} else if err != nil {
			break
		}
		chosen, c = i, next
	}
	return chosen, c, nil
}

// test tests a rule by its counts, as one of the given number of rules in a sequence.
func (q *Request) test(e Evidence, rules int) *Certificate {
	all := 1 - (1-q.Confidence)/float64(rules)
	c := &Certificate{Request: *q, Evidence: e,
		Upper:                 e.upper(Disagreements, q.Confidence),
		ReleasedUpper:         e.upper(Released, q.Confidence),
		CriticalReleasedUpper: e.upper(criticalReleased, all)}
	if q.Risk != nil {
		missed := Missed
		if q.Risk.OfAll {
			missed = MissedOfAll
		}
		misses, cases := missed(&e.Counts)
		c.RiskTest = &RiskTest{cases, misses, e.tail(missed, q.Risk.Target)}
	}
	return c
}

// failure returns why a certificate of the most cautious rule would be refused, or nil.
func (c *Certificate) failure() error {
	if c.Upper > c.Epsilon {
		return &RefusedError{fmt.Sprintf("%d of %d inputs disagree under the most cautious rule, so that "+
			"the share is at most %.3g with confidence %v: expected at most %v",
			c.Counts.Disagreements, c.Counts.Inputs, c.Upper, c.Confidence, c.Epsilon)}
	}
	if c.ReleasedUpper > c.Request.Released {
		return &RefusedError{fmt.Sprintf("%d of %d inputs deferred by all passes are retained under the most cautious rule, so that "+
			"the share is at most %.3g with confidence %v: expected at most %v",
			c.Counts.Released, c.Counts.Deferred, c.ReleasedUpper, c.Confidence, c.Request.Released)}
	}
	if c.RiskTest != nil && c.RiskTest.PValue > 1-c.Risk.Confidence {
		return &RiskError{*c.Risk, *c.RiskTest}
	}
	return nil
}

// ruled returns what a rule does on samples of one order each.
func (d *Decisions) ruled(s *samples, r *earlystop.Rule) Evidence {
	return d.evidenceOf(s.inputs, func(at int) (verdict, int) { return s.run(r, at) })
}
