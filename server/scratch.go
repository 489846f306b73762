package server

import (
	"sync"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/passcheck"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// scratchPool binds a model of the engine to the scratch memory that computing needs. A message
// borrows it while it is handled, so that idle streams, of which there may be a thousand, hold none.
type scratchPool struct {
	*engine.Model
	pool sync.Pool
}

// scratch holds what computing outcomes and encoding them needs.
type scratch struct {
	from    *scratchPool
	batch   *engine.Batch
	outcome *engine.Outcome // outcome of the input being answered

	answer       wire.Decomposition
	unreliable   []uint32
	c3           []float64
	pairA, pairB []uint32
}

// pool returns the scratch pool for a detail.
func (m *model) pool(detail ckdv1.Detail) *scratchPool {
	if detail >= ckdv1.Detail_DETAIL_FULL {
		return &m.full
	}
	return &m.lean
}

// get returns scratch memory for the inputs of a run; release gives it back.
func (p *scratchPool) get(run *passcheck.Run) *scratch {
	if w, ok := p.pool.Get().(*scratch); ok {
		w.batch.Watch(run)
		return w
	}
	w := &scratch{from: p, batch: p.NewBatch(), outcome: p.NewOutcome()}
	for _, pair := range p.Plan().Pairs() {
		w.pairA, w.pairB = append(w.pairA, uint32(pair.A)), append(w.pairB, uint32(pair.B))
	}
	w.batch.Watch(run)
	return w
}

func (w *scratch) release() {
	w.batch.Clear()
	w.from.pool.Put(w)
}

// encode fills the result of an outcome and of what was issued for it, as far as the detail goes. It
// is valid until the next call.
func (w *scratch) encode(o *engine.Outcome, detail ckdv1.Detail, settled bool, drawn *issued) *wire.Decomposition {
	d, p := &w.answer, w.from.Policy()
	w.unreliable = w.unreliable[:0]
	for k, skewness := range o.Skewness {
		if skewness > p.ReliabilityThreshold {
			w.unreliable = append(w.unreliable, uint32(k))
		}
	}
	// Fields that the detail leaves out keep what the last outcome, of the same detail, had.
	d.Action, d.Score, d.Value = actionMessages[o.Decision.Action], scoreMessage(o.Decision.Score), o.Decision.Value
	d.Threshold, d.HasThreshold = o.Decision.Threshold, o.Decision.HasThreshold
	d.Gate, d.Reason = gateMessages[o.Decision.Gate], reasonMessages[o.Decision.Reason]
	d.DecidingClass = o.Decision.Class
	d.Unreliable = w.unreliable
	d.Predicted, d.Passes = uint32(o.Predicted), uint32(o.Passes)
	d.Degenerate, d.Saturated, d.Settled = o.Degenerate, o.Saturated, settled
	d.Review, d.Receipt = drawn.Review, drawn.receipt
	d.Assessed = p.Risk != nil
	d.Risk, d.Priority, d.PriorityPercentile = o.Risk, o.Priority, o.Percentile
	d.Vectors = detail >= ckdv1.Detail_DETAIL_VECTORS
	if !d.Vectors {
		return d
	}
	d.C, d.Skewness, d.Mean = o.C, o.Skewness, o.Mean
	d.MI, d.Entropy, d.SumC = o.MI, o.Entropy, o.SumC
	d.Dominant = o.Dominant
	if detail < ckdv1.Detail_DETAIL_FULL {
		return d
	}
	if len(w.c3) < len(o.C) {
		w.c3 = make([]float64, len(o.C))
	}
	d.Variance, d.ThirdMoment, d.M = o.Variance, o.ThirdMoment, o.M
	d.C3 = o.C3(w.c3)
	d.ExpectedEntropy = o.ExpectedEntropy
	d.SumCTop, d.SumCWeighted = o.SumCTop(p.TopClasses), o.SumCWeighted()
	d.Scores = &o.Scores
	d.PairA, d.PairB, d.Confusion, d.Correlation = w.pairA, w.pairB, o.PairTerm, o.Correlation
	return d
}
