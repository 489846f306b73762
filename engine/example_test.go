package engine_test

import (
	"fmt"
	"log"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
)

func examplePolicy() *policy.Policy {
	p, err := policy.Build(policy.Policy{
		Name: "lesions", Classes: []string{"benign", "malignant"}, Critical: []int{1},
		Gate: policy.Never, FewestPasses: 2, Primary: policy.Rule{Score: policy.CCritMax, Threshold: 0.05},
	})
	if err != nil {
		log.Fatal(err)
	}
	return p
}

// Complete passes, as a recording has them, are decided by a Batch.
func Example() {
	model, err := engine.New(examplePolicy())
	if err != nil {
		log.Fatal(err)
	}
	batch, outcome := model.NewBatch(), model.NewOutcome()
	err = batch.Reset(decomp.Tensor{Passes: 2, Inputs: 2, Float32: []float32{
		0.98, 0.02 /**/, 0.9, 0.1,
		0.97, 0.03 /**/, 0.3, 0.7,
	}})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 2 {
		if err := batch.Outcome(i, outcome); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, c_crit_max %.4f\n", outcome.Decision.Action, outcome.Decision.Value)
	}
	// Output:
	// retain, c_crit_max 0.0010
	// defer, c_crit_max 0.2250
}

// printed prints how inputs end. It implements engine.Answers.
type printed struct{}

func (printed) Begin(int) error { return nil } // there is always room
func (printed) End()            {}
func (printed) Close(input int, c *engine.Closing) {
	if c.Err != nil {
		fmt.Println(input, "failed:", c.Err)
		return
	}
	fmt.Println(input, c.Decision.Action, "after", c.Passes, "passes")
}

// Passes that come one by one go into a Group, which decides on each input after its last.
func ExampleGroup_Feed() {
	model, err := engine.New(examplePolicy())
	if err != nil {
		log.Fatal(err)
	}
	opening := model.Prepare(engine.Options{Passes: 2})
	group, batch := opening.Open(2), model.NewBatch()
	defer group.Release()
	for _, pass := range [][]float32{{0.98, 0.02, 0.9, 0.1}, {0.97, 0.03, 0.3, 0.7}} {
		group.Feed(batch, &engine.Block{Passes: 1, Values: &floats{pass}}, printed{})
	}
	// Output:
	// 0 retain after 2 passes
	// 1 defer after 2 passes
}
