package server

import (
	"context"
	"errors"
	"sync/atomic"

	"go.uber.org/zap"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/policy"
)

// decider decides on the inputs of unary calls, by whatever protocol they come, and holds what
// streams need to decide on theirs. While it answers a call, the model is retained, so that the
// metrics of the call have a place. It releases what the call reserves of the budget. decider is safe
// for concurrent use.
type decider struct {
	limits   Limits
	log      *zap.Logger
	metrics  *metrics.Metrics
	referred func(p *policy.Policy, id []byte, o *engine.Outcome, receipt []byte) // Options.Referred
	refusals *Refusals
	// decisions is nil where no decision log is kept.
	decisions *decisions

	catalog  *catalog
	budget   *budget
	receipts *receipts
	hints    atomic.Uint32 // the last hint given out, which chooses the shards of metrics
}

// serve finds the model of a request and calls answer. If the request is refused it counts the
// inputs that the request states, which answer may correct. An error of answer that is a status
// means that answer has counted them.
func (d *decider) serve(ctx context.Context, name string, inputs *int, answer func(m *model) error) error {
	m, err := d.catalog.find(ctx, name)
	if err != nil {
		d.metrics.RejectedUnknownModel(reasonWord(reasonOf(err)), d.limits.countable(*inputs))
		d.refusals.call(ctx, "", err)
		return statusOf(err, location{}).Err()
	}
	d.catalog.retain(m)
	defer d.catalog.release(m)
	tracedOf(ctx).add(m, 0, 0)
	err = answer(m)
	if _, said := status.FromError(err); said || errors.Is(err, ctx.Err()) {
		return err
	}
	m.metrics.Rejected(reasonWord(reasonOf(err)), d.limits.countable(*inputs))
	d.refusals.call(ctx, m.ref.GetModel(), err)
	return statusOf(err, location{}).Err()
}

// countable returns how many inputs to count for a refused request that states this many.
func (l *Limits) countable(inputs int) int { return min(max(inputs, 1), l.InputsPerRequest) }

// tensorCall is a call with the complete passes of some inputs, of any protocol, that was checked but
// for its values.
type tensorCall struct {
	answerer  answerer
	scratch   *scratchPool
	allOrNone bool // decide on no input if one is refused

	tensor decomp.Tensor // has no values yet
	bytes  int           // of the values as they came, and of what the reply repeats
	result int64         // about the bytes of one result
}

// tensorRequest is the request of a tensorCall in the form of its protocol.
type tensorRequest interface {
	// read adds the values, once there is room.
	read(*decomp.Tensor)
	// input returns what the client says of an input, and what is wrong with that.
	input(i int) (id []byte, x inputContext, err error)
	// decided or refused is called for each input, in order; decided with the scratch memory that has
	// the outcome.
	decided(i int, id []byte, w *scratch, drawn *issued)
	refused(i int, id []byte, said *status.Status)
}

// decideAll decides on the inputs of a call.
func (d *decider) decideAll(ctx context.Context, m *model, c *tensorCall, r tensorRequest) error {
	account, a, held := d.budget.accountOf(ctx), &c.answerer, c.holds(m)
	if err := account.claim("values", held); err != nil {
		return err
	}
	defer account.release(held)
	w := c.scratch.get(account.run(m))
	defer w.release()
	r.read(&c.tensor)
	if err := w.batch.Reset(c.tensor); err != nil {
		if shape := (*decomp.ShapeError)(nil); errors.As(err, &shape) {
			if f := wrongLength(m, shape.Got, shape.Passes, shape.Inputs); f.classes {
				err = f
			}
		}
		return err
	}
	defer a.end()
	place := location{hasPosition: true, classes: m.Policy().Classes}
	if c.allOrNone {
		var first error
		w.batch.Check(func(i int, err error) {
			place.row = i
			if said := a.refused(m, place, err); first == nil {
				first = said.Err()
			}
		})
		if first != nil {
			return first
		}
	}
	for i := range c.tensor.Inputs {
		if err := ctx.Err(); err != nil {
			m.metrics.Abandoned(c.tensor.Inputs - i)
			return err
		}
		id, x, err := r.input(i)
		if err == nil {
			err = w.batch.Outcome(i, w.outcome)
		}
		if err != nil {
			place.input, place.row = string(id), i
			r.refused(i, id, a.refused(m, place, err))
			continue
		}
		r.decided(i, id, w, a.decided(m, id, &x, &engine.Closing{Outcome: w.outcome, Sampled: true}))
	}
	return nil
}

// passBytes is the memory that computing takes for each pass, whatever the inputs.
const passBytes = 128

// holds returns what a call occupies in the budget that it shares with the open inputs of streams:
// its values, as much again to compute with (of logits, which become float64, three times as much),
// some bytes for each pass, and its reply.
func (c *tensorCall) holds(m *model) int64 {
	times := int64(2)
	if m.Policy().Kind == policy.Logits {
		times = 4
	}
	return times*int64(c.bytes) + passBytes*int64(c.tensor.Passes) + replyCostFactor*int64(c.tensor.Inputs)*c.result
}
