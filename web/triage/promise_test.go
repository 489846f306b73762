package triage

import (
	"encoding/hex"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
)

// promiseOf returns a promise of a policy that is violated, with all its figures.
func promiseOf(t testing.TB, p *policy.Policy) *ledger.Promise {
	t.Helper()
	begun := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	share := ledger.Share{Value: 0.3, Low: 0.2, High: 0.4, Events: 3, Total: 10}
	fnr := ledger.Figure{
		Risk: evidence.FNR, Outcomes: 900, Critical: 90, Misses: 3, Value: 0.16, Low: 0.1, High: 0.25, Unweighted: 0.03, Lately: share,
		Overdue: ledger.Limits{Value: 0.16, Low: 0.15, High: 0.2}, Line: 0.1, Needed: 5000, Verdict: ledger.Violated,
		Monitor: &ledger.Monitor{LogEvidence: 1.2, RunLength: 4e6, RunLengthInputs: 4e7, Raised: true, RaisedBy: begun},
	}
	rate, class := fnr, fnr
	rate.Risk, class.Class = evidence.MissRate, p.Classes[p.Critical[0]]
	unlined := class
	unlined.Class, unlined.Line = "another", math.NaN()
	found := &ledger.Promise{
		Version: "7", Model: p.Name, Audit: &policy.Audit{OnBreach: policy.DeferOnBreach}, Verdict: ledger.Violated, Why: []string{"the alarm is up"}, Alarm: true,
		Cohorts: ledger.Cohorts{Period: 24 * time.Hour, Due: 14 * 24 * time.Hour, Mature: 2, Open: 14, Since: begun, NextMature: begun.AddDate(0, 0, 17)},
		Mature: ledger.Summary{
			FNR: fnr, MissRate: rate, Classes: []ledger.Figure{class, unlined},
			Yield: ledger.Yield{Worth: share, Critical: share, Reasons: []ledger.ReasonYield{{Reason: policy.AboveThreshold, Worth: share, Critical: share}}},
		},
		Provisional: ledger.Summary{Decided: 1200, FNR: fnr},
		Strata:      []ledger.Stratum{{Stratum: receipt.CalledSafe, Decisions: 9000, Reviews: 450, Expected: 440.5, Due: 400, Arrived: 360, Overdue: 40, Late: share}},
		Traffic:     share,
		History: []ledger.Point{{
			Start: begun, FNR: ledger.PointRisk{Value: 0.16, Low: 0.1, High: 0.25, Cohort: 0.2, Line: 0.1, LogEvidence: 1.2},
		}},
	}
	if n, err := hex.Decode(found.Policy[:], []byte(p.Hash)); err != nil || n != len(found.Policy) {
		t.Fatal(err)
	}
	return found
}

// TestPromises checks which promises the page shows, and that what is not known is null.
func TestPromises(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, ctg)
	p := d.models["ctg"].policy
	if got := d.later(t, "ctg").Promises; got != nil {
		t.Errorf("without a ledger: %+v", got)
	}
	var told []*ledger.Promise
	d.page.options.Promises = func() []*ledger.Promise { return told }
	if got := d.later(t, "ctg").Promises; got == nil || len(got) != 0 {
		t.Errorf("of an empty ledger: %+v", got)
	}
	shown, other := promiseOf(t, p), promiseOf(t, p)
	other.Policy[0]++
	nothing := math.NaN()
	shown.Mature.FNR.Value, shown.Mature.FNR.Low, shown.Mature.FNR.High = nothing, nothing, nothing
	shown.Mature.MissRate.Monitor = nil
	told = []*ledger.Promise{other, shown}
	got := d.later(t, "ctg").Promises
	if len(got) != 1 || len(got[0].Figures) != 3 {
		t.Fatalf("%d promises: %+v, expected that of the policy in force, with the figures that are pooled or have a line", len(got), got)
	}
	want := []*pagestate.Interval{nil, {Value: 0.16, Low: 0.1, High: 0.25}, {Value: 0.16, Low: 0.1, High: 0.25}}
	for i, f := range got[0].Figures {
		if diff := cmp.Diff(want[i], f.Average); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", f.Name, f.Class, diff)
		}
		if known := f.Evidence != nil; known != (i != 1) {
			t.Errorf("%s %s: evidence %v", f.Name, f.Class, f.Evidence)
		}
	}
}
