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
		Bounds: policy.CriticalMissRate, Line: new(0.204), InRecording: new(0.136), Expected: new(0.12), CountedShare: 0.1, InputsPerDay: 2000, Days: 30, RunLength: 2e6, DueDays: 14,
		PredictedCritical: policy.CriticalFree, M: 0.5, SurgePer1000: 612.4, Notes: []string{"a note"},
		Rates: []plan.Rate{
			{Rate: 0.005, DeferredPer1000: 200, AuditsPer1000: 4.04, InputsBetweenAlarms: 37_123_456, Double: &plan.Delay{Longest: 123_456}},
			{Rate: 0.02, DeferredPer1000: 200, AuditsPer1000: 16.1, InputsBetweenAlarms: 30_000_000, Low: new(0.1), High: new(0.18), Width: new(0.079),
				Double:  &plan.Delay{Inputs: new(33_210.0), Audits: new(1351.0), Days: new(16.6), InputsIn90: new(50_400.0), AuditsIn90: new(2266.0), Longest: 1e6},
				Holding: &plan.Delay{Inputs: new(44_000.0), Audits: new(700.0), Days: new(22.0), InputsIn90: new(60_000.0), AuditsIn90: new(990.0), Longest: 1e6},
				Triple:  &plan.Delay{Inputs: new(9000.0), Audits: new(300.0), Days: new(4.5), Longest: 1e6}},
		},
	}, &policy.Policy{Name: "fetal-health"}, eval.File{Name: "p.npy"}))
	d.expect(t, "Audits of fetal-health: p.npy", "Audit 2.0% of what is retained: if misses rise to 40.8% (twice the line of 20.4%; expected 12.0%), that finds out after 17 days (half of the simulations; 9 in 10 within 25), plus 14 until outcomes are due; about 2,500 critical inputs are missed by then. If nothing changes, the page says holding after 22 days. It takes 216 deferred and audited per 1,000 inputs: 432 a day, 32 of them audits.", "The line of the critical miss rate is 20.4%", "In the recording the critical miss rate is 13.6%", "At 2,000 inputs a day",
		"worked up anyway", "takes 612 reviews per 1,000 inputs", "a note")
	d.expectRows(t, "Audit rates",
		"audit rate|reviews per 1,000 inputs|deferred of these|audits of these|interval after a month|width|inputs between false alarms",
		"0.5%|204|200|4|n/a|n/a|37,100,000", "2.0%|216|200|16|10.0% to 18.0%|7.9%|30,000,000")
	d.expectRows(t, "Until the alarm", "audit rate|doubles: inputs|audits|days|triples: inputs|audits|days",
		"0.5%|over 123,000|n/a|n/a|n/a|n/a|n/a", "2.0%|33,200 [50,400]|1,350 [2,270]|17|9,000 [over 1,000,000]|300|4.5")
	d.expectRows(t, "Until the promise is said to hold", "audit rate|inputs|audits|days", "0.5%|n/a|n/a|n/a", "2.0%|44,000 [60,000]|700 [990]|22")
}

