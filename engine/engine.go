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
	inputs            sync.Pool // of *Inputs that were released
}

// New binds a policy. An error means that the policy is not valid.
func New(p *policy.Policy) (*Model, error) { return bind(p, Spec(p)) }

// NewLean binds a policy to no more arithmetic than its decisions need, and the
// vectors: see decomp.Spec.Lean.
func NewLean(p *policy.Policy) (*Model, error) {
	s := Spec(p)
	s.Lean = p.Primary.Score != policy.OvAMI && p.Fallback.Score != policy.OvAMI
	return bind(p, s)
}

func bind(p *policy.Policy, spec decomp.Spec) (*Model, error) {
	plan, err := decomp.NewPlan(spec)
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

// InputBytes is the memory that one open input holds that is to have so many
// passes, 0 for nobody knows how many, for budgets.
func (m *Model) InputBytes(passes int) int {
	kept := m.plan.KeptPasses(passes)
	return m.plan.AccumulatorBytes(kept, passes == 0 || passes > kept)
}

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

// Inputs are inputs whose passes are coming in.
type Inputs struct {
	model *Model
	acc   *decomp.Accumulator[float32]
}

// Open starts n inputs under the model's policy, and keeps so many of their
// passes as they are: see decomp.Plan.KeptPasses. Release gives them back.
func (m *Model) Open(n, kept int) *Inputs {
	if in, ok := m.inputs.Get().(*Inputs); ok {
		if in.acc.Fits(n, kept) {
			in.acc.Reset(n, kept)
			return in
		}
		m.inputs.Put(in) // for more inputs: few must not hold the memory of many
	}
	return &Inputs{model: m, acc: decomp.NewAccumulator[float32](m.plan, n, kept)}
}

// Passes taken so far of input i.
func (in *Inputs) Passes(i int) int { return in.acc.Passes(i) }

// Add takes one pass of input i, computing with b. The error is a
// *decomp.RowError, or a *decomp.PassesError where no further pass is allowed;
// the pass is then not counted.
func (in *Inputs) Add(b *Batch, i int, row []float32) error { return in.acc.Add(b.batch, i, row) }

// Fill takes so many passes of all n inputs, which have had equally many, one
// pass after the other, computing with b. It reports whether no input met its
// first bad row; one for which Fault has an error is not to be finished. The
// error is a *decomp.PassesError where no further pass is allowed.
func (in *Inputs) Fill(b *Batch, n, passes int, from decomp.Source[float32]) (good bool, err error) {
	return in.acc.Fill(b.batch, 0, n, passes, from)
}

// Fault is the *decomp.RowError of input i that Fill met; nil for none.
func (in *Inputs) Fault(i int) error { return in.acc.Fault(i) }

// Finish lets b decide on n inputs from input i on, which have had equally many
// passes: its Outcome 0 is that of input i. With fewer passes than the policy
// accepts the error is a *decomp.PassesError.
func (in *Inputs) Finish(b *Batch, i, n int) error {
	if err := in.model.checkPasses(in.Passes(i)); err != nil {
		return err
	}
	return in.acc.Finish(b.batch, i, n)
}

// Release gives the memory back for other inputs. They must not be used
// afterwards.
func (in *Inputs) Release() { in.model.inputs.Put(in) }

// Batch decides on inputs whose passes are complete.
type Batch struct {
	model *Model
	batch *decomp.Batch
}

// NewBatch makes a Batch for inputs of the model.
func (m *Model) NewBatch() *Batch { return &Batch{m, m.plan.NewBatch()} }

// Clear lets go of the tensor, or of the inputs.
func (b *Batch) Clear() { b.batch.Clear() }

// Reset takes a tensor, which must not change until the next Reset. Errors are
// *decomp.ShapeError and *decomp.PassesError.
func (b *Batch) Reset(t decomp.Tensor) error {
	if err := b.batch.Reset(t); err != nil {
		return err
	}
	return b.model.checkPasses(t.Passes)
}

// Outcome decides on input i. If one of its rows is refused the error is a
// *decomp.RowError, and o is not to be used. The vectors of o are good until the
// batch is used again.
func (b *Batch) Outcome(i int, o *Outcome) error {
	if err := b.batch.Result(i, o.Result); err != nil {
		return err
	}
	b.model.decide(o)
	return nil
}
