package triage

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// promiseOf returns a promise of a policy that is violated, with the figures that the page shows.
func promiseOf(p *policy.Policy) *ckdv1.PromiseFigures {
	begun := timestamppb.New(time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))
	average := &ckdv1.Share{Value: 0.16, Low: 0.1, High: 0.25}
	share := &ckdv1.CountedShare{Of: "the due", Share: &ckdv1.Share{Value: 0.3, Low: 0.2, High: 0.4}, Events: 3, Total: 10}
	rate := &ckdv1.RiskFigure{
		Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, Outcomes: 900, Critical: 90, Misses: 3, Average: average,
		Unweighted: proto.Float64(0.03), Lately: share, Overdue: average, Line: proto.Float64(0.1), OutcomesNeeded: proto.Float64(5000),
		Verdict: ckdv1.Verdict_VERDICT_VIOLATED, Monitor: &ckdv1.RiskMonitor{LogEvidence: 1.2, RunLength: 4e6, RunLengthInputs: proto.Float64(4e7), Raised: true},
	}
	class := &ckdv1.RiskFigure{Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, CriticalClass: p.Classes[p.Critical[0]]}
	return &ckdv1.PromiseFigures{
		Promise: &ckdv1.Promise{Policy: &ckdv1.PolicyRef{Model: p.Name, Hash: p.Hash}, ModelVersion: "7", Verdict: ckdv1.Verdict_VERDICT_VIOLATED, Alarm: true},
		Why:     []string{"the alarm is up"}, CohortPeriod: durationpb.New(24 * time.Hour), Due: durationpb.New(14 * 24 * time.Hour), MatureCohorts: 2, OpenCohorts: 14,
		Mature: &ckdv1.OutcomeSummary{
			Figures: []*ckdv1.RiskFigure{rate, class}, YieldWrong: share, YieldCritical: share,
			YieldByReason: []*ckdv1.ReasonYield{{Reason: ckdv1.DecisionReason_DECISION_REASON_ABOVE_THRESHOLD, Wrong: share, Critical: share}},
		},
		Provisional: &ckdv1.OutcomeSummary{Decided: 1200, Figures: []*ckdv1.RiskFigure{rate}},
		Strata:      []*ckdv1.StratumCount{{Stratum: ckdv1.Stratum_STRATUM_CALLED_SAFE, Decisions: 9000, Reviews: 450, Expected: proto.Float64(440.5), Late: share}},
		Traffic:     share, NextMature: begun,
		History: []*ckdv1.PromisePoint{{Start: begun, CriticalMissRate: &ckdv1.RiskPoint{Average: average, Line: proto.Float64(0.1), LogEvidence: proto.Float64(1.2)}}},
	}
}

// TestPromises checks which promises the page shows.
func TestPromises(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, ctg)
	if got := d.later(t, "ctg").Promises; got != nil {
		t.Errorf("without a ledger: %s", got)
	}
	var told []*ckdv1.PromiseFigures
	d.page.options.Promises = func() []*ckdv1.PromiseFigures { return told }
	if got := d.later(t, "ctg").Promises; got == nil || len(got) != 0 {
		t.Errorf("of an empty ledger: %s", got)
	}
	shown, other := promiseOf(d.models["ctg"].policy), promiseOf(d.models["ctg"].policy)
	other.Promise.Policy.Hash = "another"
	told = []*ckdv1.PromiseFigures{other, shown}
	if got := d.later(t, "ctg").Promises; len(got) != 1 || !strings.Contains(string(got[0]), shown.Promise.Policy.Hash) {
		t.Errorf("%s, expected that of the policy in force", got)
	}
}
