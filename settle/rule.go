package settle

import (
	"fmt"
	"math"
)

// The statistics of an input after t passes, by their place.
const (
	// Own is log((score+e)/(threshold+e)), e = 1e-12, of the score that would decide
	// now: above 0 it would defer. Under scope predicted-safe it is no greater than
	// the log-odds of the largest safe over the largest critical mean. Logarithms are
	// rough: see package follow.
	Own = iota
	// Other is the same of the score that the gate did not choose; 0 where it never can.
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

// Terms of the quadratic form: 1, each statistic, and each product of two.
const Terms = 1 + Count + Count*(Count+1)/2 // 21

// Never is a boundary that is never reached.
const Never = 1e6

// Statistics is what the rule looks at, all in [-Bound, Bound].
type Statistics struct {
	Values [Count]float64
	// Degenerate: the passes so far are all identical, and more than one.
	Degenerate bool
}

// Action is what an input is settled to. The zero value is nothing yet.
type Action uint8

// The actions.
const (
	Open Action = iota // needs further passes
	Retain
	Defer
)

// String is the action as it is written everywhere; empty for Open.
func (a Action) String() string { return [...]string{"", "retain", "defer"}[a] }

// Rule is when inputs are settled. It is immutable, and all its numbers are finite.
type Rule struct {
	// Passes is S, those of the full decision.
	Passes int
	// Fewest passes after which an input may be settled, 1 <= Fewest < S. With 1 an
	// input can be retained after a pass that shows nothing of whether passes differ:
	// a model whose dropout is off is then seen by audits alone.
	Fewest int
	// Patience is how far above their boundary the log-odds of an input double the
	// passes that it has when the rule looks at it again; 0 looks after every pass. To
	// look costs as much as a pass does, and what is far from settled does not become
	// it by the next.
	Patience float64
	// Steps is what holds after Fewest, Fewest+1, ... S-1 passes.
	Steps []Step
}

// Step is the rule after a number of passes: for inputs that these would retain, and
// for those that they would defer.
type Step struct {
	Retain Side
	Defer  Side
}

// Side is when what would be done is settled: when the log-odds, that all passes overturn
// it, are so low.
type Side struct {
	// AtMost is the log-odds up to which it is; -Never for never.
	AtMost float64
	// Coefficients of 1; x_0 ... x_4; x_0 x_0, x_0 x_1 ... x_4 x_4 in the log-odds.
	Coefficients [Terms]float64
}

// NoStep settles nothing.
func NoStep() Step { return Step{Side{AtMost: -Never}, Side{AtMost: -Never}} }

// Asks reports whether anything can be settled at the step.
func (s *Step) Asks() bool { return s.Retain.AtMost > -Never || s.Defer.AtMost > -Never }

// Check reports what is wrong with a rule that was read from somewhere.
func (r *Rule) Check() error {
	if r.Fewest < 1 || r.Fewest >= r.Passes {
		return fmt.Errorf("fewest %d: expected at least 1 and fewer than passes, %d", r.Fewest, r.Passes)
	}
	if !(r.Patience >= 0 && r.Patience <= Never) {
		return fmt.Errorf("patience %v: expected log-odds from 0 to %v", r.Patience, Never)
	}
	if want := r.Passes - r.Fewest; len(r.Steps) != want {
		return fmt.Errorf("%d steps: expected %d, one after each of %d to %d passes",
			len(r.Steps), want, r.Fewest, r.Passes-1)
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		for _, side := range []struct {
			name string
			*Side
		}{{"retain", &s.Retain}, {"defer", &s.Defer}} {
			for j, v := range side.Coefficients {
				if math.IsNaN(v) || math.Abs(v) > Never {
					return fmt.Errorf("step after %d passes, %s: coefficient %d is %v, expected one within %v", r.Fewest+i, side.name, j, v, Never)
				}
			}
			if !(math.Abs(side.AtMost) <= Never) {
				return fmt.Errorf("step after %d passes, %s: at most %v, expected log-odds within %v", r.Fewest+i, side.name, side.AtMost, Never)
			}
		}
	}
	return nil
}

// Last is after how many passes an input may be settled at the latest: what comes then
// need not be followed. It is 0 for a rule that settles nothing.
func (r *Rule) Last() int {
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if r.Steps[i].Asks() {
			return r.Fewest + i
		}
	}
	return 0
}

// Settled says what an input is settled to after t passes, for any t; Open if it is
// not, as one is never whose passes so far are all identical: what becomes of it is not
// for its score to say. Of one that is Open it says after how many passes to look again.
// It costs 20 multiplications.
func (r *Rule) Settled(t int, x *Statistics) (a Action, again int) {
	step := r.Step(t)
	if step == nil || x.Degenerate {
		return Open, t + 1
	}
	side, action := step.Side(x.Values[Own])
	beyond := side.Beyond(x)
	if beyond <= 0 {
		return action, t
	}
	return Open, r.Again(t, beyond)
}

// Step is what holds after t passes, for any t; nil where nothing can be settled.
func (r *Rule) Step(t int) *Step {
	i := t - r.Fewest
	if i < 0 || i >= len(r.Steps) || !r.Steps[i].Asks() {
		return nil
	}
	return &r.Steps[i]
}

// Side is what holds for statistic Own, and to what an input is settled that it settles.
func (s *Step) Side(own float64) (*Side, Action) {
	if own > 0 {
		return &s.Defer, Defer
	}
	return &s.Retain, Retain
}

// Again is after how many passes to look again at an input whose log-odds are so far
// beyond their boundary after t: t+1 to 2t.
func (r *Rule) Again(t int, beyond float64) int {
	if r.Patience == 0 {
		return t + 1
	}
	return t + max(1, int(float64(t)*min(beyond/r.Patience, 1)))
}

// Beyond is how far the log-odds are above the boundary: settled is what is not above it.
// It is infinite where they never settle anything, or are not finite.
func (s *Side) Beyond(x *Statistics) float64 {
	z := s.LogOdds(x)
	if math.IsNaN(z) || math.IsInf(z, 0) || s.AtMost == -Never {
		return math.Inf(1)
	}
	return z - s.AtMost
}

// LogOdds is the quadratic form: the log-odds, before the boundary which accounts for
// its errors, that all passes overturn what those so far say. What would be deferred is
// retained, or what would be retained is deferred, or is, but with a predicted class on
// the other side.
func (s *Side) LogOdds(x *Statistics) float64 {
	a, b, c, d, e := x.Values[0], x.Values[1], x.Values[2], x.Values[3], x.Values[4]
	w := &s.Coefficients
	return w[0] + a*(w[1]+a*w[6]+b*w[7]+c*w[8]+d*w[9]+e*w[10]) + b*(w[2]+b*w[11]+c*w[12]+d*w[13]+e*w[14]) +
		c*(w[3]+c*w[15]+d*w[16]+e*w[17]) + d*(w[4]+d*w[18]+e*w[19]) + e*(w[5]+e*w[20])
}
