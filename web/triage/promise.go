package triage

import (
	"encoding/hex"
	"math"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
)

// maxPoints is how many points of a promise's history the page shows, the last ones.
const maxPoints = 400

// strata names the strata.
var strata = [...]string{"", "deferred", "called_critical", "called_safe"}

// promisesOf returns the promises of a policy as the page shows them; nil without a ledger.
func promisesOf(all []*ledger.Promise, hash string) []pagestate.Promise {
	if all == nil {
		return nil
	}
	found := []pagestate.Promise{}
	for _, p := range all {
		if hex.EncodeToString(p.Policy[:]) == hash {
			found = append(found, describePromise(p))
		}
	}
	return found
}

func describePromise(p *ledger.Promise) pagestate.Promise {
	d := pagestate.Promise{
		ModelVersion: p.Version, Verdict: p.Verdict.String(), Alarm: p.Alarm, Why: append([]string{}, p.Why...),
		Period: p.Cohorts.Period.Seconds(), Due: p.Cohorts.Due.Seconds(), Mature: p.Cohorts.Mature, Open: p.Cohorts.Open,
		Since: timeOrNull(p.Cohorts.Since), Next: timeOrNull(p.Cohorts.NextMature), Decided: float64(p.Provisional.Decided),
		Figures: []pagestate.Figure{}, Provisional: interval(p.Provisional.FNR.Value, p.Provisional.FNR.Low, p.Provisional.FNR.High),
		Strata: []pagestate.Stratum{}, Traffic: shareOf(p.Traffic), Worth: shareOf(p.Mature.Yield.Worth), Critical: shareOf(p.Mature.Yield.Critical),
		Yield: []pagestate.Yield{}, History: []pagestate.PromisePoint{},
	}
	if p.Audit != nil {
		d.Defers = p.Audit.OnBreach == policy.DeferOnBreach
	}
	for i, f := range append([]ledger.Figure{p.Mature.FNR, p.Mature.MissRate}, p.Mature.Classes...) {
		if i < 2 || !math.IsNaN(f.Line) {
			d.Figures = append(d.Figures, describeFigure(&f))
		}
	}
	for i := range p.Strata {
		s := &p.Strata[i]
		expected := number(s.Expected)
		if s.Free {
			expected = nil // nobody is asked for a review: the outcomes come anyway
		}
		d.Strata = append(d.Strata, pagestate.Stratum{
			Name: strata[s.Stratum], Decisions: float64(s.Decisions), Reviews: float64(s.Reviews), Expected: expected,
			Due: float64(s.Due), Arrived: float64(s.Arrived), Overdue: float64(s.Overdue), Late: shareOf(s.Late),
		})
	}
	for _, y := range p.Mature.Yield.Reasons {
		d.Yield = append(d.Yield, pagestate.Yield{Reason: y.Reason.String(), Worth: shareOf(y.Worth), Critical: shareOf(y.Critical)})
	}
	for _, h := range p.History[max(0, len(p.History)-maxPoints):] {
		d.History = append(d.History, pagestate.PromisePoint{
			At: h.Start.UnixMilli(), Value: number(h.FNR.Value), Low: number(h.FNR.Low), High: number(h.FNR.High),
			Line: number(h.FNR.Line), Evidence: number(h.FNR.LogEvidence),
		})
	}
	return d
}

func describeFigure(f *ledger.Figure) pagestate.Figure {
	d := pagestate.Figure{
		Name: map[evidence.Risk]string{evidence.FNR: "critical_fnr", evidence.MissRate: "critical_miss_rate"}[f.Risk], Class: f.Class,
		Outcomes: float64(f.Outcomes),
		Average:  interval(f.Value, f.Low, f.High), Lately: shareOf(f.Lately), Unweighted: number(f.Unweighted),
		OverdueLow: number(f.Overdue.Low), OverdueHigh: number(f.Overdue.High),
		Line: number(f.Line), Needed: number(f.Needed),
	}
	if m := f.Monitor; m != nil {
		d.Evidence, d.RunLength, d.RunLengthInputs = number(m.LogEvidence), number(m.RunLength), number(m.RunLengthInputs)
		d.Raised = m.Raised
	}
	return d
}

func shareOf(s ledger.Share) *pagestate.Interval { return interval(s.Value, s.Low, s.High) }

// interval returns null where nothing was seen.
func interval(value, low, high float64) *pagestate.Interval {
	if !finite(value) || !finite(low) || !finite(high) {
		return nil
	}
	return &pagestate.Interval{Value: value, Low: low, High: high}
}

// number returns null for a number that is not finite.
func number(v float64) *float64 {
	if !finite(v) {
		return nil
	}
	return &v
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
