package report

import (
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/outcome/plan"
	"github.com/ckd-project/ckd/policy"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	d := writePage(t, Plan(&plan.Plan{
		Bounds: policy.CriticalMissRate, Line: new(0.204), InRecording: new(0.136), Expected: new(0.12), CountedShare: 0.1, InputsPerDay: 2000, Days: 30, RunLength: 2e6,
		PredictedCritical: policy.CriticalFree, M: 0.5, SurgePer1000: 612.4, Notes: []string{"a note"},
		Rates: []plan.Rate{
			{Rate: 0.005, DeferredPer1000: 200, AuditsPer1000: 4.04, InputsBetweenAlarms: 37_123_456, Double: &plan.Delay{Longest: 123_456}},
			{Rate: 0.02, DeferredPer1000: 200, AuditsPer1000: 16.1, InputsBetweenAlarms: 30_000_000, Low: new(0.1), High: new(0.18), Width: new(0.079),
				Double: &plan.Delay{Inputs: new(83_210.0), Audits: new(1351.0), Days: new(41.6), InputsIn90: new(140_400.0), AuditsIn90: new(2266.0), Longest: 1e6},
				Triple: &plan.Delay{Inputs: new(9000.0), Audits: new(300.0), Days: new(4.5), Longest: 1e6}},
		},
	}, "fetal-health", eval.File{Name: "p.npy"}))
	d.expect(t, "Audits of fetal-health: p.npy", "If misses rise to 40.8% (twice the line of 20.4%; expected 12.0%), auditing 2.0% finds out after 42 days (half of the simulations; 9 in 10 within 70); about 3,390 critical inputs are missed by then. It takes 216 deferred and audited per 1,000 inputs: 432 a day, 32 of them audits.", "The line of the critical miss rate is 20.4%", "In the recording the critical miss rate is 13.6%", "At 2,000 inputs a day",
		"worked up anyway", "takes 612 reviews per 1,000 inputs", "a note")
	d.expectRows(t, "Audit rates",
		"audit rate|reviews per 1,000 inputs|deferred of these|audits of these|interval after a month|width|inputs between false alarms",
		"0.5%|204|200|4|n/a|n/a|37,100,000", "2.0%|216|200|16|10.0% to 18.0%|7.9%|30,000,000")
	d.expectRows(t, "Until the alarm", "audit rate|doubles: inputs|audits|days|triples: inputs|audits|days",
		"0.5%|over 123,000|n/a|n/a|n/a|n/a|n/a", "2.0%|83,200 [140,000]|1,350 [2,270]|42|9,000 [over 1,000,000]|300|4.5")
}

// TestPlanIsOneScreen checks the first sentence, the bound of lines and the rows, where all is known, where
// nothing is, and where the simulations end too early.
func TestPlanIsOneScreen(t *testing.T) {
	t.Parallel()
	known := func(inputs, in90 *float64) *plan.Delay {
		d := &plan.Delay{Inputs: inputs, InputsIn90: in90, Longest: 1e6}
		if inputs != nil {
			d.Days, d.Audits = new(*inputs/2000), new(600.0)
		}
		return d
	}
	for name, test := range map[string]struct {
		delay *plan.Delay
		notes []string
		want  string
	}{
		"known":         {known(new(102_000.0), new(160_000.0)), nil, "If misses rise to 15.4% (twice the line of 7.7%), auditing 2.0% finds out after 51 days (half of the simulations; 9 in 10 within 80); about 1,570 critical inputs"},
		"too short":     {known(nil, nil), nil, "does not find out within 500 days"},
		"one too short": {known(new(102_000.0), nil), nil, "one in 10 takes over 500"},
		"no line":       {nil, []string{"the policy has no line"}, "not known: the policy has no line."},
		"cannot double": {nil, nil, "Misses cannot double"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{Bounds: policy.CriticalMissRate, InputsPerDay: 2000, Notes: test.notes, Line: new(0.077), InRecording: new(0.115), CountedShare: 0.1}
			for _, rate := range plan.DefaultRates() {
				p.Rates = append(p.Rates, plan.Rate{Rate: rate, DeferredPer1000: 200, AuditsPer1000: 800 * rate, InputsBetweenAlarms: 1.5e7, Double: test.delay, Triple: test.delay})
			}
			var out strings.Builder
			s := Plan(p, strings.Repeat("m", 128), eval.File{Name: "p.npy"}).Screen
			if _, err := s.WriteTo(&out); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(lines) > document.ScreenLines || text.LongestLineLen(out.String()) > 100 || len(s.Table.Rows) != 5 {
				t.Errorf("%d lines of %d columns, %d rows", len(lines), text.LongestLineLen(out.String()), len(s.Table.Rows))
			}
			if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, test.want) || !strings.Contains(got, "216 deferred and audited per 1,000 inputs: 432 a day, 32 of them audits") ||
				!strings.HasPrefix(got, "This recording already breaks the line: 11.5% missed against 7.7%") {
				t.Errorf("no %q in\n%s", test.want, out.String())
			}
		})
	}
}
