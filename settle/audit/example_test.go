package audit_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/ckd-project/ckd/settle/audit"
)

// A rule is certified to decide at most 1% of inputs otherwise than all 30 passes do. It
// settles after 7 passes; 0.4% disagree at first, and 4% from input 200000 on.
func Example() {
	sampler := audit.NewSampler(1)
	watch, err := audit.NewWatch(audit.Options{Disagreement: 0.01})
	if err != nil {
		panic(err)
	}
	rng, passes, inputs, verdicts := rand.New(rand.NewPCG(1, 2)), 0, 0, uint64(0)
	for n := uint64(0); watch.State() == audit.Settling; n++ {
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
