package metrics

import (
	"math"
	"testing"
	"time"

	bets "github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// tooFew returns a promise of which little is known.
func tooFew() *promise.Promise {
	nan := math.NaN()
	return &promise.Promise{
		Model: "m", Version: "v1", Verdict: promise.TooFew,
		Mature: promise.Summary{
			FNR:      promise.Figure{Risk: bets.FNR, Value: 0, Low: 0, High: 0, Line: 0.1, Monitor: &promise.Monitor{}},
			MissRate: promise.Figure{Risk: bets.MissRate, Value: nan, Low: nan, High: nan, Line: nan},
		},
		Strata: []promise.Stratum{
			{Stratum: receipt.Deferred, Lately: promise.Share{Total: 5}, Expected: 7, Reviews: 7, Due: 5, Arrived: 4},
			{Stratum: receipt.CalledSafe, Lately: promise.Share{Value: nan}, Expected: nan},
		},
	}
}

// TestPromises checks that what is not known has no series, and that outcomes are counted by what became
// of them.
func TestPromises(t *testing.T) {
	d := newDaemon(t, 0)
	for name := range d.values(t) {
		if len(namesOf(map[string]float64{name: 0}, "ckd_promise")) > 0 || len(namesOf(map[string]float64{name: 0}, "ckd_ledger")) > 0 {
			t.Errorf("%s without a ledger", name)
		}
	}
	d.ReadPromises(func() []*promise.Promise { return []*promise.Promise{tooFew()} })
	d.ReadStateTime(func() time.Time { return time.Now().Add(-time.Minute) })
	d.Outcome("m", ledger.Counted)
	d.Outcome("", ledger.Forged)
	const of = `model="m",policy="0000000000000000000000000000000000000000000000000000000000000000"`
	got := d.values(t)
	for name, want := range map[string]float64{
		`ckd_outcomes_total{model="m",status="counted"}`:                                       1,
		`ckd_outcomes_total{model="",status="forged"}`:                                         1,
		`ckd_promise{bound="line",class="",figure="critical_fnr",` + of + `,version="v1"}`:     0.1,
		`ckd_promise{bound="estimate",class="",figure="critical_fnr",` + of + `,version="v1"}`: 0,
		`ckd_promise_evidence{class="",figure="critical_fnr",` + of + `,version="v1"}`:         0,
		`ckd_promise_state{` + of + `,verdict="too_few_outcomes",version="v1"}`:                1,
		`ckd_promise_state{` + of + `,verdict="violated",version="v1"}`:                        0,
		`ckd_outcomes_overdue_ratio{` + of + `,stratum="deferred",version="v1"}`:               0,
		`ckd_promise_reviews{` + of + `,state="issued",stratum="deferred",version="v1"}`:       7,
		`ckd_promise_reviews{` + of + `,state="due",stratum="deferred",version="v1"}`:          5,
		`ckd_promise_reviews{` + of + `,state="answered",stratum="deferred",version="v1"}`:     4,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
		}
	}
	if names := namesOf(got, "ckd_promise{"); len(names) != 4 {
		t.Errorf("%d bounds, want the 4 of the critical FNR: %v", len(names), names)
	}
	if names := namesOf(got, "ckd_promise_reviews{"); len(names) != 5 {
		t.Errorf("%d counts of reviews, want 3 and the 2 of a stratum of which no daemon told: %v", len(names), names)
	}
	if age := got["ckd_ledger_state_age_seconds{}"]; age < 60 {
		t.Errorf("age %v, want at least 60", age)
	}
}
