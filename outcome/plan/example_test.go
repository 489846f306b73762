package plan_test

import (
	"context"
	"fmt"

	"github.com/ckd-project/ckd/outcome/plan"
	"github.com/ckd-project/ckd/policy"
)

// What two audit rates cost, and how soon each shows that twice as many critical inputs are missed
// as the policy's line allows.
func Example() {
	p := &policy.Policy{
		Critical:    []int{1},
		Audit:       &policy.Audit{Rate: 0.02, M: 1, PredictedCritical: policy.CriticalFree},
		Calibration: &policy.Calibration{Lines: &policy.Lines{CriticalFNR: 0.2}},
	}
	// A labelled recording as the policy decides it: a tenth of the retained critical inputs is missed.
	recording := make([]plan.Input, 1000)
	for i := range recording {
		critical := i%10 == 0
		recording[i] = plan.Input{Deferred: i%8 == 7, Critical: critical, CalledCritical: critical && i%100 != 0}
	}
	planned, err := plan.New(context.Background(), p, recording, plan.Options{
		Rates: []float64{0.01, 0.1}, InputsPerDay: 1000, Runs: 20, Seed: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range planned.Rates {
		fmt.Printf("rate %g: %.1f audits per 1,000 inputs beside %.0f deferred, alarm after about %.0f days\n",
			r.Rate, r.AuditsPer1000, r.DeferredPer1000, *r.Double.Days)
	}
	// Output:
	// rate 0.01: 7.8 audits per 1,000 inputs beside 125 deferred, alarm after about 78 days
	// rate 0.1: 78.5 audits per 1,000 inputs beside 125 deferred, alarm after about 7 days
}
