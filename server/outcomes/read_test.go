package outcomes

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestReadFigures checks that a promise comes back from its message, with what is not known as such.
func TestReadFigures(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	none := math.NaN()
	share := ledger.Share{Of: "what is due", Value: 0.3, Low: 0.2, High: 0.4, Events: 3, Total: 10}
	nothing := ledger.Share{Of: "nothing", Value: none, Low: none, High: none}
	fnr := ledger.Figure{
		Risk: evidence.FNR, Outcomes: 900, Critical: 90, Misses: 3, Disputed: 1, Value: 0.16, Low: 0.1, High: 0.25, Unweighted: 0.03, Lately: share,
		Overdue: ledger.Limits{Value: 0.16, Low: 0.15, High: 0.2}, AtSensitivity: ledger.Limits{Value: none, Low: none, High: none},
		Line: 0.1, Needed: 5000, Verdict: ledger.Violated,
		Monitor: &ledger.Monitor{Evidence: 5e6, LogEvidence: 1.2, RunLength: 4e6, RunLengthInputs: none, Raised: true, RaisedBy: day, Replayed: 7},
	}
	rate, class, slice := fnr, fnr, fnr
	rate.Risk, rate.Value, rate.Low, rate.High, rate.Line, rate.Needed, rate.Monitor = evidence.MissRate, none, none, none, none, none, nil
	class.Class, slice.Slice = "b", "site=north"
	summary := ledger.Summary{
		Decided: 1200, FNR: fnr, MissRate: rate, Classes: []ledger.Figure{class}, Slices: []ledger.Figure{slice},
		Yield: ledger.Yield{Worth: share, Critical: nothing, Reasons: []ledger.ReasonYield{{Reason: policy.Unfamiliar, Worth: share, Critical: share}}},
	}
	want := &ledger.Promise{
		Policy: [32]byte{1, 2}, Version: "7", VersionHash: receipt.VersionHash("7"), Model: "m", AsOf: day.Add(time.Hour), Verdict: ledger.Violated,
		Why: []string{"the alarm is up"}, Alarm: true, Mature: summary, Provisional: summary, Traffic: share,
		Cohorts: ledger.Cohorts{Period: 24 * time.Hour, Due: 14 * 24 * time.Hour, Mature: 2, Open: 14, Since: day, NextMature: day.Add(48 * time.Hour)},
		Strata: []ledger.Stratum{{
			Stratum: receipt.CalledSafe, Decisions: 9000, Eligible: 8000, Receipts: 500, Reviews: 450, Expected: none, Due: 400, Arrived: 360, Overdue: 40,
			Late: share, Lately: nothing, Apart: 2, Free: true,
		}},
		History: []ledger.Point{{
			Start: day, FNR: ledger.PointRisk{Value: 0.16, Low: 0.1, High: 0.25, Cohort: 0.2, Line: 0.1, LogEvidence: 1.2},
			Rate: ledger.PointRisk{Value: none, Low: none, High: none, Cohort: none, Line: none, LogEvidence: none},
		}},
	}
	if diff := cmp.Diff(want, ReadFigures(figuresMessage(want)), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-told +read):\n%s", diff)
	}
	if got := ReadFigures(&ckdv1.PromiseFigures{}); got != nil {
		t.Errorf("%+v of a message without a policy", got)
	}
	short := ReadFigures(ShortFigures(promiseMessage(want)))
	if short.Verdict != ledger.Violated || !short.Alarm || short.Mature.FNR.Value != 0.16 || short.Mature.FNR.Line != 0.1 || !math.IsNaN(short.Mature.MissRate.Value) {
		t.Errorf("%+v", short)
	}
}
