package metrics

import (
	"math"

	"github.com/ckd-project/ckd/internal/metrics/internal/sharded"
	"github.com/ckd-project/ckd/policy"
)

// risks declares what is counted of the risk of inputs, for policies with a risk model.
type risks struct {
	risk   *sharded.HistogramVec
	misses *sharded.CounterVec
}

func declareRisks(t *table) risks {
	return risks{
		risk: t.histogram("ckd_risk",
			"Calibrated probability that an input called safe is truly critical. Absent without a risk model.",
			sharded.Layouts().Contribution, "model"),
		misses: t.sharded("ckd_expected_misses_total",
			"Critical inputs expected among those retained and called safe, while traffic is like the calibration's. "+
				"Absent without a risk model.",
			"model"),
	}
}

// modelRisks holds the series of one model. It is nil without a risk model.
type modelRisks struct {
	risk   *sharded.Histogram
	misses *sharded.Counter // nil for a policy that only observes
}

// model creates the series of a model, or finds those that exist.
func (f *risks) model(p *policy.Policy) *modelRisks {
	if p.Risk == nil {
		return nil
	}
	m := &modelRisks{risk: f.risk.With(p.Name)}
	if !p.Observes() {
		m.misses = f.misses.With(p.Name)
	}
	return m
}

// dropStale deletes the series that the next policy of the model lacks.
func (f *risks) dropStale(model string, next *modelRisks) {
	if next == nil {
		f.risk.DeleteLabelValues(model)
	}
	if next == nil || next.misses == nil {
		f.misses.DeleteLabelValues(model)
	}
}

// ObserveRisk counts the risk of an input that Observe or ObserveUnsampled has counted: a probability,
// or NaN, which means that it has none.
func (r *Recorder) ObserveRisk(risk float64, a policy.Action) {
	m := r.model.risks
	if m == nil || math.IsNaN(risk) {
		return
	}
	m.risk.Part(r.shard).Observe(risk)
	if m.misses != nil && a == policy.Retain {
		*m.misses.Part(r.shard) += risk
	}
}
