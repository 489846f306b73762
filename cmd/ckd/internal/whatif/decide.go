package whatif

import (
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/policy"
)

// WhySkewness names the reason where the log has no vectors.
const WhySkewness = "the gate's skewness is not in the record"

// The other reasons why a decision of the new policy cannot be known.
const (
	whyNoPolicy = "the logs lack the policy that decided (--old FILE)"
	whyOther    = "classes, their sets, pair weights, kind or variance differ between the two policies, so that recorded scores mean something else"
	whyEarly    = "it was decided before the last pass, and the new policy may stop elsewhere"
	whyPasses   = "the new policy takes another number of passes"
	whyAlarm    = "it was deferred only because an alarm was up"
	whySpread   = "the record does not say whether passes hardly differed"
	whyScore    = "a score that the new policy reads is not in the record"
	whyUnfit    = "the record does not follow from the policy that it names"
)

// former is a policy that decided in the log, as the new policy is compared with it.
type former struct {
	*policy.Policy
	same bool   // decides as the new policy does
	why  string // nothing of it can be decided anew; empty where it can
}

// newFormer compares a policy with the new one.
func newFormer(old, next *policy.Policy) *former {
	f := &former{Policy: old, same: old.HashWithoutLines() == next.HashWithoutLines()}
	if !slices.Equal(old.Classes, next.Classes) || !slices.Equal(old.Critical, next.Critical) || !slices.Equal(old.Safe, next.Safe) ||
		!slices.Equal(old.PairWeights, next.PairWeights) || old.Kind != next.Kind || old.Variance != next.Variance {
		f.why = whyOther
	}
	return f
}

// decide returns what the new policy does with an input; no action, and why, where that cannot be known.
func (s *Study) decide(d *decisionlog.Decision) (policy.Action, string) {
	next, old := s.next, s.formers[d.PolicyHash]
	predicted := slices.Index(next.Classes, d.Predicted)
	switch alarm := d.Reason == policy.Violated.String(); {
	case old == nil:
		return 0, whyNoPolicy
	case old.same && (!alarm || defersOnBreach(next)):
		return actionOf(d.Action), ""
	case old.why != "" || predicted < 0:
		return 0, whyOther
	case d.Settled && !old.same:
		return 0, whyEarly
	case d.Passes < next.FewestPasses || old.ExpectedPasses != next.ExpectedPasses && next.ExpectedPasses > 0 && d.Passes != next.ExpectedPasses:
		return 0, whyPasses
	case readsMissing(next, old.Policy, d):
		return 0, whyScore
	}
	var decided, differing policy.Action // by all worlds, and by those whose passes differ
	var why string
	for _, w := range worlds(old.Policy, next, d) {
		if !follows(old.Policy, d, w.evidence(old.Policy, d, predicted), predicted) {
			continue
		}
		action := next.Decide(w.evidence(next, d, predicted)).Action
		if !w.degenerate {
			if differing != 0 && action != differing {
				return 0, orAlarm(d, WhySkewness)
			}
			differing = action
		}
		if decided != 0 && action != decided {
			why = whySpread
		}
		decided = action
	}
	switch {
	case decided == 0:
		return 0, whyUnfit
	case why != "":
		return 0, orAlarm(d, why)
	case d.Reason == policy.Violated.String() && decided != policy.Defer:
		return 0, whyAlarm
	}
	return decided, ""
}

// orAlarm returns why, unless an alarm is why anyway.
func orAlarm(d *decisionlog.Decision, why string) string {
	if d.Reason == policy.Violated.String() {
		return whyAlarm
	}
	return why
}

func defersOnBreach(p *policy.Policy) bool {
	return p.Audit != nil && p.Audit.OnBreach == policy.DeferOnBreach
}

// actionOf returns the action of a name; no action for one that is none.
func actionOf(name string) policy.Action {
	for _, a := range []policy.Action{policy.Retain, policy.Defer, policy.Observe} {
		if a.String() == name {
			return a
		}
	}
	return 0
}

// readsMissing reports whether the new policy reads the one score that a daemon leaves out where its policy does not
// read it. Any other that is not in a record was undefined.
func readsMissing(next, old *policy.Policy, d *decisionlog.Decision) bool {
	_, recorded := d.Scores[string(policy.OvAMI)]
	return reads(next, policy.OvAMI) && !recorded && !reads(old, policy.OvAMI)
}

