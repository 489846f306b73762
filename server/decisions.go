package server

import (
	"cmp"
	"math"
	"math/rand/v2"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// decisions hands decisions to the decision log.
type decisions struct {
	log *decisionlog.Log
	key *receipt.DrawKey // hashes ids while there are no keys of receipts
}

// newDecisions returns what hands decisions to a log; nil for none.
func newDecisions(log *decisionlog.Log) *decisions {
	if log == nil {
		return nil
	}
	return &decisions{log, receipt.NewDrawKey()}
}

// setPolicies tells the log, if there is one, which policies are in force.
func (d *decisions) setPolicies(all models) {
	if d == nil {
		return
	}
	var policies []decisionlog.Policy
	for _, m := range all.sorted() {
		policies = append(policies, decisionlog.PolicyOf(m.Policy()))
	}
	d.log.SetPolicies(policies)
}

// keep hands the log a decision as it was answered, or counts it as left out where the policy asks for no
// record of it.
func (a *answerer) keep(m *model, id []byte, c *engine.Closing, drawn *issued) {
	d, o, p := a.decider.decisions, c.Outcome, m.Policy()
	key := d.key
	if sealer := a.issuer.from.sealer.Load(); sealer != nil {
		key = sealer.DrawKey()
	}
	share := 1.0
	toReview := drawn.Review || o.Decision.Action == policy.Defer
	if !toReview {
		share = p.Log.Share()
		if share < 1 && !sampled(key, id, share) {
			d.log.LeaveOut()
			return
		}
	}
	r := decisionlog.Record{
		Time: a.now, Model: p.Name, ModelVersion: cmp.Or(a.issuer.version, p.Version), PolicyHash: p.Hash,
		Decision: &o.Decision, Classes: p.Classes, Predicted: o.Predicted, Stratum: drawn.Stratum.String(),
		Scores: &o.Scores, Risk: o.Risk, Passes: o.Passes, Settled: c.Early, Review: drawn.Review,
		Propensity: math.NaN(), Share: share, Trace: a.trace,
	}
	if drawn.eligible {
		r.Propensity = float64(drawn.Propensity)
	}
	if l := p.Log; l != nil {
		switch l.ID {
		case policy.LogPlainID:
			r.ID = id
		case policy.LogHashID:
			r.IDHash = key.ID(id)
		}
		if l.Vectors && toReview {
			r.Mean, r.C, r.Skewness = o.Mean, o.C, o.Skewness
		}
	}
	d.log.Add(&r)
}

// sampled reports whether an input belongs to a share of all, by the hash of its id, or at random where it
// has none.
func sampled(key *receipt.DrawKey, id []byte, share float64) bool {
	if share <= 0 {
		return false
	}
	hash := key.Sample(id)
	if hash == 0 {
		hash = rand.Uint64()
	}
	return float64(hash>>11)/(1<<53) < share
}
