package fullpass_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/ckd-project/ckd/internal/monitor/fullpass"
)

// A rule is certified to decide at most 1% of inputs differently from all 30 passes. It stops after
// 7 passes; 0.4% disagree at first, and 4% from input 200000 on.
func Example() {
	sampler := fullpass.NewSampler(1)
	watch, err := fullpass.NewWatch(fullpass.Options{Disagreement: 0.01})
	if err != nil {
		panic(err)
	}
	rng, passes, inputs, verdicts := rand.New(rand.NewPCG(1, 2)), 0, 0, uint64(0)
	for n := uint64(0); !watch.Stopped(); n++ {
		disagree := 0.004
		if n >= 200_000 {
			disagree = 0.04
		}
		inputs++
		if !sampler.Checks(n, verdicts, watch.Wary()) {
			passes += 7
			continue
		}
		passes += 30
		verdicts++
		verdict := fullpass.SameRetain
		if rng.Float64() < disagree {
			verdict = fullpass.WronglyDeferred
		}
		if watch.Add(verdict) {
			fmt.Printf("input %d: %+v\n", n, *watch.Status().Stop)
		}
	}
	s := watch.Status()
	fmt.Printf("%d of %d checks disagree: %.2f%% to %.2f%%\n", s.All.Disagreements, s.All.Checked, 100*s.All.Low, 100*s.All.High)
	fmt.Printf("%.1f times fewer passes\n", 30*float64(inputs)/float64(passes))
	// Output:
	// input 201179: {Retained:false Checked:4566 Recent:{Checked:187 Disagreements:10}}
	// 29 of 4566 checks disagree: 0.31% to 1.12%
	// 4.0 times fewer passes
}
