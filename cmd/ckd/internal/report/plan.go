package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/outcome/plan"
	"github.com/ckd-project/ckd/policy"
)

// Plan returns a plan of audits as a document.
func Plan(p *plan.Plan, model string, passes eval.File) *document.Document {
	return &document.Document{
		Title: titled("Audits of "+model, passes), Notes: p.Notes,
		Sections: []document.Section{auditSection(p)},
	}
}

// auditSection shows what audit rates cost and show.
func auditSection(p *plan.Plan) document.Section {
	name := p.Bounds.Words()
	cost := &document.Table{Caption: "Audit rates", Head: []string{
		"audit rate", "reviews per 1,000 inputs", "of these deferred", "of these audits", "interval after a month", "width", "inputs between false alarms",
	}}
	delays := &document.Table{Caption: "Until the alarm", Head: []string{
		"audit rate", "doubles: inputs", "audits", "days", "triples: inputs", "audits", "days",
	}}
	for _, r := range p.Rates {
		interval, width := any("n/a"), any("n/a")
		if r.Width != nil {
			interval, width = document.ShareInterval([2]float64{*r.Low, *r.High}), document.Share(*r.Width)
		}
		cost.Add(document.Share(r.Rate), rounded(r.DeferredPer1000+r.AuditsPer1000), rounded(r.DeferredPer1000), rounded(r.AuditsPer1000),
			interval, width, rounded(r.InputsBetweenAlarms))
		delays.Add(append(append([]any{document.Share(r.Rate)}, delayCells(r.Double)...), delayCells(r.Triple)...)...)
	}
	line := "The policy has no line."
	if p.Line != nil {
		line = fmt.Sprintf("The line of the %s is %s.", name, document.Percent(*p.Line))
	}
	if p.InRecording != nil {
		line += fmt.Sprintf(" In the recording the %s is %s.", name, document.Percent(*p.InRecording))
	}
	called := "are audited too"
	if p.PredictedCritical == policy.CriticalFree {
		called = "are worked up anyway, and cost no audit"
	}
	return document.NewSection("audits", "What audits cost and show", fmt.Sprintf("%s At %s inputs a day; retained inputs that are "+
		"called critical %s. The interval is 95%%, valid at all times at once, after %d days with the risk of the recording. Doubles and "+
		"triples say when the alarm is raised once the risk is two and three times the line, after 1,000 good outcomes: medians of "+
		"simulations, in brackets what 90%% of them do not exceed; outcomes count when they are due. Deferring everything that is called "+
		"safe (on_breach: defer) takes %s reviews per 1,000 inputs.",
		line, rounded(p.InputsPerDay), called, p.Days, rounded(p.SurgePer1000)), cost, delays)
}

// delayCells returns the cells of a delay.
func delayCells(d *plan.Delay) []any {
	if d == nil {
		return []any{"n/a", "n/a", "n/a"}
	}
	if d.Inputs == nil {
		return []any{"over " + rounded(d.Longest), "n/a", "n/a"}
	}
	return []any{withMost(*d.Inputs, d.InputsIn90, d.Longest), withMost(*d.Audits, d.AuditsIn90, math.Inf(1)), rounded(*d.Days)}
}

// withMost returns a median with what 90% do not exceed.
func withMost(median float64, in90 *float64, longest float64) string {
	switch {
	case in90 != nil:
		return fmt.Sprintf("%s [%s]", rounded(median), rounded(*in90))
	case math.IsInf(longest, 1):
		return rounded(median)
	}
	return fmt.Sprintf("%s [over %s]", rounded(median), rounded(longest))
}

// rounded returns a number of which two digits count.
func rounded(v float64) string {
	if v == 0 || v < 10 && v >= 0.1 {
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	if v < 0.1 {
		return "under 0.1"
	}
	unit := math.Pow(10, max(math.Floor(math.Log10(v))-2, 0))
	return document.Count(int(math.Round(v/unit) * unit))
}
