package metrics

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/store"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// tooFew returns a promise of which little is known.
func tooFew(v ckdv1.Verdict) *ckdv1.PromiseFigures {
	return &ckdv1.PromiseFigures{
		Promise: &ckdv1.Promise{Policy: &ckdv1.PolicyRef{Model: "m", Hash: "abc"}, ModelVersion: "v1", Verdict: v},
		Mature: &ckdv1.OutcomeSummary{Figures: []*ckdv1.RiskFigure{
			{Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, Average: &ckdv1.Share{}, Line: proto.Float64(0.1), Monitor: &ckdv1.RiskMonitor{}},
			{Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE},
		}},
		Strata: []*ckdv1.StratumCount{
			{Stratum: ckdv1.Stratum_STRATUM_DEFERRED, LateLately: &ckdv1.CountedShare{Share: &ckdv1.Share{}, Total: 5}, Expected: proto.Float64(7), Reviews: 7, Due: 5, Arrived: 4},
			{Stratum: ckdv1.Stratum_STRATUM_CALLED_SAFE, LateLately: &ckdv1.CountedShare{}},
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
	verdict := ckdv1.Verdict_VERDICT_TOO_FEW_OUTCOMES
	var monitor ckdv1.RiskMonitor
	d.ReadPromises(func() []*ckdv1.PromiseFigures {
		p := tooFew(verdict)
		proto.Merge(p.GetMature().GetFigures()[0].GetMonitor(), &monitor)
		return []*ckdv1.PromiseFigures{p}
	})
	d.ReadStateTime(func() time.Time { return time.Now().Add(-time.Minute) })
	d.ReadStore(func() store.Status {
		return store.Status{FileBytes: 900, LogBytes: 100, FreeBytes: 5000, FailedWrites: 3, LastBackup: time.Unix(1_700_000_000, 0)}
	})
	d.Outcome("m", ledger.Counted)
	d.Outcome("", ledger.Forged)
	const of = `model="m",policy="abc"`
	got := d.values(t)
	for name, want := range map[string]float64{
		`ckd_outcomes_total{model="m",status="counted"}`:                                             1,
		`ckd_outcomes_total{model="",status="forged"}`:                                               1,
		`ckd_promise{bound="line",class="",figure="critical_miss_rate",` + of + `,version="v1"}`:     0.1,
		`ckd_promise{bound="estimate",class="",figure="critical_miss_rate",` + of + `,version="v1"}`: 0,
		`ckd_promise_evidence{class="",figure="critical_miss_rate",` + of + `,version="v1"}`:         0,
		`ckd_promise_state{` + of + `,verdict="too_few_outcomes",version="v1"}`:                      1,
		`ckd_promise_state{` + of + `,verdict="violated",version="v1"}`:                              0,
		`ckd_outcomes_overdue_ratio{` + of + `,stratum="deferred",version="v1"}`:                     0,
		`ckd_promise_reviews{` + of + `,state="issued",stratum="deferred",version="v1"}`:             7,
		`ckd_promise_reviews{` + of + `,state="due",stratum="deferred",version="v1"}`:                5,
		`ckd_promise_reviews{` + of + `,state="answered",stratum="deferred",version="v1"}`:           4,
		"ckd_ledger_bytes{}":                    1000,
		"ckd_ledger_free_bytes{}":               5000,
		"ckd_ledger_failed_writes_total{}":      3,
		"ckd_ledger_backup_timestamp_seconds{}": 1_700_000_000,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
		}
	}
	if names := namesOf(got, "ckd_promise{"); len(names) != 4 {
		t.Errorf("%d bounds, want the 4 of the critical miss rate: %v", len(names), names)
	}
	if names := namesOf(got, "ckd_promise_reviews{"); len(names) != 5 {
		t.Errorf("%d counts of reviews, want 3 and the 2 of a stratum of which no daemon told: %v", len(names), names)
	}
	monitor.Since, monitor.SinceRate = timestamppb.New(time.Unix(1_700_000_000, 0)), &ckdv1.CountedShare{Share: &ckdv1.Share{Value: 0.66}}
	const labels = `class="",figure="critical_miss_rate",` + of + `,version="v1"}`
	if v := d.values(t); v["ckd_promise_since_timestamp_seconds{"+labels] != 1_700_000_000 || v[`ckd_promise{bound="since",`+labels] != 0.66 {
		t.Errorf("at an alarm: %v", namesOf(v, "ckd_promise"))
	}
	verdict = ckdv1.Verdict_VERDICT_IN_DOUBT
	if states := namesOf(d.values(t), "ckd_promise_state{"); len(states) != 5 || d.values(t)[`ckd_promise_state{`+of+`,verdict="in_doubt",version="v1"}`] != 1 {
		t.Errorf("in doubt: %v", states)
	}
	if age := got["ckd_ledger_state_age_seconds{}"]; age < 60 {
		t.Errorf("age %v, want at least 60", age)
	}
}
