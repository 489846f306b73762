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
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
)

//go:embed policy.yaml.tmpl
var policyText string

var policyTemplate = template.Must(template.New("policy.yaml").Parse(policyText))

const (
	modelName = "fetal-health"
	// coverage is the share of inputs that each threshold retains of those
	// tuning inputs that the gate routes to its score.
	coverage = 0.8
	// The permutation whose first half is for tuning, and in words.
	seed1, seed2     = 2026, 1
	permutationWords = "math/rand/v2, rand.New(rand.NewPCG(2026, 1)).Perm(N): first half tunes, second half is shown"
)

// split divides the inputs into those that tune the thresholds and those shown,
// each in the order of the recording.
func split(n int) (tuning, shown []int) {
	perm := rand.New(rand.NewPCG(seed1, seed2)).Perm(n)
	tuning, shown = perm[:n/2], perm[n/2:]
	slices.Sort(tuning)
	slices.Sort(shown)
	return tuning, shown
}

// thresholds of the two scores, as YAML numbers; empty for none.
type thresholds struct{ Primary, Fallback string }

// parsePolicy fills the policy's template.
func parsePolicy(t thresholds) (*policy.Set, error) {
	var text bytes.Buffer
	if err := policyTemplate.Execute(&text, t); err != nil {
		return nil, err
	}
	return policy.Parse(policy.File{Name: "demo policy", Data: text.Bytes()})
}

// tune sets each threshold to the quantile of its score among the tuning inputs
// that the gate routes to it. Labels play no part.
func tune(r *recordings.Recording, tuning []int) (*policy.Set, error) {
	observing, err := parsePolicy(thresholds{})
	if err != nil {
		return nil, err
	}
	p, ok := observing.Get(modelName)
	if !ok {
		return nil, fmt.Errorf("the demo's policy has no model %q", modelName)
	}
	model, err := engine.New(p)
	if err != nil {
		return nil, err
	}
	batch, outcome := model.NewBatch(), model.NewOutcome()
	if err := batch.Reset(decomp.Tensor{Passes: r.Passes.S, Inputs: r.Passes.N, Float32: r.Passes.Float32}); err != nil {
		return nil, err
	}
	routed := map[policy.GateOutcome][]float64{}
	for _, i := range tuning {
		if err := batch.Outcome(i, outcome); err != nil {
			return nil, fmt.Errorf("input %d: %w", i, err)
		}
		d := &outcome.Decision
		routed[d.Gate] = append(routed[d.Gate], d.Value)
	}
	quantile := func(by policy.GateOutcome) (string, error) {
		if len(routed[by]) == 0 {
			return "", fmt.Errorf("no tuning input was routed to the %s score", by)
		}
		return strconv.FormatFloat(eval.Threshold(routed[by], coverage), 'g', -1, 64), nil
	}
	var t thresholds
	if t.Primary, err = quantile(policy.ByPrimary); err != nil {
		return nil, err
	}
	if t.Fallback, err = quantile(policy.ByFallback); err != nil {
		return nil, err
	}
	return parsePolicy(t)
}
