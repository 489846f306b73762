package outcomes

import (
	"math"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// ReadFigures returns what the ledger of another process says about a promise, as far as messages have
// it: classes, critical classes and the audit are missing, and of a summary all but the decided, the
// risks and the yield. It returns nil if the message has no valid hash.
func ReadFigures(m *ckdv1.PromiseFigures) *ledger.Promise {
	state := m.GetPromise()
	hash, ok := hashOf(state.GetPolicy().GetHash())
	if !ok {
		return nil
	}
	p := &ledger.Promise{
		Policy: hash, Version: state.GetModelVersion(), VersionHash: receipt.VersionHash(state.GetModelVersion()), Model: state.GetPolicy().GetModel(),
		AsOf: timeOf(state.GetTime()), Verdict: verdictOf(state.GetVerdict()), Why: m.GetWhy(), Alarm: state.GetAlarm(),
		Cohorts: ledger.Cohorts{
			Period: m.GetCohortPeriod().AsDuration(), Due: m.GetDue().AsDuration(), Mature: int(m.GetMatureCohorts()), Open: int(m.GetOpenCohorts()),
			NextMature: timeOf(m.GetNextMature()),
		},
		Mature: readSummary(m.GetMature()), Provisional: readSummary(m.GetProvisional()), Traffic: readCounted(m.GetTraffic()),
	}
	for _, s := range m.GetStrata() {
		p.Strata = append(p.Strata, ledger.Stratum{
			Stratum: receipt.Stratum(s.GetStratum()), Decisions: s.GetDecisions(), Eligible: s.GetEligible(), Receipts: s.GetReceipts(), Reviews: s.GetReviews(),
			Expected: number(s.Expected), Due: s.GetDue(), Arrived: s.GetArrived(), Overdue: s.GetOverdue(),
			Late: readCounted(s.GetLate()), Lately: readCounted(s.GetLateLately()), Apart: s.GetApart(),
			Free: s.GetFree(), FreeMet: s.GetFreeMet(),
		})
	}
	for _, h := range m.GetHistory() {
		p.History = append(p.History, ledger.Point{
			Start: timeOf(h.GetStart()), FNR: readPoint(h.GetCriticalFnr()), Rate: readPoint(h.GetCriticalMissRate()),
		})
	}
	if len(p.History) > 0 {
		p.Cohorts.Since = p.History[0].Start
	}
	return p
}

// ShortFigures returns the figures that a state has.
func ShortFigures(p *ckdv1.Promise) *ckdv1.PromiseFigures {
	return &ckdv1.PromiseFigures{Promise: p, Mature: &ckdv1.OutcomeSummary{Figures: []*ckdv1.RiskFigure{
		{Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_FNR, Average: p.GetCriticalFnr(), Line: p.CriticalFnrLine, Verdict: p.GetVerdict()},
		{Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, Average: p.GetCriticalMissRate(), Line: p.CriticalMissRateLine, Verdict: p.GetVerdict()},
	}}}
}

// readSummary reads a summary, whose figures begin with those over all critical classes.
func readSummary(m *ckdv1.OutcomeSummary) ledger.Summary {
	s := ledger.Summary{
		Decided: m.GetDecided(), FNR: readFigure(nil), MissRate: readFigure(nil),
		Yield: ledger.Yield{Worth: readCounted(m.GetYieldWrong()), Critical: readCounted(m.GetYieldCritical())},
	}
	s.MissRate.Risk = evidence.MissRate
	for _, f := range m.GetFigures() {
		switch figure := readFigure(f); {
		case f.GetCriticalClass() != "":
			s.Classes = append(s.Classes, figure)
		case figure.Risk == evidence.MissRate:
			s.MissRate = figure
		default:
			s.FNR = figure
		}
	}
	for _, f := range m.GetSlices() {
		s.Slices = append(s.Slices, readFigure(f))
	}
	for _, r := range m.GetYieldByReason() {
		s.Yield.Reasons = append(s.Yield.Reasons, ledger.ReasonYield{
			Reason: reasonOf(r.GetReason()), Worth: readCounted(r.GetWrong()), Critical: readCounted(r.GetCritical()),
		})
	}
	return s
}

func readFigure(m *ckdv1.RiskFigure) ledger.Figure {
	f := ledger.Figure{
		Risk: evidence.FNR, Class: m.GetCriticalClass(), Slice: m.GetSlice(), Outcomes: m.GetOutcomes(), Critical: m.GetCritical(),
		Misses: m.GetMisses(), Disputed: m.GetDisputed(), Lately: readCounted(m.GetLately()), Overdue: readLimits(m.GetOverdue()),
		AtSensitivity: readLimits(m.GetAtSensitivity()), Verdict: verdictOf(m.GetVerdict()),
		Unweighted: math.NaN(), Line: math.NaN(), Needed: math.NaN(),
	}
	average := readLimits(m.GetAverage())
	f.Value, f.Low, f.High = average.Value, average.Low, average.High
	if m == nil {
		return f
	}
	if m.GetFigure() == ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE {
		f.Risk = evidence.MissRate
	}
	f.Unweighted, f.Line, f.Needed = number(m.Unweighted), number(m.Line), number(m.OutcomesNeeded)
	if a := m.GetMonitor(); a != nil {
		f.Monitor = &ledger.Monitor{
			Evidence: a.GetEvidence(), RunLength: a.GetRunLength(), RunLengthInputs: number(a.RunLengthInputs), LogEvidence: a.GetLogEvidence(),
			Raised: a.GetRaised(), RaisedBy: timeOf(a.GetRaisedBy()), Replayed: a.GetReplayed(),
		}
	}
	return f
}

func readPoint(m *ckdv1.RiskPoint) ledger.PointRisk {
	p := ledger.PointRisk{Cohort: math.NaN(), Line: math.NaN(), LogEvidence: math.NaN()}
	average := readLimits(m.GetAverage())
	p.Value, p.Low, p.High = average.Value, average.Low, average.High
	if m != nil {
		p.Cohort, p.Line, p.LogEvidence = number(m.Cohort), number(m.Line), number(m.LogEvidence)
	}
	return p
}

func readCounted(m *ckdv1.CountedShare) ledger.Share {
	l := readLimits(m.GetShare())
	return ledger.Share{Of: m.GetOf(), Value: l.Value, Low: l.Low, High: l.High, Events: m.GetEvents(), Total: m.GetTotal()}
}

func readLimits(m *ckdv1.Share) ledger.Limits {
	if m == nil {
		return ledger.Limits{Value: math.NaN(), Low: math.NaN(), High: math.NaN()}
	}
	return ledger.Limits{Value: m.GetValue(), Low: m.GetLow(), High: m.GetHigh()}
}

// number returns a number, or NaN if it is absent.
func number(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// verdictOf returns the verdict of a number of the wire.
func verdictOf(v ckdv1.Verdict) ledger.Verdict {
	for verdict, message := range verdictMessages {
		if message == v {
			return verdict
		}
	}
	return ledger.NoLine
}

// reasonOf returns the reason of a number of the wire.
func reasonOf(r ckdv1.DecisionReason) policy.Reason {
	for reason := range policy.Reasons {
		if reasonMessage(reason) == r {
			return reason
		}
	}
	return 0
}
