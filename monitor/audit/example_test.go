package audit_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/ckd-project/ckd/monitor/audit"
)

// A rule is certified to decide at most 1% of inputs differently from all 30 passes. It stops after
// 7 passes; 0.4% disagree at first, and 4% from input 200000 on.
func Example() {
	sampler := audit.NewSampler(1)
	watch, err := audit.NewWatch(audit.Options{Disagreement: 0.01})
	if err != nil {
		panic(err)
	}
	rng, passes, inputs, verdicts := rand.New(rand.NewPCG(1, 2)), 0, 0, uint64(0)
	for n := uint64(0); watch.State() == audit.Running; n++ {
		disagree := 0.004
		if n >= 200_000 {
			disagree = 0.04
		}
		inputs++
		if !sampler.Audits(n, verdicts, watch.Wary()) {
			passes += 7
			continue
		}
		passes += 30
		verdicts++
		verdict := audit.SameRetain
		if rng.Float64() < disagree {
			verdict = audit.WronglyDeferred
		}
		if watch.Add(verdict) {
			fmt.Printf("input %d: %+v\n", n, *watch.Status().Stop)
		}
	}
	s := watch.Status()
	fmt.Printf("%d of %d audits disagree: %.2f%% to %.2f%%\n", s.All.Disagreements, s.All.Audited, 100*s.All.Low, 100*s.All.High)
	fmt.Printf("%.1f times fewer passes\n", 30*float64(inputs)/float64(passes))
	// Output:
	// input 201179: {Retained:false Audited:4566 Recent:{Audited:187 Disagreements:10}}
	// 29 of 4566 audits disagree: 0.31% to 1.12%
	// 4.0 times fewer passes
}

// Of 1000 audited inputs 4 were decided otherwise than by all passes. The interval holds however often
// it is looked at.
func ExampleInterval() {
	low, high := audit.Interval(4, 1000, 0.95)
	fmt.Printf("%.2f%% to %.2f%%\n", 100*low, 100*high)
	low, high = audit.Interval(0, 1000, 0.95)
	fmt.Printf("%.2f%% to %.2f%%\n", 100*low, 100*high)
	// Output:
	// 0.03% to 1.47%
	// 0.00% to 0.50%
}

// The first inputs are all audited; then the number of an input alone decides.
func ExampleSampler_Audits() {
	s := audit.NewSampler(1)
	audited := 0
	for n := range uint64(10_000) {
		if s.Audits(n, 400, false) {
			audited++
		}
	}
	fmt.Println(s.Audits(0, 399, false), audited)
	// Output:
	// true 200
}
