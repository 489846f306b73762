package engine

import (
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/passcheck"
)

// Batch is the scratch memory that decisions are computed with: for complete passes, see Reset,
// and for the inputs of a Group, see Group.Feed.
type Batch struct {
	model   *Model
	batch   *decomp.Batch
	outcome *Outcome  // outcome of the group input being closed
	values  []float32 // passes copied by read, whose rows go to different places
	run     *passcheck.Run
}

// NewBatch creates a Batch for inputs of the model.
func (m *Model) NewBatch() *Batch {
	return &Batch{model: m, batch: m.plan.NewBatch(), outcome: m.NewOutcome()}
}

// Watch has the batch count the inputs that it decides in the run of their caller, in order, until
// Clear. Those that complete the run are degenerate.
func (b *Batch) Watch(run *passcheck.Run) { b.run = run }

// mostKeptValues bounds the values that a Batch keeps room for between uses.
const mostKeptValues = 1 << 18

// Clear drops the tensor, or the inputs, and the memory that only large ones need.
func (b *Batch) Clear() {
	b.batch.Clear()
	b.run = nil
	if cap(b.values) > mostKeptValues {
		b.values = nil
	}
}

// Reset takes a tensor of complete passes, which must not change until the next Reset. Errors are
// *decomp.ShapeError and *decomp.PassesError.
func (b *Batch) Reset(t decomp.Tensor) error {
	if err := b.batch.Reset(t); err != nil {
		return err
	}
	return b.model.checkPasses(t.Passes)
}

// Check calls refused, in the order of the inputs, for every input that Outcome would refuse,
// with its *decomp.RowError, and reports whether there is none.
func (b *Batch) Check(refused func(i int, err error)) bool { return b.batch.Check(refused) }

// Outcome decides on input i and fills o. The error is a *decomp.RowError where one of the rows is
// refused; o is then not to be used. The vectors of o are valid until the batch is used again.
func (b *Batch) Outcome(i int, o *Outcome) error {
	err := b.decide(i, o)
	if err == nil {
		b.run.Count(o.Squashed)
	}
	return err
}

// decide is Outcome for an input that may go on: it does not count in the run.
func (b *Batch) decide(i int, o *Outcome) error {
	if err := b.batch.Result(i, o.Result); err != nil {
		return err
	}
	b.model.decide(o, o.Squashed && b.run.Completes())
	return nil
}

// read copies the next n values of a source into the batch.
func (b *Batch) read(from decomp.Source[float32], n int) []float32 {
	b.values = slices.Grow(b.values[:0], n)[:n]
	from.Next(b.values)
	return b.values
}
