package metrics

import (
	"github.com/ckd-project/ckd/internal/metrics/internal/sharded"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// reviews declares what is counted of inputs whose clients take receipts.
type reviews struct {
	eligible, reviews, propensity *sharded.CounterVec // by stratum
	exceeded                      *sharded.CounterVec
}

func declareReviews(t *table) reviews {
	return reviews{
		eligible: t.sharded("ckd_receipts_eligible_total",
			"Inputs decided whose client takes receipts; audits are drawn of these alone.",
			"model", "stratum"),
		reviews: t.sharded("ckd_reviews_total",
			"Inputs that a person was asked to look at: deferred ones, and audits of retained ones.",
			"model", "stratum"),
		propensity: t.sharded("ckd_audit_propensity_total",
			"Reviews to be expected: the sum of the probabilities that they were drawn with.",
			"model", "stratum"),
		exceeded: t.sharded("ckd_audit_cap_exceeded_total",
			"Inputs called safe that were drawn while the policy's cap on audits gave way.",
			"model"),
	}
}

// modelReviews holds the series of one model. It is nil where the daemon gives no receipts.
type modelReviews struct {
	strata   [receipt.Strata]stratumReviews // from receipt.Deferred on
	exceeded *sharded.Counter
}

type stratumReviews struct{ eligible, reviews, propensity *sharded.Counter }

// model creates the series of a model, or finds those that exist.
func (f *reviews) model(p *policy.Policy, o *Options) *modelReviews {
	if !o.Receipts {
		return nil
	}
	m := &modelReviews{exceeded: f.exceeded.With(p.Name)}
	for s := receipt.Deferred; s < receipt.Strata; s++ {
		name := s.String()
		m.strata[s] = stratumReviews{
			f.eligible.With(p.Name, name), f.reviews.With(p.Name, name), f.propensity.With(p.Name, name),
		}
	}
	return m
}

// ObserveReview counts an input whose client takes receipts, and that Observe or ObserveUnsampled has
// counted. The propensity is that of being drawn for a review.
func (r *Recorder) ObserveReview(s receipt.Stratum, review, exceeded bool, propensity float64) {
	m := r.model.reviews
	if m == nil || m.strata[s].eligible == nil {
		return
	}
	n := &m.strata[s]
	*n.eligible.Part(r.shard)++
	*n.propensity.Part(r.shard) += propensity
	if review {
		*n.reviews.Part(r.shard)++
	}
	if exceeded {
		*m.exceeded.Part(r.shard)++
	}
}
