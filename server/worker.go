package server

import (
	"slices"
	"sync"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/wire"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// workshop is an engine and the workers that compute for it, as many as messages
// are dealt with at one time: streams, of which there may be a thousand, have
// none of their own.
type workshop struct {
	*engine.Model
	workers sync.Pool
}

// keptValues is how many values a worker, or a call's scratch, keeps room for.
const keptValues = 1 << 18

// worker is what computing outcomes and telling them needs.
type worker struct {
	shop    *workshop
	batch   *engine.Batch
	outcome *engine.Outcome

	values       []float32 // of a block whose rows go different ways
	rows         rowValues // what is left of them
	answer       wire.Decomposition
	unreliable   []uint32
	c3           []float64
	pairA, pairB []uint32
}

// workshop is the one for a detail.
func (m *model) workshop(detail ckdv1.Detail) *workshop {
	if detail >= ckdv1.Detail_DETAIL_FULL {
		return &m.full
	}
	return &m.lean
}

// take is a worker, to be released.
func (s *workshop) take() *worker {
	if w, ok := s.workers.Get().(*worker); ok {
		return w
	}
	w := &worker{shop: s, batch: s.NewBatch(), outcome: s.NewOutcome()}
	for _, pair := range s.Plan().Pairs() {
		w.pairA, w.pairB = append(w.pairA, uint32(pair.A)), append(w.pairB, uint32(pair.B))
	}
	return w
}

func (w *worker) release() {
	w.batch.Clear()
	w.rows = nil
	if cap(w.values) > keptValues {
		w.values = nil // one large message is no reason to hold on to its size
	}
	w.shop.workers.Put(w)
}

// read copies values to w.values.
func (w *worker) read(v *wire.Values) {
	w.values = slices.Grow(w.values[:0], v.Len())[:v.Len()]
	v.Next(w.values)
}

// tell puts the outcome into words of the wire, as far as the detail goes. They
// are good until the next outcome.
func (w *worker) tell(detail ckdv1.Detail) *wire.Decomposition {
	o, d, p := w.outcome, &w.answer, w.shop.Policy()
	w.unreliable = w.unreliable[:0]
	for k, skewness := range o.Skewness {
		if skewness > p.ReliabilityThreshold {
			w.unreliable = append(w.unreliable, uint32(k))
		}
	}
	// What is not said here is left from the last outcome, of the same detail.
	d.Action, d.Score, d.Value = actionMessage(o.Decision.Action), scoreMessage(o.Decision.Score), o.Decision.Value
	d.Threshold, d.HasThreshold = o.Decision.Threshold, o.Decision.HasThreshold
	d.Gate, d.Reason = gateMessage(o.Decision.Gate), reasonMessage(o.Decision.Reason)
	d.DecidingClass = o.Decision.Class
	d.Unreliable = w.unreliable
	d.Predicted, d.Passes = uint32(o.Predicted), uint32(o.Passes)
	d.Degenerate, d.Saturated, d.Settled = o.Degenerate, o.Saturated, false
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
	d.Scores = (*[10]float64)(&o.Scores)
	d.PairA, d.PairB, d.Confusion, d.Correlation = w.pairA, w.pairB, o.PairTerm, o.Correlation
	return d
}

// The words of decisions: these are said for every input.

func actionMessage(a policy.Action) ckdv1.Action {
	switch a {
	case policy.Retain:
		return ckdv1.Action_ACTION_RETAIN
	case policy.Defer:
		return ckdv1.Action_ACTION_DEFER
	case policy.Observe:
		return ckdv1.Action_ACTION_OBSERVE
	}
	return ckdv1.Action_ACTION_UNSPECIFIED
}

func gateMessage(g policy.GateOutcome) ckdv1.GateOutcome {
	switch g {
	case policy.ByPrimary:
		return ckdv1.GateOutcome_GATE_OUTCOME_PRIMARY
	case policy.ByFallback:
		return ckdv1.GateOutcome_GATE_OUTCOME_FALLBACK
	}
	return ckdv1.GateOutcome_GATE_OUTCOME_UNSPECIFIED
}

func reasonMessage(r policy.Reason) ckdv1.DecisionReason {
	switch r {
	case policy.AboveThreshold:
		return ckdv1.DecisionReason_DECISION_REASON_ABOVE_THRESHOLD
	case policy.UnderThreshold:
		return ckdv1.DecisionReason_DECISION_REASON_UNDER_THRESHOLD
	case policy.PredictedCritical:
		return ckdv1.DecisionReason_DECISION_REASON_PREDICTED_CRITICAL
	case policy.IsDegenerate:
		return ckdv1.DecisionReason_DECISION_REASON_DEGENERATE
	case policy.IsSaturated:
		return ckdv1.DecisionReason_DECISION_REASON_SATURATED
	case policy.Observing:
		return ckdv1.DecisionReason_DECISION_REASON_OBSERVING
	}
	return ckdv1.DecisionReason_DECISION_REASON_UNSPECIFIED
}

func scoreMessage(s policy.Score) ckdv1.Score {
	switch s {
	case policy.CCritMax:
		return ckdv1.Score_SCORE_C_CRIT_MAX
	case policy.CBEC:
		return ckdv1.Score_SCORE_CBEC
	}
	return scoreMessages[s]
}

var scoreMessages = func() map[policy.Score]ckdv1.Score {
	m := map[policy.Score]ckdv1.Score{}
	for _, s := range policy.Scores() {
		m[s] = enum[ckdv1.Score](ckdv1.Score_value, "SCORE_", s)
	}
	return m
}()
