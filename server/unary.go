package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// call is a request with the scratch memory that answering it needs. Calls are pooled.
type call struct {
	wire.UnaryRequest
	values []float32
	seen   idSet

	answerer answerer
}

var calls = sync.Pool{New: func() any { return new(call) }}

// decompose implements the RPC Decompose. The call is refused only if the tensor as a whole cannot be
// read. A bad row fails its input.
func (d *decider) decompose(ctx context.Context, in *wire.Incoming) (out *wire.Outgoing, err error) {
	r := calls.Get().(*call)
	defer r.release()
	if err := r.Decode(in); err != nil {
		return nil, undecodable(err)
	}
	inputs := int(r.Inputs)
	err = d.serve(ctx, r.Model, &inputs, func(m *model) (err error) {
		out, err = d.answer(ctx, m, r)
		return err
	})
	return out, err
}

// mostKeptValues bounds the values for which the memory of a call keeps room between calls.
const mostKeptValues = 1 << 18

func (r *call) release() {
	r.answerer = answerer{}
	if cap(r.values) <= mostKeptValues {
		calls.Put(r)
	}
}

// answer returns the reply to a request, or what is wrong with the request.
func (d *decider) answer(ctx context.Context, m *model, r *call) (*wire.Outgoing, error) {
	issuer, err := d.receipts.newIssuer(m, r.Receipts, r.ModelVersion)
	if err != nil {
		return nil, err
	}
	r.answerer = d.newAnswerer(ctx, issuer, r.Posterior)
	if err := d.limits.checkCall(m, r); err != nil {
		return nil, err
	}
	account := d.budget.of(ctx)
	held, err := account.hold(m, size{
		inputs: int(r.Inputs), passes: int(r.Passes),
		values: int64(4*r.Values.Floats() + r.Values.Bytes()), result: resultBytes(m, r.Detail, &r.answerer.issuer),
	})
	if err != nil {
		return nil, err
	}
	defer account.release(held)
	w := m.pool(r.Detail).get(account.run(m))
	defer w.release()
	tensor := r.tensor()
	if err := w.batch.Reset(tensor); err != nil {
		if shape := (*decomp.ShapeError)(nil); errors.As(err, &shape) {
			if f := wrongLength(m, shape.Got, shape.Passes, shape.Inputs); f.classes {
				err = f
			}
		}
		return nil, err
	}
	out := wire.NewOutgoing(wire.Unary)
	out.Policy(m.encodedRef)
	r.seen.begin(r.IDs.Len())
	defer r.answerer.end()
	for i := range tensor.Inputs {
		if err := ctx.Err(); err != nil {
			m.metrics.Abandoned(tensor.Inputs - i)
			return nil, err
		}
		x, err := r.answerer.issuer.context(m, &r.Contexts, i)
		id, err := d.limits.id(r, i, err)
		if err == nil {
			err = w.batch.Outcome(i, w.outcome)
		}
		if err != nil {
			place := location{input: string(id), row: i, hasPosition: true, classes: m.Policy().Classes}
			out.Error(id, 0, uint32(i), 0, r.answerer.refused(m, place, err).Proto())
			continue
		}
		drawn := r.answerer.decided(m, id, &x, &engine.Closing{Outcome: w.outcome, Sampled: true})
		out.Result(id, 0, uint32(i), 0, w.encode(w.outcome, r.Detail, false, drawn))
	}
	if r.ClassNames {
		for _, name := range m.Policy().Classes {
			out.Class(name)
		}
	}
	return out, nil
}

// id returns the id of an input as the reply repeats it, and what is wrong with it, or else with the
// input.
func (l *Limits) id(r *call, i int, wrong error) ([]byte, error) {
	if r.IDs.Len() == 0 {
		return nil, wrong
	}
	id := r.IDs.At(i)
	if twice := len(id) > 0 && r.seen.add(&r.IDs, i) == nil; twice || len(id) > l.InputIDBytes {
		return []byte(echo(l, string(id))), checkID(l, string(id), i, twice)
	}
	return id, wrong
}

// size holds what a request states about itself.
type size struct {
	inputs, passes int
	values         int64 // bytes of the values as they came
	result         int64 // about the bytes of one result
}

// hold reserves what a request occupies in the budget that it shares with the open inputs of
// streams: its values, as much again to compute with (of logits, which become float64, three times
// as much), some bytes for each pass, and its reply.
func (a *account) hold(m *model, z size) (int64, error) {
	times := int64(2)
	if m.Policy().Kind == policy.Logits {
		times = 4
	}
	bytes := times*z.values + passBytes*int64(z.passes) + replyCostFactor*int64(z.inputs)*z.result
	if !a.reserve(bytes) {
		return 0, a.refuse("values", bytes)
	}
	return bytes, nil
}

// passBytes is the memory that computing takes for each pass, whatever the inputs.
const passBytes = 128

// checkCall checks everything about a request but its values.
func (l *Limits) checkCall(m *model, r *call) error {
	if err := checkTerms(m, terms{r.Classes, r.Kind, r.Detail, r.Posterior}); err != nil {
		return err
	}
	if r.Layout != ckdv1.Layout_LAYOUT_SNK && r.Layout != ckdv1.Layout_LAYOUT_NSK {
		return mismatch(ckdv1.ErrorReason_ERROR_REASON_WRONG_LAYOUT, "layout", r.Layout.String(), "LAYOUT_SNK or LAYOUT_NSK")
	}
	if err := l.checkCounts(int64(r.Inputs), int64(r.Passes)); err != nil {
		return err
	}
	if got, want := r.IDs.Len(), int(r.Inputs); got > 0 && got != want {
		return mismatch(ckdv1.ErrorReason_ERROR_REASON_WRONG_ID_COUNT, "input_ids", fmt.Sprint(got), fmt.Sprint("none or ", want))
	}
	if err := checkContexts(r.Contexts.Len(), int(r.Inputs)); err != nil {
		return err
	}
	if err := l.checkReply(m, r.Detail, &r.answerer.issuer, int(r.Inputs)); err != nil {
		return err
	}
	return checkValues(&r.Values)
}

// checkCounts checks the inputs and passes of a request against the limits.
func (l *Limits) checkCounts(inputs, passes int64) error {
	if limit := int64(l.InputsPerRequest); inputs > limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "inputs", "inputs", inputs, limit)
	}
	if limit := int64(l.PassesPerInput); passes > limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", "passes", passes, limit)
	}
	return nil
}

// tensor returns the passes of the request.
func (r *call) tensor() decomp.Tensor {
	n := r.Values.Len()
	r.values = slices.Grow(r.values[:0], n)[:n]
	r.Values.Next(r.values)
	t := decomp.Tensor{Passes: int(r.Passes), Inputs: int(r.Inputs), Float32: r.values}
	if r.Layout == ckdv1.Layout_LAYOUT_NSK {
		t.Layout = decomp.NSK
	}
	return t
}
