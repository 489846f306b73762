package metrics

import (
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
			"Inputs decided whose passes say nothing: they hardly differ, saturated ones included, or softmax was taken twice. "+
				"Uncertainty is absent, not zero.",
			"model"),
		saturated: t.sharded("ckd_inputs_saturated_total",
			"Inputs decided whose passes were all the same one-hot row.",
			"model"),
	}
}

// modelInputs holds the series of the inputs of one model.
type modelInputs struct {
	decisions                               *sharded.CounterVec
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

// inputParts holds the parts of modelInputs in one shard.
type inputParts struct {
	series               *modelInputs
	total, entropyLayout *sharded.Layout

	decisions                               [1 + policy.ByFallback][policy.Reasons]*float64 // nil until one is taken
	mutualInformation, entropy              *sharded.Counts
	fallback, passes, degenerate, saturated *float64
}

// bind finds the parts in a shard.
func (m *modelInputs) bind(b *sharded.Binder) inputParts {
	layouts := sharded.Layouts()
	parts := inputParts{
		series: m, total: layouts.Total, entropyLayout: layouts.Entropy,
		mutualInformation: b.Histogram(m.mutualInformation),
		entropy:           b.Histogram(m.entropy),
	}
	parts.passes, parts.fallback = b.Counter(m.passes), b.Counter(m.fallback)
	parts.degenerate, parts.saturated = b.Counter(m.degenerate), b.Counter(m.saturated)
	return parts
}

// observe counts a decided input in the shard of that index, which the caller has locked.
func (p *inputParts) observe(shard int, res *decomp.Result, d *policy.Decision) {
	decided := &p.decisions[d.Gate][d.Reason]
	if *decided == nil {
		*decided = new(float64) // counts into nothing, where the model was removed
		if counter := p.series.counter(d.Action, d.Score, d.Reason); counter != nil {
			*decided = sharded.NewBinder(shard).Counter(counter)
		}
	}
	**decided++
	p.mutualInformation.Observe(p.total, res.MI)
	p.entropy.Observe(p.entropyLayout, res.Entropy)
	if d.Gate == policy.ByFallback {
		*p.fallback++
	}
	*p.passes += float64(res.Passes)
	if res.Degenerate {
		*p.degenerate++
	}
	if res.Saturated {
		*p.saturated++
	}
}
