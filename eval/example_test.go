package eval_test

import (
	"context"
	"fmt"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// Two passes of four inputs over two classes. Class 1 is critical; the last input is critical, and
// the model calls it safe while its passes disagree.
func Example() {
	recording := eval.Recording{
		Name: "example", Classes: 2, Labels: []int{0, 0, 1, 1},
		Passes: decomp.Tensor{Passes: 2, Inputs: 4, Float64: []float64{
			.9, .1 /**/, .8, .2 /**/, .1, .9 /**/, .9, .1,
			.9, .1 /**/, .7, .3 /**/, .2, .8 /**/, .4, .6,
		}},
	}
	if err := recording.CheckLabels(); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	table, err := eval.NewTable(ctx, recording, decomp.Spec{Critical: []int{1}, Safe: []int{0}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := eval.Evaluate(ctx, table, recording.Labels, eval.Options{Coverage: 0.75})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("missed without deferral: %d of %d\n", report.Summary.Missed, report.Summary.Critical)
	for _, row := range report.Policies {
		if row.Name == "mi" && row.Scope == "all" {
			fmt.Printf("missed when a quarter is deferred: %v of %v\n", row.CriticalMissed, row.CriticalRetained)
		}
	}
	// Output:
	// missed without deferral: 1 of 2
	// missed when a quarter is deferred: 0 of 1
}
