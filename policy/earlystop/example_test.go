package earlystop_test

import (
	"fmt"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// This rule looks only at how far the deciding score is from its threshold: after the second of
// three passes, it decides an input whose score is a seventh of the threshold or less.
func ExampleRule_Settled() {
	step := earlystop.NoStep()
	step.Retain.AtMost = -2
	step.Retain.Coefficients[1+earlystop.Own] = 1
	rule := earlystop.Rule{Passes: 3, Fewest: 2, Steps: []earlystop.Step{step}}

	var far, near earlystop.Statistics
	far.Values[earlystop.Own] = -3
	near.Values[earlystop.Own] = -1
	for _, x := range []*earlystop.Statistics{&far, &near} {
		action, _ := rule.Settled(2, x)
		fmt.Println(action == earlystop.Retain)
	}
	// Output:
	// true
	// false
}
