package spec

import (
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// Policy is a policy with the arithmetic that predicts its decisions. It is safe for concurrent use.
type Policy struct {
	*policy.Policy
	model    *engine.Model
	rule     *earlystop.Rule  // nil: no input stops early
	follower *engine.Follower // nil without a rule
}

// Bind returns a policy to predict with.
func Bind(p *policy.Policy) (*Policy, error) {
	m, err := engine.New(p)
	if err != nil {
		return nil, err
	}
	b := &Policy{Policy: p, model: m}
	if b.rule = p.EarlyStop(); b.rule != nil {
		if b.follower, err = engine.NewFollower(p); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// decide returns the outcome of an input that had these passes, in two passes over them.
func (p *Policy) decide(passes [][]float32) (*engine.Outcome, error) {
	b, o := p.model.NewBatch(), p.model.NewOutcome()
	err := b.Reset(decomp.Tensor{Passes: len(passes), Inputs: 1, Float32: slices.Concat(passes...)})
	if err == nil {
		err = b.Outcome(0, o)
	}
	if err != nil {
		return nil, fmt.Errorf("the reference refuses %v: %w", passes, err)
	}
	return o, nil
}

// sameShape reports whether a stream that was opened under p can go on under next.
func (p *Policy) sameShape(next *Policy) bool {
	return next != nil && slices.Equal(p.Classes, next.Classes) && p.Kind == next.Kind && p.ExpectedPasses == next.ExpectedPasses &&
		p.FewestPasses == next.FewestPasses
}

// faultOf returns the reason why a row is refused, or "".
func (p *Policy) faultOf(row []float32) string {
	sum := 0.0
	for _, v := range row {
		x := float64(v)
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			return "NOT_FINITE"
		case p.Kind == policy.Dirichlet && x <= 0:
			return "NOT_POSITIVE"
		case p.Kind == policy.Probabilities && x < -p.SumTolerance:
			return "NEGATIVE"
		case p.Kind == policy.Probabilities && x > 1+p.SumTolerance:
			return "ABOVE_ONE"
		}
		sum += x
	}
	if p.Kind == policy.Probabilities && math.Abs(sum-1) > p.SumTolerance {
		return "SUM_NOT_ONE"
	}
	return ""
}

// refusal returns the reason why an input with these passes is refused, or "".
func (p *Policy) refusal(passes [][]float32) string {
	for _, row := range passes {
		if reason := p.faultOf(row); reason != "" {
			return reason
		}
	}
	if len(passes) < max(p.FewestPasses, 1) {
		return "TOO_FEW_PASSES"
	}
	const loose = 0.02 // of what is taken for probabilities
	if p.Kind != policy.Logits || slices.ContainsFunc(passes, func(row []float32) bool {
		sum := 0.0
		for _, v := range row {
			sum += float64(v)
		}
		return math.Abs(sum-1) > loose || slices.Min(row) < -loose || slices.Max(row) > 1+loose
	}) {
		return ""
	}
	return "NOT_LOGITS"
}
