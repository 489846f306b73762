package calibrate_test

import (
	"context"
	"fmt"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
)

// Labelled passes of a model give a policy that retains 80% of the inputs.
func ExampleRun() {
	recording, err := recordings.CTGMCDropout() // elsewhere, your own arrays
	if err != nil {
		fmt.Println(err)
		return
	}
	base, err := policy.Build(policy.Policy{
		Name: "fetal-health", Classes: recording.Classes, Critical: []int{1, 2},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := calibrate.Run(context.Background(), eval.Recording{
		Classes: len(recording.Classes), Labels: recording.Labels,
		Passes: decomp.Tensor{Passes: recording.Passes.S, Inputs: recording.Passes.N, Float32: recording.Passes.Float32},
	}, calibrate.Options{Base: base, Objective: calibrate.Objective{Coverage: 0.8}, Scope: policy.AllInputs, Seed: 42})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %d of %d critical inputs are missed without deferral\n", report.Objective, report.Missed, report.Critical)
	fmt.Printf("expected: coverage %.1f\n", report.Expected.Coverage)
	// Output:
	// coverage 0.8: 85 of 471 critical inputs are missed without deferral
	// expected: coverage 0.8
}
