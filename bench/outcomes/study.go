package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ckd-project/ckd/bench/internal/labelled"
	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/outcome/audit"
	"github.com/ckd-project/ckd/policy"
)

// study holds a policy and the traffic that it decides, of one recording.
type study struct {
	*labelled.Recording
	policy  *policy.Policy
	traffic *traffic // with the default audits
}

// audited holds the part of the audit rate that is the same at every risk, as a share.
type audited float64

const (
	mixed   audited = 0.5
	uniform audited = 1
)

// newStudy fixes a policy of score entropy and coverage 0.8 on a random half of a recording; the
// other half is its traffic.
func newStudy(r *labelled.Recording) (*study, error) {
	const coverage = 0.8
	order := rand.New(rand.NewPCG(seed, 1)).Perm(r.Table.Inputs)
	half, labels := r.Take(order[:r.Table.Inputs/2])
	calibrated, err := calibrate.Choose(context.Background(), half, labels, calibrate.Options{
		Base: r.Base, Scope: policy.PredictedSafe, Objective: calibrate.Objective{Coverage: coverage}, Seed: seed, Force: true,
	})
	if err != nil {
		return nil, err
	}
	draft := r.Base.Draft()
	draft.Scope, draft.Degenerate, draft.Risk = policy.PredictedSafe, policy.HandleByScore, calibrated.Policy.Risk
	draft.Audit = &policy.Audit{Rate: auditRate, M: float64(mixed), PredictedCritical: policy.CriticalFree}

	var entropies, risks []float64 // of the inputs called safe
	for i, predicted := range half.Predicted {
		if !r.IsCritical(predicted) {
			entropies, risks = append(entropies, half.Scores[decomp.Entropy][i]), append(risks, riskOf(draft.Risk, half, i))
		}
	}
	kept := float64(half.Inputs - len(entropies))
	threshold := eval.Threshold(entropies, max((coverage*float64(half.Inputs)-kept)/float64(len(entropies)), 0.01))
	draft.Primary = policy.Rule{Score: policy.Entropy, Threshold: threshold, HasThreshold: true}
	draft.Calibration = &policy.Calibration{}
	n := 0.0
	for i, v := range entropies {
		if v <= threshold && draft.Risk != nil {
			draft.Calibration.MeanRootRisk += math.Sqrt(risks[i])
			n++
		}
	}
	draft.Calibration.MeanRootRisk /= max(n, 1)

	s := &study{Recording: r, traffic: &traffic{}}
	if s.policy, err = policy.Build(draft); err != nil {
		return nil, err
	}
	decisions, err := eval.Decide(context.Background(), r.Recording, s.policy, nil)
	if err != nil {
		return nil, err
	}
	for _, i := range order[r.Table.Inputs/2:] {
		s.traffic.inputs = append(s.traffic.inputs, input{
			retained: decisions[i].Action == policy.Retain, risk: riskOf(draft.Risk, r.Table, i), class: r.Labels[i],
			calledSafe: !r.IsCritical(r.Table.Predicted[i]), critical: r.IsCritical(r.Labels[i]), weight: 1,
		})
	}
	s.traffic, _ = s.audited(mixed)
	return s, nil
}

// riskOf returns the risk of an input; NaN without a model, and for an input called critical.
func riskOf(model *policy.Risk, t *eval.Table, i int) float64 {
	if model == nil || slices.Contains(t.Spec.Critical, t.Predicted[i]) {
		return math.NaN()
	}
	return model.CalledSafe.Probability(t.Scores[decomp.PCritical][i])
}

// audited returns the study's traffic under other audits, before any cap, with the settings of these.
func (s *study) audited(a audited) (*traffic, policy.Audit) {
	settings := *s.policy.Audit
	settings.M = float64(a)
	under := *s.policy
	under.Audit = &settings
	plan := audit.NewPlan(&under)
	t := &traffic{slices.Clone(s.traffic.inputs)}
	for i := range t.inputs {
		in := &t.inputs[i]
		decision := policy.Decision{Action: policy.Defer}
		if in.retained {
			decision.Action = policy.Retain
		}
		in.propensity = float64(float32(plan.Propensity(audit.Stratum(decision, !in.calledSafe), in.risk)))
		in.paid = in.retained && in.calledSafe // the workflow looks at all that are called critical
	}
	return t, settings
}
