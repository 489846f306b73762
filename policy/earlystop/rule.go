package earlystop

import "math"

// The statistics of an input after t passes have these places.
const (
	// Own is log((score+e)/(threshold+e)), e = 1e-12, of the score that would decide now: above 0 it
	// would defer. Under scope predicted-safe, and where risk decides, it is no greater than the
	// log-odds of the largest safe over the largest critical mean. Logarithms are approximate: see
	// engine/internal/follow.
	Own = iota
	// Other is the same for the score that the gate did not choose; 0 if that score can never
	// decide.
	Other
	// Peak is the log-odds of the largest critical mass of a single pass; 0 without
	// critical classes.
	Peak
	// Doubt is log(1 - max_k mu_k + 1e-6).
	Doubt
	// Margin is the log-odds of the largest critical over the largest other mean; 0
	// without critical classes.
	Margin

	Count = iota
)

// Bound is the largest absolute value of a statistic.
const Bound = 14.0

// Terms counts the terms of the quadratic form: 1, each statistic, and each product of two.
const Terms = 1 + Count + Count*(Count+1)/2 // 21

// Never is a boundary that is never reached.
const Never = 1e6

// Statistics holds what the rule looks at, all in [-Bound, Bound].
type Statistics struct {
	Values [Count]float64
	// Degenerate says that there is more than one pass, and that all so far are identical.
	Degenerate bool
	// Unfamiliar says that the policy's guard would find the input by its passes so far.
	Unfamiliar bool
}

// Held reports whether the input stays open whatever its log-odds: its score does not say what
// becomes of it.
func (x *Statistics) Held() bool { return x.Degenerate || x.Unfamiliar }

// Action says what the rule decides on an input. The zero value means nothing yet.
type Action uint8

// The actions.
const (
	Open Action = iota // needs further passes
	Retain
	Defer
)

// String returns the name of the action, or "" for Open.
func (a Action) String() string { return [...]string{"", "retain", "defer"}[a] }

// Rule says when inputs are decided early. It is immutable, and all its numbers are finite.
type Rule struct {
	// Passes is S, the number of passes of the full decision.
	Passes int
	// Fewest is the least number of passes after which an input may be decided, 1 <= Fewest < S.
	// With 1 an input can be retained after one pass, which does not show whether passes differ:
	// only full-pass checks would then see a model whose dropout is off.
	Fewest int
	// An input whose log-odds are this far above their boundary is looked at again after twice its
	// passes; half as far adds half as many. With 0 it is looked at after every pass. A look costs as
	// much as a pass, and an input that is far from a decision does not reach one with the next pass.
	Patience float64 `key:"patience" range:"0..1e6"`
	// Steps holds what applies after Fewest, Fewest+1, ... S-1 passes.
	Steps []Step
	// Form is what Steps were computed from; nil if they are given one by one.
	Form *Form `key:",inline"`
}

// Step is the rule after a number of passes: one side for inputs that these would retain, one for
// those that they would defer.
type Step struct {
	Retain Side
	Defer  Side
}

// Side decides the inputs of one action, retain or defer, if the log-odds are low enough that all
// passes overturn it.
type Side struct {
	// AtMost is the boundary: the largest log-odds that decide; -Never for none.
	AtMost float64
	// Coefficients are those of 1; x_0 ... x_4; x_0 x_0, x_0 x_1 ... x_4 x_4 in the log-odds.
	Coefficients [Terms]float64
}

// NoStep returns a step that decides nothing.
func NoStep() Step { return Step{Side{AtMost: -Never}, Side{AtMost: -Never}} }

// Asks reports whether anything can be decided at the step.
func (s *Step) Asks() bool { return s.Retain.AtMost > -Never || s.Defer.AtMost > -Never }

// Last returns the largest number of passes after which an input may be decided early, or 0 for a
// rule that decides nothing. Later passes need not be followed.
func (r *Rule) Last() int {
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if r.Steps[i].Asks() {
			return r.Fewest + i
		}
	}
	return 0
}

// Settled returns what the rule decides after t passes, for any t, or Open. For an open input it
// also returns after how many passes to look again. An input that is held stays open. A call costs
// 20 multiplications.
func (r *Rule) Settled(t int, x *Statistics) (a Action, again int) {
	step := r.Step(t)
	if step == nil || x.Degenerate {
		return Open, t + 1
	}
	side, action := step.Side(x.Values[Own])
	beyond := side.Beyond(x)
	switch {
	case beyond > 0:
		return Open, r.Again(t, beyond)
	case x.Unfamiliar:
		return Open, t + 1
	}
	return action, t
}

// Step returns the step after t passes, for any t, or nil if nothing can be decided then.
func (r *Rule) Step(t int) *Step {
	i := t - r.Fewest
	if i < 0 || i >= len(r.Steps) || !r.Steps[i].Asks() {
		return nil
	}
	return &r.Steps[i]
}

// Side returns the side that applies to statistic Own, and its action.
func (s *Step) Side(own float64) (*Side, Action) {
	if own > 0 {
		return &s.Defer, Defer
	}
	return &s.Retain, Retain
}

// Again returns after how many passes, t+1 to 2t, to look again at an input whose log-odds were so
// far beyond their boundary after t.
func (r *Rule) Again(t int, beyond float64) int {
	if r.Patience == 0 {
		return t + 1
	}
	return t + max(1, int(float64(t)*min(beyond/r.Patience, 1)))
}

// Beyond returns how far the log-odds are above the boundary; an input is decided if that is 0 or
// less. It returns infinity if the side never decides anything, or if the log-odds are not finite.
func (s *Side) Beyond(x *Statistics) float64 {
	z := s.LogOdds(x)
	if math.IsNaN(z) || math.IsInf(z, 0) || s.AtMost == -Never {
		return math.Inf(1)
	}
	return z - s.AtMost
}

// LogOdds returns the quadratic form: the log-odds that all passes overturn what those so far say,
// before the boundary that accounts for their errors. Overturned means deferred instead of retained
// or the reverse, or retained with a predicted class on the other side.
func (s *Side) LogOdds(x *Statistics) float64 {
	a, b, c, d, e := x.Values[0], x.Values[1], x.Values[2], x.Values[3], x.Values[4]
	w := &s.Coefficients
	return w[0] + a*(w[1]+a*w[6]+b*w[7]+c*w[8]+d*w[9]+e*w[10]) + b*(w[2]+b*w[11]+c*w[12]+d*w[13]+e*w[14]) +
		c*(w[3]+c*w[15]+d*w[16]+e*w[17]) + d*(w[4]+d*w[18]+e*w[19]) + e*(w[5]+e*w[20])
}
