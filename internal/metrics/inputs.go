package metrics

import (
	"sync/atomic"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/metrics/internal/sharded"
	"github.com/ckd-project/ckd/policy"
)

// inputs declares what is counted of a decided input as a whole.
type inputs struct {
	decisions                               *sharded.CounterVec
	mutualInformation, entropy              *sharded.HistogramVec
	fallback, passes, degenerate, saturated *sharded.CounterVec
}

func declareInputs(t *table) inputs {
	layouts := sharded.Layouts()
	return inputs{
		decisions: t.sharded("ckd_decisions_total",
			"Inputs decided, by action, the score that decided and the reason.",
			"model", "action", "score", "reason"),
		mutualInformation: t.histogram("ckd_mutual_information_nats",
			"Mutual information of an input, its epistemic uncertainty as a whole, in nats.",
			layouts.Total, "model"),
		entropy: t.histogram("ckd_predictive_entropy_nats",
			"Entropy of the mean prediction of an input, its whole uncertainty, in nats.",
			layouts.Entropy, "model"),
		fallback: t.sharded("ckd_inputs_fallback_total",
			"Inputs decided by the policy's fallback score, as its gate chose.",
			"model"),
		passes: t.sharded("ckd_passes_total",
			"Passes of decided inputs.",
			"model"),
		degenerate: t.sharded("ckd_inputs_degenerate_total",
			"Inputs decided whose passes say nothing, saturated ones included: uncertainty is absent, not zero.",
			"model"),
		saturated: t.sharded("ckd_inputs_saturated_total",
			"Inputs decided whose passes were all the same one-hot row.",
			"model"),
	}
}

// modelInputs holds the series of the inputs of one model.
type modelInputs struct {
	decisions                               *sharded.CounterVec
	taken                                   [1 + policy.ByFallback][policy.Reasons]atomic.Pointer[sharded.Counter] // nil until one is taken
	onDemand                                *onDemand
	model                                   string
	mutualInformation, entropy              *sharded.Histogram
	fallback, passes, degenerate, saturated *sharded.Counter
}

// model creates the series of a model, or finds those that exist. Of decisions it creates the usual ones;
// any other appears when it is first taken.
func (f *inputs) model(p *policy.Policy, o *onDemand) *modelInputs {
	m := &modelInputs{
		decisions: f.decisions, onDemand: o, model: p.Name,
		mutualInformation: f.mutualInformation.With(p.Name),
		entropy:           f.entropy.With(p.Name),
		fallback:          f.fallback.With(p.Name),
		passes:            f.passes.With(p.Name),
		degenerate:        f.degenerate.With(p.Name),
		saturated:         f.saturated.With(p.Name),
	}
	usual := func(score policy.Score) {
		if p.Observes() {
			m.counter(policy.Observe, score, policy.Observing)
			return
		}
		m.counter(policy.Retain, score, policy.UnderThreshold)
		m.counter(policy.Defer, score, policy.AboveThreshold)
	}
	if p.Gate.ReachesPrimary() {
		usual(p.Primary.Score)
	}
	if p.Gate.ReachesFallback() {
		usual(p.Fallback.Score)
	}
	return m
}

// counter returns the counter of a decision, and creates it if need be; nil for a model that was removed.
func (m *modelInputs) counter(a policy.Action, s policy.Score, r policy.Reason) *sharded.Counter {
	m.onDemand.mu.Lock()
	defer m.onDemand.mu.Unlock()
	if m.onDemand.removed {
		return nil
	}
	return m.decisions.With(m.model, a.String(), string(s), r.String())
}

// observe counts a decided input in a shard, which the caller has locked.
func (m *modelInputs) observe(shard *sharded.Shard, res *decomp.Result, d *policy.Decision) {
	taken := &m.taken[d.Gate][d.Reason]
	decided := taken.Load()
	if decided == nil {
		decided = m.counter(d.Action, d.Score, d.Reason)
		taken.Store(decided)
	}
	if decided != nil {
		*decided.Part(shard)++
	}
	m.mutualInformation.Part(shard).Observe(res.MI)
	m.entropy.Part(shard).Observe(res.Entropy)
	if d.Gate == policy.ByFallback {
		*m.fallback.Part(shard)++
	}
	*m.passes.Part(shard) += float64(res.Passes)
	if res.Degenerate {
		*m.degenerate.Part(shard)++
	}
	if res.Saturated {
		*m.saturated.Part(shard)++
	}
}