// TestPlanIsOneScreen checks the first sentence, what is to be done, the bound of lines and the rows, for
// plans that know everything or nothing, and for too little traffic.
func TestPlanIsOneScreen(t *testing.T) {
	t.Parallel()
	days := func(perDay, median, most float64) *plan.Delay {
		d := &plan.Delay{Longest: 1e6}
		if median > 0 {
			d.Inputs, d.Days, d.Audits = new(median*perDay), new(median), new(600.0)
		}
		if most > 0 {
			d.InputsIn90 = new(most * perDay)
		}
		return d
	}
	for name, test := range map[string]struct {
		perDay                   float64
		double, holding          *plan.Delay // of a rate of 1%; of others they are shorter and longer by the rate
		everything, notes        bool
		lead, next, row, without string
	}{
		"both within a month": {2000, days(2000, 15, 31), days(2000, 60, 90), false, false,
			"Audit 2.0% of what is retained: if misses rise to 15.4% (twice the line of 7.7%), that finds out after 7.5 days (half of the simulations; 9 in 10 within 16), plus 14 until outcomes are due; about 662 critical inputs are missed by then. If nothing changes, the page says holding after 30 days. It takes 216 deferred and audited per 1,000 inputs: 432 a day, 32 of them audits.",
			"Write audit: {rate: 0.02} into the policy: the least of these that finds twice the line within a month in 9 of 10 simulations and says holding within a month in half of them.",
			"2.0% 216 16 n/a 30 (45) 7.5 (16)", "Reading everything"},
		"holding takes longer": {2000, days(2000, 15, 31), days(2000, 600, 900), false, false, "Audit 2.0% of", "none says holding within a month", "2.0% 216 16 n/a 300 (over a year)", "instead"},
		"above the line":       {2000, days(2000, 15, 31), nil, false, false, "Audit 2.0% of", "in 9 of 10 simulations. -", "2.0% 216 16 n/a n/a 7.5 (16)", "says holding"},
		"slow": {200, days(200, 340, 580), days(200, 1380, 2280), true, false,
			"With 200 inputs a day audits learn slowly: if misses rise to 15.4% (twice the line of 7.7%), even auditing 10.0% finds out after 34 days (half of the simulations; 9 in 10 within 58), plus",
			"Write audit: {rate: 0.1} into the policy: the highest of these; none finds twice the line within a month in 9 of 10 simulations. - To learn sooner, have everything read for a while, as with audit: {rate: 1, m: 1}: 200 reviews a day, and what is read is not missed. - Pool sites that use this model and policy in one ledger: from 387 inputs a day on, auditing 10.0% finds twice the line within a month in 9 of 10 simulations. -",
			"10.0% 280 80 n/a 138 (228) 34 (58)", "0.5%"},
		"too slow": {10, days(10, 6780, 11560), days(10, 27600, 45600), true, false,
			"With 10 inputs a day audits cannot tell within a year whether misses doubled: if they rise to 15.4%",
			"Do not rely on audits. Have everything read for a while, as with audit: {rate: 1, m: 1}: 10 reviews a day, and what is read is not missed. - Pool sites that use this model and policy in one ledger: from 385 inputs a day on, auditing 10.0% finds twice the line within a month in 9 of 10 simulations, from 32 on within a year. - Else judge once a year by a new labelled recording: ckd calibrate anew on it.",
			"10.0% 280 80 n/a over a year over a year", "Write audit"},
		"longer than simulated": {2000, days(2000, 0, 0), days(2000, 0, 0), true, false, "cannot tell within a year whether misses doubled: if they rise to 15.4% (twice the line of 7.7%), even auditing 10.0% does not find out within 500 days",
			"in one ledger. -", "10.0% 280 80 n/a over a year over a year", "missed by then"},
		"no line":       {2000, nil, nil, false, true, "not known: the policy has no line.", "Write audit: {rate: 0.02} into the policy: the middle of these, until more is known.", "2.0% 216 16 n/a n/a n/a", "Pool"},
		"cannot double": {2000, nil, days(2000, 60, 90), false, false, "Misses cannot double", "the middle of these", "2.0% 216 16 n/a 30 (45) n/a", "Pool"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{Bounds: policy.CriticalMissRate, InputsPerDay: test.perDay, Line: new(0.077), InRecording: new(0.115), CountedShare: 0.1, DueDays: 14}
			if test.notes {
				p.Notes = []string{"the policy has no line"}
			}
			scaled := func(d *plan.Delay, rate float64) *plan.Delay {
				if d == nil || d.Inputs == nil {
					return d
				}
				return days(test.perDay, *d.Days*0.01/rate, *d.InputsIn90/test.perDay*0.01/rate)
			}
			row := func(rate float64) plan.Rate {
				return plan.Rate{Rate: rate, DeferredPer1000: 200, AuditsPer1000: 800 * rate, InputsBetweenAlarms: 1.5e7,
					Double: scaled(test.double, rate), Triple: scaled(test.double, rate), Holding: scaled(test.holding, rate)}
			}
			for _, rate := range plan.DefaultRates() {
				p.Rates = append(p.Rates, row(rate))
			}
			if test.everything {
				p.Everything = new(row(1))
			}
			var out strings.Builder
			s := Plan(p, &policy.Policy{Name: strings.Repeat("m", 128)}, eval.File{Name: "p.npy"}).Screen
			if _, err := s.WriteTo(&out); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(lines) > document.ScreenLines || text.LongestLineLen(out.String()) > 100 || len(s.Table.Rows) != 5 {
				t.Errorf("%d lines of %d columns, %d rows", len(lines), text.LongestLineLen(out.String()), len(s.Table.Rows))
			}
			got, broken := strings.CutPrefix(strings.Join(strings.Fields(out.String()), " "), "This recording already breaks the line: 11.5% missed against 7.7%: it is not like the one that the policy was set on. ")
			for _, want := range []string{test.lead, test.next, test.row, "First calibrate on data like those that will come"} {
				if !strings.Contains(got, want) || !broken {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			if strings.Contains(got, test.without) {
				t.Errorf("%q in\n%s", test.without, out.String())
			}
		})
	}
}
