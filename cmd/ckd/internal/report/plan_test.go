package report

import (
	"testing"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/outcome/plan"
	"github.com/ckd-project/ckd/policy"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	d := writePage(t, Plan(&plan.Plan{
		Bounds: policy.CriticalMissRate, Line: new(0.204), InRecording: new(0.136), InputsPerDay: 2000, Days: 30, RunLength: 2e6,
		PredictedCritical: policy.CriticalFree, M: 0.5, SurgePer1000: 612.4, Notes: []string{"a note"},
		Rates: []plan.Rate{
			{Rate: 0.005, DeferredPer1000: 200, AuditsPer1000: 4.04, InputsBetweenAlarms: 37_123_456, Double: &plan.Delay{Longest: 123_456}},
			{Rate: 0.02, DeferredPer1000: 200, AuditsPer1000: 16.1, InputsBetweenAlarms: 30_000_000, Low: new(0.1), High: new(0.18), Width: new(0.079),
				Double: &plan.Delay{Inputs: new(83_210.0), Audits: new(1351.0), Days: new(41.6), InputsIn90: new(140_400.0), AuditsIn90: new(2266.0), Longest: 1e6},
				Triple: &plan.Delay{Inputs: new(9000.0), Audits: new(300.0), Days: new(4.5), Longest: 1e6}},
		},
	}, "fetal-health", eval.File{Name: "p.npy"}))
	d.expect(t, "Audits of fetal-health: p.npy", "The line of the critical miss rate is 20.4%", "In the recording the critical miss rate is 13.6%", "At 2,000 inputs a day",
		"worked up anyway", "takes 612 reviews per 1,000 inputs", "a note")
	d.expectRows(t, "Audit rates",
		"audit rate|reviews per 1,000 inputs|of these deferred|of these audits|interval after a month|width|inputs between false alarms",
		"0.5%|204|200|4|n/a|n/a|37,100,000", "2.0%|216|200|16|10.0% to 18.0%|7.9%|30,000,000")
	d.expectRows(t, "Until the alarm", "audit rate|doubles: inputs|audits|days|triples: inputs|audits|days",
		"0.5%|over 123,000|n/a|n/a|n/a|n/a|n/a", "2.0%|83,200 [140,000]|1,350 [2,270]|42|9,000 [over 1,000,000]|300|4.5")
}
