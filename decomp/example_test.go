package decomp_test

import (
	"fmt"
	"log"

	"github.com/ckd-project/ckd/decomp"
)

// newPlan returns a plan of three classes: one safe, two critical.
func newPlan(kind decomp.Kind) *decomp.Plan {
	plan, err := decomp.NewPlan(decomp.Spec{Classes: 3, Safe: []int{0}, Critical: []int{1, 2}, Kind: kind})
	if err != nil {
		log.Fatal(err)
	}
	return plan
}

// Two inputs have four passes each. The passes of the first agree; those of the second change sides
// between the safe class 0 and the critical class 1.
func Example() {
	plan := newPlan(decomp.Probabilities)
	b, r := plan.NewBatch(), plan.NewResult()
	err := b.Reset(decomp.Tensor{Passes: 4, Inputs: 2, Layout: decomp.NSK, Float64: []float64{
		0.90, 0.06, 0.04,
		0.88, 0.08, 0.04,
		0.91, 0.05, 0.04,
		0.89, 0.07, 0.04,

		0.80, 0.15, 0.05,
		0.20, 0.75, 0.05,
		0.75, 0.20, 0.05,
		0.15, 0.80, 0.05,
	}})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 2 {
		if err := b.Result(i, r); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("input %d: C = %.4f nats, c_crit_max %.4f by class %d, cbec %.4f\n",
			i, r.C, r.Scores[decomp.CCritMax], r.CCritMaxClass, r.Scores[decomp.CBEC])
	}
	// Output:
	// input 0: C = [0.0001 0.0013 0.0000] nats, c_crit_max 0.0013 by class 1, cbec 0.0003
	// input 1: C = [0.1272 0.1272 0.0000] nats, c_crit_max 0.1272 by class 1, cbec 0.1272
}

// Passes come one by one, of several inputs in turn.
func ExampleAccumulator() {
	plan := newPlan(decomp.Probabilities)
	passes := [][][]float32{ // by pass and input
		{{0.8, 0.1, 0.1}, {0.3, 0.6, 0.1}},
		{{0.7, 0.2, 0.1}, {0.6, 0.3, 0.1}},
		{{0.8, 0.1, 0.1}, {0.2, 0.7, 0.1}},
	}
	a := decomp.NewAccumulator[float32](plan, 2, plan.KeptPasses(len(passes)))
	b, r := plan.NewBatch(), plan.NewResult()
	for _, rows := range passes {
		for input, row := range rows {
			if err := a.Add(b, input, row); err != nil {
				log.Fatal(err)
			}
		}
	}
	if err := a.Finish(b, 0, 2); err != nil {
		log.Fatal(err)
	}
	for input := range 2 {
		if err := b.Result(input, r); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("input %d: %d passes, predicts class %d, MI %.4f nats\n", input, r.Passes, r.Predicted, r.MI)
	}
	// Output:
	// input 0: 3 passes, predicts class 0, MI 0.0093 nats
	// input 1: 3 passes, predicts class 1, MI 0.0675 nats
}