func reads(p *policy.Policy, s policy.Score) bool {
	return p.Primary.Score == s || p.Fallback.Score == s
}

// A world is what may be true of an input beyond its record.
type world struct {
	skewness                            []float64
	degenerate, saturated, softmaxTwice bool
}

// worlds returns what may be true of an input beyond its record. The gates of two policies tell at most three ranges
// of the largest skewness of a critical class from each other.
func worlds(old, next *policy.Policy, d *decisionlog.Decision) (all []world) {
	var skewnesses [][]float64
	if len(d.Skewness) == len(next.Classes) {
		skewnesses = [][]float64{d.Skewness}
	} else {
		for _, largest := range []float64{
			min(old.ReliabilityThreshold, next.ReliabilityThreshold), max(old.ReliabilityThreshold, next.ReliabilityThreshold), math.Inf(1),
		} {
			skewnesses = append(skewnesses, slices.Repeat([]float64{largest}, len(next.Classes)))
		}
	}
	states := []world{{}}
	switch {
	case d.Reason == policy.SoftmaxTwice.String():
		states = []world{{degenerate: true, softmaxTwice: true}}
	case mayBeDegenerate(next, d):
		states = append(states, world{degenerate: true}, world{degenerate: true, saturated: true})
	}
	for _, skewness := range skewnesses {
		for _, state := range states {
			state.skewness = skewness
			all = append(all, state)
		}
	}
	return all
}

// mayBeDegenerate reports whether the passes of an input may hardly differ. Then each class but the most probable one
// varies by at most 1% of its mean (see decomp.Result.Degenerate), and their mutual information is at most about half
// of 0.01² of the probability of these classes. Twice as much tells that passes differ, with room for the first.
func mayBeDegenerate(p *policy.Policy, d *decisionlog.Decision) bool {
	const most = 2 * 0.01 * 0.01
	return p.Kind != policy.Dirichlet && d.Scores[string(policy.MI)] <= most*d.Scores[string(policy.MaxProb)]
}

// evidence returns what a policy would have looked at.
func (w *world) evidence(p *policy.Policy, d *decisionlog.Decision, predicted int) policy.Evidence {
	e := policy.Evidence{
		Predicted: predicted, Primary: value(p, p.Primary.Score, d, predicted), Fallback: value(p, p.Fallback.Score, d, predicted),
		PrimaryClass: -1, FallbackClass: -1, Skewness: w.skewness,
		Degenerate: w.degenerate, Saturated: w.saturated, SoftmaxTwice: w.softmaxTwice,
	}
	if p.Guard != nil {
		e.Guard = value(p, p.Guard.Score, d, predicted)
	}
	return e
}

// value returns a score of an input under a policy; NaN where it is undefined.
func value(p *policy.Policy, s policy.Score, d *decisionlog.Decision, predicted int) float64 {
	recorded := func(name string) float64 {
		if v, defined := d.Scores[name]; defined {
			return v
		}
		return math.NaN()
	}
	switch {
	case s != policy.RiskScore:
		return recorded(string(s))
	case p.Risk == nil || slices.Contains(p.Critical, predicted):
		return math.NaN()
	}
	return p.Risk.CalledSafe.Probability(recorded(decomp.PCritical.String()))
}

// follows reports whether a policy decides by the evidence as the record says.
func follows(p *policy.Policy, d *decisionlog.Decision, e policy.Evidence, predicted int) bool {
	decided := p.Decide(e)
	if d.Reason == policy.Violated.String() {
		decided = p.WhileViolated(decided, predicted)
	}
	return decided.Action.String() == d.Action && decided.Reason.String() == d.Reason && decided.Gate.String() == d.Gate
}

// readPolicy returns the policy of a start line; nil for one that this version cannot read.
func readPolicy(text decisionlog.Policy) *policy.Policy {
	set, err := policy.Parse(policy.File{Name: text.Model, Data: []byte(text.Text)})
	if err != nil {
		return nil
	}
	if p, ok := set.Get(text.Model); ok && p.Hash == text.Hash {
		return p
	}
	return nil
}
