package engine

import (
	"fmt"
	"sync"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// Model is a policy bound to the arithmetic it asks for.
type Model struct {
	policy            *policy.Policy
	plan              *decomp.Plan
	primary, fallback decomp.Score
	inputs            sync.Pool // of *Input that were released
}

// New binds a policy. An error means that the policy is not valid.
func New(p *policy.Policy) (*Model, error) {
	plan, err := decomp.NewPlan(Spec(p))
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", p.Name, err)
	}
	m := &Model{policy: p, plan: plan}
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

// Spec is what a policy asks of the arithmetic.
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

// Policy that decides.
func (m *Model) Policy() *policy.Policy { return m.policy }

// Plan of the arithmetic.
func (m *Model) Plan() *decomp.Plan { return m.plan }

// InputBytes is the memory that one open input holds, for budgets.
func (m *Model) InputBytes() int { return m.plan.AccumulatorBytes() }

// Outcome is what became of one input. The next call it is given to overwrites
// it.
type Outcome struct {
	*decomp.Result
	Decision policy.Decision
}

// NewOutcome makes an Outcome for inputs of the model.
func (m *Model) NewOutcome() *Outcome { return &Outcome{Result: m.plan.NewResult()} }

// decide completes an outcome whose result is filled.
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

// checkPasses holds the number of passes against what the policy accepts.
func (m *Model) checkPasses(passes int) error {
	if passes < m.policy.FewestPasses {
		return &decomp.PassesError{Got: passes, Least: m.policy.FewestPasses}
	}
	return nil
}

// Input is an input whose passes are coming in.
type Input struct {
	model *Model
	acc   *decomp.Accumulator
}

// Open starts an input under the model's policy. Release gives it back.
func (m *Model) Open() *Input {
	if in, ok := m.inputs.Get().(*Input); ok {
		in.acc.Reset()
		return in
	}
	return &Input{model: m, acc: m.plan.NewAccumulator()}
}

// Model that the input was opened under.
func (in *Input) Model() *Model { return in.model }

// Passes taken so far.
func (in *Input) Passes() int { return in.acc.Passes() }

// Add takes one pass. The error is a *decomp.RowError, or a *decomp.PassesError
// where no further pass is allowed; the pass is then not counted.
func (in *Input) Add(row []float32) error { return in.acc.AddFloat32(row) }

// Finish decides on the passes so far. With fewer than the policy accepts the
// error is a *decomp.PassesError, and o is not written to.
func (in *Input) Finish(o *Outcome) error {
	if err := in.model.checkPasses(in.Passes()); err != nil {
		return err
	}
	if err := in.acc.Finish(o.Result); err != nil {
		return err
	}
	in.model.decide(o)
	return nil
}

// Release gives the input's memory back for another one. It must not be used
// afterwards.
func (in *Input) Release() { in.model.inputs.Put(in) }

// Batch decides on inputs whose passes are complete.
type Batch struct {
	model *Model
	batch *decomp.Batch
}

// NewBatch makes a Batch for inputs of the model.
func (m *Model) NewBatch() *Batch { return &Batch{m, m.plan.NewBatch()} }

// Reset takes a tensor, which must not change until the next Reset. Errors are
// *decomp.ShapeError and *decomp.PassesError.
func (b *Batch) Reset(t decomp.Tensor) error {
	if err := b.batch.Reset(t); err != nil {
		return err
	}
	return b.model.checkPasses(t.Passes)
}

// Outcome decides on input i of the tensor. If one of its rows is refused the
// error is a *decomp.RowError, and o is not to be used.
func (b *Batch) Outcome(i int, o *Outcome) error {
	if err := b.batch.Result(i, o.Result); err != nil {
		return err
	}
	b.model.decide(o)
	return nil
}
