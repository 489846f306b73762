package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"text/template"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
)

//go:embed policy.yaml.tmpl
var policyText string

// settleText is the policy's block with the early-stopping rule: see TestGenerated.
//
//go:embed settle.yaml
var settleText string

var policyTemplate = template.Must(template.New("policy.yaml").Parse(policyText))

const (
	modelName = "fetal-health"
	// coverage is the share of inputs that each threshold retains of those
	// tuning inputs that the gate routes to its score.
	coverage = 0.8
	// alarmAbove is the critical FNR of the retained that outcomes are held against, as a person might
	// set it with ckd calibrate --alarm-above.
	alarmAbove = 0.12
	// The permutation whose first half is for tuning.
	seed1, seed2 = 2026, 1
)

// split divides the inputs into those that tune the thresholds and those shown. It shuffles them
// first: neighbours in the recording often come from one patient, and would look like drift.
func split(n int) (tuning, shown []int) {
	perm := rand.New(rand.NewPCG(seed1, seed2)).Perm(n)
	tuning, shown = perm[:n/2], perm[n/2:]
	slices.Sort(tuning)
	return tuning, shown
}

// settings holds what the policy's template leaves open, as YAML: the thresholds of the two scores,
// and the block of the early-stopping rule. Each may be empty.
type settings struct{ Primary, Fallback, Settle string }

// parsePolicy fills in the policy's template and parses the result.
func parsePolicy(t settings) (*policy.Set, error) {
	var text bytes.Buffer
	if err := policyTemplate.Execute(&text, t); err != nil {
		return nil, err
	}
	return policy.Parse(policy.File{Name: "demo policy", Data: text.Bytes()})
}

// tune sets each threshold to the quantile of its score among the tuning inputs that the gate
// routes to it. It does not use labels. The policy also records what it retains of these inputs, what
// it misses of them by their labels, and how they are distributed, so that the daemon can compare
// live inputs and outcomes. settle is the YAML block of
// the early-stopping rule, or empty.
func tune(r *recordings.Recording, tuning []int, settle string) (*policy.Set, error) {
	observing, err := parsePolicy(settings{})
	if err != nil {
		return nil, err
	}
	routed := map[policy.GateOutcome][]float64{}
	if err := decide(observing, r, tuning, func(o *engine.Outcome) {
		routed[o.Decision.Gate] = append(routed[o.Decision.Gate], o.Decision.Value)
	}); err != nil {
		return nil, err
	}
	quantile := func(gate policy.GateOutcome) (string, error) {
		if len(routed[gate]) == 0 {
			return "", fmt.Errorf("no tuning input was routed to the %s score", gate)
		}
		return strconv.FormatFloat(eval.Threshold(routed[gate], coverage), 'g', -1, 64), nil
	}
	t := settings{Settle: settle}
	if t.Primary, err = quantile(policy.ByPrimary); err != nil {
		return nil, err
	}
	if t.Fallback, err = quantile(policy.ByFallback); err != nil {
		return nil, err
	}
	tuned, err := parsePolicy(t)
	if err != nil {
		return nil, err
	}
	var seen drift.Sample
	var labels, predicted []int
	var retained []bool
	if err := decide(tuned, r, tuning, func(o *engine.Outcome) {
		seen.Add(o.C, o.Skewness, o.Predicted)
		labels, predicted = append(labels, r.Labels[tuning[len(labels)]]), append(predicted, o.Predicted)
		retained = append(retained, o.Decision.Action == policy.Retain)
	}); err != nil {
		return nil, err
	}
	s := eval.Select(labels, predicted, retained, r.Critical)
	p, _ := tuned.Get(modelName)
	described := *p
	described.Calibration = &policy.Calibration{
		Software: "ckd demo", PolicyHash: p.Hash, Posterior: "mc-dropout",
		Objective:           "each score retains 0.8 of the tuning inputs that the gate routes to it; labels play no part in it",
		Recording:           policy.Recording{Inputs: len(tuning), Passes: r.Passes.S},
		ExpectedCoverage:    shareOf(s.Retained, s.Inputs),
		ExpectedCriticalFNR: shareOf(s.Missed, s.Critical), Lines: &policy.Lines{CriticalFNR: alarmAbove},
		Reference: seen.Reference(),
	}
	return policy.Parse(policy.File{Name: "demo policy", Data: described.Marshal()})
}

// shareOf returns a share with its 95% interval.
func shareOf(events, total int) *policy.Interval {
	low, high := binomial.Interval(events, total, 0.95)
	return &policy.Interval{Value: float64(events) / float64(total), Low: low, High: high}
}

// decide decides some inputs of a recording by the demo's policy.
func decide(set *policy.Set, r *recordings.Recording, inputs []int, each func(*engine.Outcome)) error {
	p, ok := set.Get(modelName)
	if !ok {
		return fmt.Errorf("the demo's policy has no model %q", modelName)
	}
	model, err := engine.New(p)
	if err != nil {
		return err
	}
	batch, outcome := model.NewBatch(), model.NewOutcome()
	if err := batch.Reset(decomp.Tensor{Passes: r.Passes.S, Inputs: r.Passes.N, Float32: r.Passes.Float32}); err != nil {
		return err
	}
	for _, i := range inputs {
		if err := batch.Outcome(i, outcome); err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
		each(outcome)
	}
	return nil
}
