package evidence_test

import (
	"fmt"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
)

// A tenth of the critical inputs that are retained were missed so far. Inputs called critical are
// all worked up; of those called safe one in fifty is audited.
func Example() {
	alarm := evidence.NewAlarm(evidence.FNR, 0.15, 1e6)
	sequence := evidence.NewSequence(evidence.FNR, 0.95)
	alarm.BeginCohort(1) // the least propensity of a hit
	sequence.BeginCohort(1, 1./50)

	observe := func(missed bool) {
		o := evidence.Observation{Retained: true, Critical: true, Missed: missed, Propensity: 1}
		if missed {
			o.Propensity = 1. / 50
		}
		alarm.Observe(o)
		sequence.Observe(o)
	}
	// One audited miss stands for fifty inputs: 450 hits with it are an FNR of a tenth.
	for i := range 45_100 {
		observe(i%451 == 450)
	}
	estimate := sequence.Estimate()
	low, high := sequence.Interval()
	fmt.Printf("estimate %.3f, from %.2f to %.2f; alarm %v\n", estimate.Value(), low, high, alarm.Raised())

	// Now a quarter of them is missed.
	steps := alarm.Steps()
	for !alarm.Raised() {
		observe((alarm.Steps()-steps)%151 == 150)
	}
	fmt.Printf("alarm after %d critical outcomes, %d of them missed\n", alarm.Steps()-steps, (alarm.Steps()-steps)/151)
	// Output:
	// estimate 0.100, from 0.07 to 0.13; alarm false
	// alarm after 7701 critical outcomes, 51 of them missed
}
