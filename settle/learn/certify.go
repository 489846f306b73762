package learn

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/settle"
)

// Request is what a certificate has to say.
type Request struct {
	// At most the share Epsilon of the inputs is decided otherwise than by all passes,
	// with so much Confidence; both are between 0 and 1.
	Epsilon, Confidence float64
	// Risk has to hold too; nil for none.
	Risk *Risk
	// Seed of the order of the passes of each input.
	Seed uint64
}

// Risk is a bound on the critical FNR with a rule in force: that of the critical inputs
// that are retained no greater share than Target, in [0,1), is predicted not critical,
// with so much Confidence, between 0 and 1. It needs labels.
type Risk struct{ Target, Confidence float64 }

// RefusedError is why no rule could be certified: too few inputs, or too many
// disagreements even under the most cautious rule.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// RiskError says that the most cautious rule keeps the bound on disagreements, but not
// the risk: without it there would be a certificate.
type RiskError struct {
	Risk
	RiskTest
}

func (e *RiskError) Error() string {
	if e.Cases == 0 {
		return fmt.Sprintf("no critical input with a label is retained under the most cautious rule: expected enough to show "+
			"that at most %v are missed", e.Target)
	}
	return fmt.Sprintf("%d of %d retained critical inputs are missed under the most cautious rule, which a critical FNR of %v "+
		"would bring about with chance %.3g: expected at most %.3g", e.Misses, e.Cases, e.Target, e.PValue, 1-e.Confidence)
}

// RiskTest is what is known of the risk.
type RiskTest struct {
	// Cases are the critical inputs retained, Misses those of them predicted not critical.
	Cases, Misses int
	// PValue is P(X <= Misses), X of a binomial distribution of Cases and Risk.Target:
	// the chance of so few misses if the risk were above the target; 1 of no cases.
	PValue float64
}

// Certificate is what is guaranteed of a rule, for inputs drawn as those that it was
// certified on were. Epsilon, ReleasedUpper and CriticalReleasedUpper hold with their
// confidence, each on its own, though the rule was chosen on the same inputs.
type Certificate struct {
	Request
	// Counts on the inputs not used for learning, one order of passes each.
	Counts Counts
	// Upper is the exact bound on the share of disagreements, at most Epsilon, that the rule
	// was chosen by. As it is of the rule chosen, it bounds nothing itself: Epsilon does.
	Upper float64
	// ReleasedUpper is that on the share of the inputs deferred by all passes which are
	// retained instead, and CriticalReleasedUpper the same of critical ones; 1 of none.
	// They did not choose the rule, so each is the exact bound with the confidence
	// 1 - (1-Confidence)/R, R rules on the path: then it holds for all of them at once.
	ReleasedUpper, CriticalReleasedUpper float64
	// RiskTest of the rule; nil without a Request.Risk.
	RiskTest *RiskTest
}

// FewestInputs that can certify: ln(1/delta)/epsilon, with no disagreement among which
// the bound is at most epsilon. 599 for 0.5% at 95%, and never above math.MaxInt32.
func FewestInputs(epsilon, confidence float64) int {
	l := -math.Log1p(-confidence)
	n := max(1, math.Floor(l/epsilon), math.Ceil(-l/math.Log1p(-epsilon)))
	if !(n < math.MaxInt32) { // nor a number where both are 0, or 1
		return math.MaxInt32
	}
	return int(n)
}

// Certify returns the boldest rule of the path up to which all keep the bound on the
// disagreements, and the risk if one is asked for, on inputs that none was learned from.
// The error is a *RefusedError, a *RiskError, or of a request out of range.
//
// A rule passes if binomial.Upper(disagreements, inputs, Confidence) <= Epsilon and, with a
// risk, PValue <= 1-Risk.Confidence; the first that does not ends the sequence. A claim
// is false of the rule returned only if the first rule of the path of which it is false
// passed, and that has the chance 1 - its confidence at most.
func (q *Request) Certify(d *Decisions, path *Path, inputs []int) (*settle.Rule, *Certificate, error) {
	if err := q.check(); err != nil {
		return nil, nil, err
	}
	if least := FewestInputs(q.Epsilon, q.Confidence); len(inputs) < least {
		return nil, nil, &RefusedError{fmt.Sprintf("%d inputs to certify on: expected at least %d, "+
			"fewer cannot show that at most %v disagree with confidence %v", len(inputs), least, q.Epsilon, q.Confidence)}
	}
	s := d.follow(inputs, 1, path.Rules[0].Fewest, rand.New(rand.NewPCG(q.Seed, 0xce47)))
	chosen, c, err := q.choose(len(path.Rules), func(i int) Counts { return d.countLabelled(s, path.Rules[i]) })
	if err != nil {
		return nil, nil, err
	}
	return path.Rules[chosen], c, nil
}

// choose the last of so many rules up to which all pass, by what each does.
func (q *Request) choose(rules int, counts func(i int) Counts) (chosen int, c *Certificate, err error) {
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

func (q *Request) check() error {
	within := func(v float64) bool { return v > 0 && v < 1 }
	if !within(q.Epsilon) || !within(q.Confidence) {
		return fmt.Errorf("epsilon %v at confidence %v: expected both between 0 and 1", q.Epsilon, q.Confidence)
	}
	if r := q.Risk; r != nil && !(r.Target >= 0 && r.Target < 1 && within(r.Confidence)) {
		return fmt.Errorf("risk target %v at confidence %v: expected a target in [0,1) and a confidence between 0 and 1",
			r.Target, r.Confidence)
	}
	return nil
}

// test a rule of a path of so many by what it did.
func (q *Request) test(counts Counts, rules int) *Certificate {
	all := 1 - (1-q.Confidence)/float64(rules)
	c := &Certificate{Request: *q, Counts: counts,
		Upper:                 binomial.Upper(counts.Disagreements, counts.Inputs, q.Confidence),
		ReleasedUpper:         binomial.Upper(counts.Released, counts.Deferred, all),
		CriticalReleasedUpper: binomial.Upper(counts.CriticalReleased, counts.CriticalDeferred, all)}
	if q.Risk != nil {
		cases, misses := counts.CriticalRetained, counts.CriticalMissed
		c.RiskTest = &RiskTest{cases, misses, binomial.Tail(misses, cases, q.Risk.Target)}
	}
	return c
}

// failure is what a certificate of the most cautious rule would be refused for.
func (c *Certificate) failure() error {
	if c.Upper > c.Epsilon {
		return &RefusedError{fmt.Sprintf("%d of %d inputs disagree under the most cautious rule, so that "+
			"the share is at most %.3g with confidence %v: expected at most %v",
			c.Counts.Disagreements, c.Counts.Inputs, c.Upper, c.Confidence, c.Epsilon)}
	}
	if c.RiskTest != nil && c.RiskTest.PValue > 1-c.Risk.Confidence {
		return &RiskError{*c.Risk, *c.RiskTest}
	}
	return nil
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
