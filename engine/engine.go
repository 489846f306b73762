package engine

import (
	"fmt"
	"sync"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// Model binds a policy to the arithmetic that it asks for.
type Model struct {
	policy            *policy.Policy
	plan              *decomp.Plan
	primary, fallback decomp.Score
	critical          []bool        // by class
	stopper           *EarlyStopper // nil: no input stops early
	groups            sync.Pool     // released *Group
}

// BindOptions say how New binds a policy.
type BindOptions struct {
	// Lean computes no more than decisions need, and the vectors: see decomp.Spec.Lean.
	Lean bool
	// Stopper stops inputs early by the rule of the policy. May be nil.
	Stopper *EarlyStopper
}

// New binds a policy. The error means that the policy is not valid.
func New(p *policy.Policy) (*Model, error) { return Bind(p, BindOptions{}) }

// Bind is New with options.
func Bind(p *policy.Policy, o BindOptions) (*Model, error) {
	spec := Spec(p)
	spec.Lean = o.Lean && p.Primary.Score != policy.OvAMI && p.Fallback.Score != policy.OvAMI
	plan, err := decomp.NewPlan(spec)
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", p.Name, err)
	}
	m := &Model{policy: p, plan: plan, stopper: o.Stopper, critical: make([]bool, len(p.Classes))}
	for _, k := range p.Critical {
		m.critical[k] = true
	}
	for _, s := range []struct {
		name policy.Score
		to   *decomp.Score
	}{{p.Primary.Score, &m.primary}, {p.Fallback.Score, &m.fallback}} {
		score, ok := decomp.ParseScore(string(s.name))
		if !ok {
			return nil, fmt.Errorf("model %q: unknown score %q", p.Name, s.name)
		}
		*s.to = score
	}
	return m, nil
}

// Spec returns what a policy asks of the arithmetic.
func Spec(p *policy.Policy) decomp.Spec {
	s := decomp.Spec{
		Classes:      len(p.Classes),
		Critical:     p.Critical,
		Safe:         p.Safe,
		SumTolerance: p.SumTolerance,
		AllPairs:     p.Pairs == policy.AllPairs,
	}
	switch p.Kind {
	case policy.Logits:
		s.Kind = decomp.Logits
	case policy.Dirichlet:
		s.Kind = decomp.Dirichlet
	}
	if p.Variance == policy.Population {
		s.Variance = decomp.Population
	}
	for _, w := range p.PairWeights {
		s.Weights = append(s.Weights, decomp.Weight(w))
	}
	return s
}

// Policy returns the policy that decides.
func (m *Model) Policy() *policy.Policy { return m.policy }

// Plan returns the plan of the arithmetic.
func (m *Model) Plan() *decomp.Plan { return m.plan }

// Stopper returns what stops inputs early, or nil.
func (m *Model) Stopper() *EarlyStopper { return m.stopper }

// StopsEarly reports whether inputs that complete with this many passes may stop early now.
func (m *Model) StopsEarly(passes int) bool { return m.stopper.applies(passes) }

// InputBytes returns the memory that an open input needs for the given number of passes; 0 means
// that the number is not known.
func (m *Model) InputBytes(passes int) int {
	p := m.Prepare(Options{Passes: passes})
	return p.InputBytes(1)
}

// Outcome holds what became of one input. The next call that it is given to overwrites it.
type Outcome struct {
	*decomp.Result
	Decision policy.Decision
}

// NewOutcome creates an Outcome for inputs of the model.
func (m *Model) NewOutcome() *Outcome { return &Outcome{Result: m.plan.NewResult()} }

// decide completes an outcome whose result is computed.
func (m *Model) decide(o *Outcome) {
	o.Decision = m.policy.Decide(policy.Evidence{
		Predicted:     o.Predicted,
		Primary:       o.Scores[m.primary],
		Fallback:      o.Scores[m.fallback],
		PrimaryClass:  o.Deciding(m.primary),
		FallbackClass: o.Deciding(m.fallback),
		CCritMaxClass: o.CCritMaxClass,
		Skewness:      o.Skewness,
		Degenerate:    o.Degenerate,
		Saturated:     o.Saturated,
	})
}

// checkPasses returns a *decomp.PassesError for fewer passes than the policy accepts.
func (m *Model) checkPasses(passes int) error {
	if passes < m.policy.FewestPasses {
		return &decomp.PassesError{Got: passes, Least: m.policy.FewestPasses}
	}
	return nil
}
