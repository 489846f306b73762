// Command outside evaluates and calibrates with arrays of its own, as a program of another module
// does.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

func main() {
	ctx := context.Background()
	recording := made(30, 600)
	draft := policy.Draft{Name: "outside", Classes: []string{"healthy", "ill"}, Critical: []string{"ill"}, Gate: policy.Never}
	base, err := policy.Build(draft)
	if err != nil {
		log.Fatal(err)
	}
	table, err := eval.NewTable(ctx, recording, decomp.Spec{Critical: base.Critical, Safe: base.Safe}, nil)
	if err != nil {
		log.Fatal(err)
	}
	report, err := eval.Evaluate(ctx, table, recording.Labels, eval.Options{
		Classes: base.Classes, Reliability: base.ReliabilityThreshold, Coverage: 0.8,
	})
	if err != nil {
		log.Fatal(err)
	}
	found, err := calibrate.Run(ctx, recording, calibrate.Options{
		Base: base, Objective: calibrate.Objective{Coverage: 0.8}, Scope: policy.AllInputs, Seed: 1,
	})
	if err != nil {
		log.Fatal(err)
	}
	if found, err = calibrate.LearnEarlyStop(ctx, recording, calibrate.EarlyStopOptions{
		Base: found.Policy, Disagreement: 0.05, Confidence: 0.9, Seed: 1,
	}); err != nil {
		log.Fatal(err)
	}
	if found.Refused() || found.Policy.Hash != found.PolicyHash || found.Policy.EarlyStop() == nil {
		log.Fatalf("refused %v, policy %+v", found.Refused(), found.Policy)
	}
	decisions, err := eval.Decide(ctx, recording, found.Policy, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d inputs, %d decisions, policy %s with %d bytes\n", report.Summary.Inputs, len(decisions), found.Policy.Name,
		len(found.PolicyText))
}

// made returns a recording of two classes as [passes][inputs][classes], whose labels follow the
// mean of the passes.
func made(passes, inputs int) eval.Recording {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]float32, passes*inputs*2)
	labels := make([]int, inputs)
	for i := range inputs {
		ill := rng.Float32()
		if rng.Float32() < ill {
			labels[i] = 1
		}
		for s := range passes {
			p := min(max(ill+0.2*float32(rng.NormFloat64()), 0.01), 0.99)
			at := (s*inputs + i) * 2
			values[at], values[at+1] = 1-p, p
		}
	}
	return eval.Recording{
		Name: "made", Classes: 2, Labels: labels,
		Passes: decomp.Tensor{Passes: passes, Inputs: inputs, Float32: values},
	}
}
