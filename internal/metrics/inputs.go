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
	families                                *inputs
	model                                   string
	decisions                               []decisionSeries
	scores                                  [1 + policy.ByFallback]policy.Score // by outcome of the gate; 0 is the guard's
	mutualInformation, entropy              *sharded.Histogram
	fallback, passes, degenerate, saturated *sharded.Counter
}

// decisionSeries is the counter of a decision that the policy can take.
type decisionSeries struct {
	decision
	counter *sharded.Counter
}

// of creates the series of a model, or finds those that exist.
func (f *inputs) of(p *policy.Policy) *modelInputs {
	m := &modelInputs{
		families: f, model: p.Name,
		mutualInformation: f.mutualInformation.With(p.Name),
		entropy:           f.entropy.With(p.Name),
		fallback:          f.fallback.With(p.Name),
		passes:            f.passes.With(p.Name),
		degenerate:        f.degenerate.With(p.Name),
		saturated:         f.saturated.With(p.Name),
	}
	m.scores[policy.ByPrimary], m.scores[policy.ByFallback] = p.Primary.Score, p.Fallback.Score
	if p.Guard != nil {
		m.scores[0] = p.Guard.Score // the gate chooses neither where the guard decides
	}
	for _, d := range decisionsOf(p) {
		m.decisions = append(m.decisions, decisionSeries{d, m.counter(d)})
	}
	return m
}

func (m *modelInputs) counter(d decision) *sharded.Counter {
	return m.families.decisions.With(m.model, d.action.String(), string(d.score), d.reason.String())
}

// inputParts holds the parts of modelInputs in one shard.
type inputParts struct {
	total, entropyLayout *sharded.Layout

	decisions                               [1 + policy.ByFallback][policy.Reasons]*float64 // nil where the policy cannot decide so
	mutualInformation, entropy              *sharded.Counts
	fallback, passes, degenerate, saturated *float64
}

// bind finds the parts in a shard.
func (m *modelInputs) bind(b *sharded.Binder) inputParts {
	layouts := sharded.Layouts()
	parts := inputParts{
		total: layouts.Total, entropyLayout: layouts.Entropy,
		mutualInformation: b.Histogram(m.mutualInformation),
		entropy:           b.Histogram(m.entropy),
	}
	for _, d := range m.decisions {
		n := b.Counter(d.counter)
		for gate, score := range m.scores {
			if d.score == score {
				parts.decisions[gate][d.reason] = n
			}
		}
	}
	parts.passes, parts.fallback = b.Counter(m.passes), b.Counter(m.fallback)
	parts.degenerate, parts.saturated = b.Counter(m.degenerate), b.Counter(m.saturated)
	return parts
}

// observe counts a decided input, and reports whether its decision has a counter.
func (p *inputParts) observe(res *decomp.Result, d *policy.Decision) bool {
	decided := p.decisions[d.Gate][d.Reason]
	if decided != nil {
		*decided++
	}
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
	return decided != nil
}

// observeUnforeseen counts a decision that decisionsOf missed, in a shard that the caller has
// locked.
func (m *modelInputs) observeUnforeseen(shard int, d *policy.Decision) {
	*sharded.NewBinder(shard).Counter(m.counter(decision{d.Action, d.Score, d.Reason}))++
}
