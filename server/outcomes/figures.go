package outcomes

import (
	"encoding/hex"
	"math"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// promiseMessage returns the state of a promise.
func promiseMessage(p *promise.Promise) *ckdv1.Promise {
	m := &ckdv1.Promise{
		Policy: &ckdv1.PolicyRef{Model: p.Model, Hash: hex.EncodeToString(p.Policy[:])}, ModelVersion: p.Version,
		Verdict: verdictMessages[p.Verdict], Alarm: p.Alarm, Statement: Statement(p),
		CriticalMissRate: averageMessage(&p.Mature.MissRate), CriticalMissRateLine: known(p.Mature.MissRate.Line), Time: timeMessage(p.AsOf),
	}
	if fnr := p.Mature.FNR(); fnr != nil {
		m.CriticalFnr, m.CriticalFnrLine = averageMessage(fnr), known(fnr.Line)
	}
	return m
}

// Figures returns all figures of a promise.
func Figures(p *promise.Promise) *ckdv1.PromiseFigures {
	m := DueFigures(p)
	m.Provisional = summaryMessage(p, &p.Provisional)
	for _, h := range p.History {
		m.History = append(m.History, &ckdv1.PromisePoint{
			Start: timeMessage(h.Start), CriticalMissRate: pointMessage(h.Rate), CriticalFnr: pointMessage(h.FNR),
		})
	}
	return m
}

// DueFigures returns the figures of a promise by outcomes that are due, without its history, which is most
// of a message.
func DueFigures(p *promise.Promise) *ckdv1.PromiseFigures {
	m := &ckdv1.PromiseFigures{
		Promise: promiseMessage(p), Why: p.Why,
		CohortPeriod: durationpb.New(p.Cohorts.Period), Due: durationpb.New(p.Cohorts.Due),
		MatureCohorts: uint32(p.Cohorts.Mature), OpenCohorts: uint32(p.Cohorts.Open),
		Mature:  summaryMessage(p, &p.Mature),
		Traffic: countedMessage(p.Traffic), NextMature: timeMessage(p.Cohorts.NextMature), ModelSince: timeMessage(p.Since),
	}
	if e := p.Expected; e != nil {
		m.Expected = &ckdv1.Expectation{
			From: timeMessage(e.From), Until: timeMessage(e.Until), CriticalMissRate: countedMessage(e.MissRate), Statement: expectedStatement(p),
		}
		if p.Mature.FNR() != nil {
			m.Expected.CriticalFnr = countedMessage(e.FNR)
		}
	}
	for _, s := range p.Strata {
		m.Strata = append(m.Strata, &ckdv1.StratumCount{
			Stratum: ckdv1.Stratum(s.Stratum), Decisions: s.Decisions, Eligible: s.Eligible, Receipts: s.Receipts, Reviews: s.Reviews,
			Expected: known(s.Expected), Due: s.Due, Arrived: s.Arrived, Overdue: s.Overdue,
			Late: countedMessage(s.Late), LateLately: countedMessage(s.Lately), Apart: s.Apart, Untold: s.Untold,
			Free: s.Free, FreeMet: s.FreeMet,
		})
	}
	return m
}

// ShortFigures returns the figures that a state has.
func ShortFigures(p *ckdv1.Promise) *ckdv1.PromiseFigures {
	figures := []*ckdv1.RiskFigure{
		{Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, Average: p.GetCriticalMissRate(), Line: p.CriticalMissRateLine, Verdict: p.GetVerdict()},
	}
	if p.CriticalFnrLine != nil {
		figures = append(figures, &ckdv1.RiskFigure{
			Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_FNR, Average: p.GetCriticalFnr(), Line: p.CriticalFnrLine, Verdict: p.GetVerdict(),
		})
	}
	return &ckdv1.PromiseFigures{Promise: p, Mature: &ckdv1.OutcomeSummary{Figures: figures}}
}

// averageMessage returns the average of a figure, or nil if nothing was seen.
func averageMessage(f *promise.Figure) *ckdv1.Share { return shareMessage(f.Value, f.Low, f.High) }

// pointMessage returns a risk at a point; nil where nothing is known of it.
func pointMessage(p promise.PointRisk) *ckdv1.RiskPoint {
	if math.IsNaN(p.Value) && math.IsNaN(p.Line) {
		return nil
	}
	return &ckdv1.RiskPoint{
		Average: shareMessage(p.Value, p.Low, p.High), Cohort: known(p.Cohort), Line: known(p.Line), LogEvidence: known(p.LogEvidence),
	}
}

func summaryMessage(p *promise.Promise, s *promise.Summary) *ckdv1.OutcomeSummary {
	m := &ckdv1.OutcomeSummary{
		Decided: s.Decided, YieldWrong: countedMessage(s.Yield.Worth), YieldCritical: countedMessage(s.Yield.Critical),
		Readers: &ckdv1.ReaderAgreement{
			Agreement: countedMessage(s.Readers.Agreement), ReaderMisses: countedMessage(s.Readers.ReaderMisses),
			SecondWanted: s.Readers.SecondWanted, SecondArrived: s.Readers.SecondArrived, Missed: s.Readers.Missed, Unconfirmed: s.Readers.Unconfirmed,
			Withdrawn: s.Readers.Withdrawn, Disputed: s.Readers.Disputed, Blind: countedMessage(s.Readers.Blind), Sighted: countedMessage(s.Readers.Sighted),
			Corrected: s.Readers.Corrected,
		},
		LagMedianSeconds: limitsMessage(s.Lag.Median), LagP90Seconds: limitsMessage(s.Lag.P90),
	}
	for _, f := range s.Watched() {
		m.Figures = append(m.Figures, riskMessage(f))
	}
	for _, f := range s.Slices {
		m.Slices = append(m.Slices, riskMessage(&f))
	}
	for _, r := range s.Yield.Reasons {
		m.YieldByReason = append(m.YieldByReason, &ckdv1.ReasonYield{
			Reason: reasonMessage(r.Reason), Wrong: countedMessage(r.Worth), Critical: countedMessage(r.Critical),
		})
	}
	for _, c := range s.Confusion {
		m.Confusion = append(m.Confusion, &ckdv1.ConfusionCell{
			Predicted: className(p, c.Predicted), Truth: className(p, c.True), Count: c.Count, Weight: c.Weight, Share: countedMessage(c.Share),
		})
	}
	for _, b := range s.Calibration {
		m.Risk = append(m.Risk, &ckdv1.RiskBin{Low: b.From, High: b.To, Expected: known(b.Expected), Observed: countedMessage(b.Observed)})
	}
	for _, k := range s.Kinds {
		m.Kinds = append(m.Kinds, &ckdv1.KindFigure{Kind: kindMessages[k.Kind], Decided: k.Decided, CriticalMissRate: countedMessage(k.MissRate)})
	}
	return m
}

// className returns the name of a class.
func className(p *promise.Promise, k int) string {
	if k < 0 || k >= len(p.Classes) {
		return ""
	}
	return p.Classes[k]
}

func riskMessage(f *promise.Figure) *ckdv1.RiskFigure {
	m := &ckdv1.RiskFigure{
		Figure:        map[evidence.Risk]ckdv1.CertifiedFigure{evidence.MissRate: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, evidence.FNR: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_FNR}[f.Risk],
		CriticalClass: f.Class, Slice: f.Slice, Outcomes: f.Outcomes, Critical: f.Critical, Misses: f.Misses, Disputed: f.Disputed,
		Average: averageMessage(f), Unweighted: known(f.Unweighted), Lately: countedMessage(f.Lately),
		Overdue: limitsMessage(f.Overdue), AtSensitivity: limitsMessage(f.AtSensitivity), Line: known(f.Line),
		Verdict: verdictMessages[f.Verdict], OutcomesNeeded: known(f.Needed), ModelAverage: limitsMessage(f.Model), LineOrigin: f.LineOrigin,
	}
	if a := f.Monitor; a != nil {
		m.Monitor = &ckdv1.RiskMonitor{
			Evidence: finite(a.Evidence), RunLength: a.RunLength, RunLengthInputs: known(a.RunLengthInputs), LogEvidence: a.LogEvidence,
			Raised: a.Raised, RaisedBy: timeMessage(a.RaisedBy), RaisedAt: timeMessage(a.RaisedAt), ClearedAt: timeMessage(a.Cleared), Replayed: finite(a.Replayed),
		}
		if a.Since != nil {
			m.Monitor.Since, m.Monitor.SinceRate = timeMessage(a.Since.Start), countedMessage(a.Since.Rate)
		}
	}
	return m
}

// finite returns a number as JSON can have it: evidence can outgrow a float64.
func finite(v float64) float64 { return min(v, math.MaxFloat64) }

// shareMessage returns a share with its interval, or nil if nothing was seen.
func shareMessage(value, low, high float64) *ckdv1.Share {
	if math.IsNaN(value) {
		return nil
	}
	return &ckdv1.Share{Value: value, Low: low, High: high}
}

func limitsMessage(l promise.Limits) *ckdv1.Share { return shareMessage(l.Value, l.Low, l.High) }

func countedMessage(s promise.Share) *ckdv1.CountedShare {
	return &ckdv1.CountedShare{Of: s.Of, Share: shareMessage(s.Value, s.Low, s.High), Events: s.Events, Total: s.Total}
}

// verdictMessages maps verdicts.
var verdictMessages = map[promise.Verdict]ckdv1.Verdict{
	promise.NoLine:   ckdv1.Verdict_VERDICT_NO_LINE,
	promise.TooFew:   ckdv1.Verdict_VERDICT_TOO_FEW_OUTCOMES,
	promise.Holding:  ckdv1.Verdict_VERDICT_HOLDING,
	promise.InDoubt:  ckdv1.Verdict_VERDICT_IN_DOUBT,
	promise.Violated: ckdv1.Verdict_VERDICT_VIOLATED,
}

// reasonMessage returns a reason of the wire by its name.
func reasonMessage(r policy.Reason) ckdv1.DecisionReason {
	return ckdv1.DecisionReason(ckdv1.DecisionReason_value["DECISION_REASON_"+strings.ToUpper(r.String())])
}
