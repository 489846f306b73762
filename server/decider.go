package server

import (
	"context"
	"errors"
	"sync/atomic"

	"go.uber.org/zap"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/metrics"
)

// decider decides on the inputs of unary calls, by whatever protocol they come, and holds what
// streams need to decide on theirs. While it answers a call, the model is retained, so that the
// metrics of the call have a place. It releases what the call reserves of the budget. decider is safe
// for concurrent use.
type decider struct {
	limits   Limits
	log      *zap.Logger
	metrics  *metrics.Metrics
	referred Referred
	refusals *Refusals

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
		d.refusals.call(ctx, nil, err)
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
	d.refusals.call(ctx, m, err)
	return statusOf(err, location{}).Err()
}

// countable returns how many inputs to count for a refused request that states this many.
func (l *Limits) countable(inputs int) int { return min(max(inputs, 1), l.InputsPerRequest) }

// decideEach decides on the inputs of the tensor that w.batch was given, in order, and counts them.
// check returns the id of an input and fills in its context,
// and may refuse it. result is called for each input, with w.outcome filled and what was issued, or
// with the error of the input. decideEach returns the error of ctx if that ends first.
func (d *decider) decideEach(
	ctx context.Context, m *model, w *scratch, t decomp.Tensor, posterior string, issuer *issuer,
	check func(i int, x *inputContext) (id []byte, err error), result func(i int, is *issued, err error),
) error {
	differs := m.calibration.differences(t.Passes, posterior)
	decided := false
	var refused refusedOfCall
	defer func() { d.refusals.inputs(ctx, m, refused) }()
	counted := d.newCounter(ctx)
	counted.model, counted.version = m, issuer.version
	defer counted.end()
	for i := range t.Inputs {
		if err := ctx.Err(); err != nil {
			m.metrics.Abandoned(t.Inputs - i)
			return err
		}
		var x inputContext
		var is issued
		id, err := check(i, &x)
		if err == nil {
			err = w.batch.Outcome(i, w.outcome)
		}
		if err != nil {
			m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
			refused.add(i, err)
		} else {
			is = issuer.issue(m, counted.time(), id, w.outcome, false, &x)
			counted.count(w.outcome, true, &is)
			d.referred.report(&counted, id, w.outcome, &is)
			m.countDifferent(differs)
			decided = true
		}
		result(i, &is, err)
	}
	if decided {
		m.logCall(ctx, d.log, differs, t.Passes, posterior)
	}
	return nil
}
