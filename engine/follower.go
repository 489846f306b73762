package engine

import (
	"slices"

	"github.com/ckd-project/ckd/engine/internal/follow"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// Follower computes, pass by pass, what the passes of one input say so far: the statistics that
// an early-stopping rule looks at, and the decision that the policy would make. Groups follow
// their inputs with the same code. A Follower is for one goroutine at a time.
type Follower struct {
	plan    *follow.Plan
	inputs  *follow.Inputs
	clamped []float32 // probabilities within [0,1]; nil for logits
}

// NewFollower creates a Follower for inputs of a policy with thresholds. It refuses Dirichlet rows,
// which have one pass, a policy that only observes, and score ova_mi.
func NewFollower(p *policy.Policy) (*Follower, error) {
	plan, err := follow.NewPlan(p)
	if err != nil {
		return nil, err
	}
	f := &Follower{plan: plan, inputs: plan.NewInputs(1)}
	if p.Kind == policy.Probabilities {
		f.clamped = make([]float32, len(p.Classes))
	}
	return f, nil
}

// Another returns a Follower for other inputs of the same policy.
func (f *Follower) Another() *Follower {
	return &Follower{f.plan, f.plan.NewInputs(1), slices.Clone(f.clamped)}
}

// Reset begins another input.
func (f *Follower) Reset() { f.inputs.Reset(0) }

// Add takes one pass, which the arithmetic must have accepted; it clamps a copy of probabilities, as
// the arithmetic does. It keeps no reference to row, and does not write to it. The error reports a row
// with another number of values than the policy has classes.
func (f *Follower) Add(row []float32) error {
	if len(row) == len(f.clamped) {
		for k, v := range row {
			f.clamped[k] = min(max(v, 0), 1)
		}
		row = f.clamped
	}
	return f.inputs.Add(0, row)
}

// Statistics fills x and reports whether the class predicted so far is critical.
func (f *Follower) Statistics(x *earlystop.Statistics) (critical bool) {
	return f.inputs.Statistics(0, x)
}

// Settled returns what the rule decides after the passes so far, or Open. Call it after each Add:
// it skips the passes that the rule need not look at.
func (f *Follower) Settled(r *earlystop.Rule) earlystop.Action { return f.inputs.Settled(0, r) }

// Decide returns the decision and the predicted class as if no further pass came, even where the
// passes are fewer than the policy accepts.
func (f *Follower) Decide() (d policy.Decision, class int) { return f.inputs.Decide(0) }
