package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/outcome/audit"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

const suffix = ".passes.npy"

// A study is one policy on the traffic of one recording.
type study struct {
	name      string
	policy    *policy.Policy
	table     *eval.Table
	decisions []policy.Decision
	traffic   *traffic // with the default audits
}

// audited is the share of the audit rate that does not follow the risk.
type audited float64

const (
	mixed   audited = 0.5
	uniform audited = 1
)

// studyOf reads a recording, and fixes a policy of score entropy and coverage 0.8 on a random half.
func (b *bench) studyOf(file string) (*study, error) {
	base := strings.TrimSuffix(file, suffix)
	passes, err := record.ReadPasses(file, record.Options{})
	if err != nil {
		return nil, err
	}
	labels, err := record.ReadLabels(base + ".labels.npy")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(base + ".json")
	if err != nil {
		return nil, err
	}
	var about struct {
		Classes        []string
		Critical, Safe []int
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return nil, fmt.Errorf("%s.json: %w", base, err)
	}
	names := func(classes []int) (names []string) {
		for _, k := range classes {
			names = append(names, about.Classes[k])
		}
		return names
	}
	draft := policy.Draft{
		Name: "bench", Classes: about.Classes, Critical: names(about.Critical), Safe: names(about.Safe),
		FewestPasses: 2, Saturated: policy.HandleByScore, Degenerate: policy.HandleByScore,
		Gate: policy.Never, Scope: policy.PredictedSafe, Primary: policy.Rule{Score: policy.Entropy},
	}
	whole, err := policy.Build(draft)
	if err != nil {
		return nil, err
	}
	recording := eval.Recording{Name: file, Classes: passes.K, Labels: labels, Passes: decomp.Tensor{
		Passes: passes.S, Inputs: passes.N, Float32: passes.Float32, Float64: passes.Float64,
	}}
	t, err := eval.NewTable(context.Background(), recording, engine.Spec(whole), nil)
	if err != nil {
		return nil, err
	}
	order := rand.New(rand.NewPCG(b.seed, 1)).Perm(t.Inputs)
	first, second := order[:t.Inputs/2], order[t.Inputs/2:]
	firstLabels := make([]int, len(first))
	for j, i := range first {
		firstLabels[j] = labels[i]
	}
	calibration := t.Select(first)
	fit, err := calibrate.FitRisk(calibration, firstLabels, calibrate.RiskOptions{Seed: b.seed})
	if err != nil {
		return nil, err
	}
	draft.Risk = fit.Risk
	draft.Audit = &policy.Audit{Rate: b.rate, M: float64(mixed), PredictedCritical: policy.CriticalFree}
	threshold, meanRoot := fixed(calibration, fit.Risk, 0.8)
	draft.Primary = policy.Rule{Score: policy.Entropy, Threshold: threshold, HasThreshold: true}
	draft.Calibration = &policy.Calibration{MeanRootRisk: meanRoot}
	s := &study{name: filepath.Base(base), table: t}
	if s.policy, err = policy.Build(draft); err != nil {
		return nil, err
	}
	if s.decisions, err = eval.Decide(context.Background(), recording, s.policy, nil); err != nil {
		return nil, err
	}
	s.traffic = trafficOf(s, labels, second)
	return s, nil
}

// fixed returns the threshold for a coverage of all inputs in scope predicted-safe, and the mean of
// the square root of the risk over the inputs retained and called safe.
func fixed(t *eval.Table, risk *policy.Risk, coverage float64) (threshold, meanRoot float64) {
	risks := make([]float64, t.Inputs)
	if risk != nil {
		risks = calibrate.Risks(t, risk)
	}
	values := t.Scores[decomp.Entropy]
	var called []float64
	for i, predicted := range t.Predicted {
		if !slices.Contains(t.Spec.Critical, predicted) {
			called = append(called, values[i])
		}
	}
	kept := float64(t.Inputs - len(called))
	threshold = eval.Threshold(called, max((coverage*float64(t.Inputs)-kept)/float64(len(called)), 0.01))
	n := 0.0
	for i, predicted := range t.Predicted {
		if !slices.Contains(t.Spec.Critical, predicted) && values[i] <= threshold {
			meanRoot += math.Sqrt(risks[i])
			n++
		}
	}
	return threshold, meanRoot / max(n, 1)
}

// trafficOf returns the traffic of some inputs under the study's policy.
func trafficOf(s *study, labels, inputs []int) *traffic {
	risks := make([]float64, s.table.Inputs)
	if s.policy.Risk != nil {
		risks = calibrate.Risks(s.table, s.policy.Risk)
	}
	t := &traffic{}
	for _, i := range inputs {
		in := input{
			row: i, retained: s.decisions[i].Action == policy.Retain, risk: math.NaN(),
			calledSafe: !slices.Contains(s.policy.Critical, s.table.Predicted[i]), class: labels[i],
			critical: slices.Contains(s.policy.Critical, labels[i]),
		}
		if s.policy.Risk != nil {
			in.risk = risks[i]
		}
		t.inputs, t.weights = append(t.inputs, in), append(t.weights, 1)
	}
	return t.audited(s.policy, s.policy.Audit)
}

// with returns the study's traffic under other audits, with their least propensities.
func (s *study) with(a audited) (*traffic, policy.Audit) {
	settings := *s.policy.Audit
	settings.M = float64(a)
	return s.traffic.audited(s.policy, &settings), settings
}

// audited returns the traffic under other settings of audits, before any cap.
func (t *traffic) audited(p *policy.Policy, a *policy.Audit) *traffic {
	under := *p
	under.Audit = a
	plan := audit.NewPlan(&under)
	r := &traffic{inputs: slices.Clone(t.inputs), weights: t.weights}
	for i := range r.inputs {
		in := &r.inputs[i]
		stratum := audit.Stratum(s2d(in.retained), !in.calledSafe)
		in.propensity = float64(float32(plan.Propensity(stratum, in.risk)))
		in.paid = in.retained && (in.calledSafe || a.PredictedCritical != policy.CriticalFree)
	}
	return r
}

// s2d returns the decision that leads to the stratum.
func s2d(retained bool) policy.Decision {
	if retained {
		return policy.Decision{Action: policy.Retain}
	}
	return policy.Decision{Action: policy.Defer}
}
