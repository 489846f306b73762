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
		Title: titled("Audits of "+model, passes), Screen: planScreen(p), Notes: p.Notes,
		Sections: []document.Section{auditSection(p)},
	}
}

// planScreen says first what the middle rate finds out, and what that costs.
func planScreen(p *plan.Plan) document.Screen {
	middle, name := &p.Rates[len(p.Rates)/2], p.Bounds.Words()
	reviews := middle.DeferredPer1000 + middle.AuditsPer1000
	s := document.Screen{Lead: fmt.Sprintf("%s%s It takes %s deferred and audited per 1,000 inputs: %s a day, %s of them audits.", breaks(p), finds(p, middle),
		rounded(reviews), rounded(reviews*p.InputsPerDay/1000), rounded(middle.AuditsPer1000*p.InputsPerDay/1000))}
	s.Table = &document.Table{TextColumns: 1, Head: []string{
		"audit rate", "reviews per 1,000", "audits of these", "95% interval after a month", "twice the line: days until seen (9 in 10)", "three times: days until seen (9 in 10)",
	}}
	for _, r := range p.Rates {
		interval := any("n/a")
		if r.Width != nil {
			interval = document.ShareInterval([2]float64{*r.Low, *r.High})
		}
		s.Table.Add(document.Percent(r.Rate), rounded(r.DeferredPer1000+r.AuditsPer1000), rounded(r.AuditsPer1000), interval,
			daysOf(p, r.Double), daysOf(p, r.Triple))
	}
	if p.Line != nil {
		s.Rests = append(s.Rests, fmt.Sprintf("Days until seen: from when the %s rises to two and three times its line of %s, after 1,000 good outcomes.",
			name, document.Percent(*p.Line)))
	}
	if p.InRecording != nil {
		s.Rests = append(s.Rests, fmt.Sprintf("In this recording the %s is %s: the interval is what a month of such traffic would show.", name,
			document.Percent(*p.InRecording)))
	}
	called := "are audited too"
	if p.PredictedCritical == policy.CriticalFree {
		called = "are worked up anyway, and cost no audit"
	}
	s.Rests = append(s.Rests,
		fmt.Sprintf("%s inputs a day; retained inputs that are called critical %s. Days count until outcomes are due; the time that readers take comes on top.",
			rounded(p.InputsPerDay), called),
		fmt.Sprintf("A false alarm: about one in %s inputs (once in %s).", rounded(middle.InputsBetweenAlarms),
			spell(middle.InputsBetweenAlarms/p.InputsPerDay)))
	if middle.AuditsPer1000 < 0.99*middle.Rate*(1000-middle.DeferredPer1000) {
		free := ""
		if p.PredictedCritical == policy.CriticalFree {
			free = " and critical calls cost no audit"
		}
		s.Rests = append(s.Rests, fmt.Sprintf("Likelier misses are drawn more often%s, so that audits are fewer than %s of the retained inputs.", free,
			document.Percent(middle.Rate)))
	}
	s.Next = []string{
		fmt.Sprintf("Choose a rate and write it into the policy, as in audit: {rate: %v}.", middle.Rate),
		fmt.Sprintf("To have everything called safe deferred while the alarm is up, plan for %s reviews per 1,000 inputs and write on_breach: defer.",
			rounded(p.SurgePer1000)),
	}
	return s
}

// breaks says that the recording is above the line itself, where it is.
func breaks(p *plan.Plan) string {
	if p.Line == nil || p.InRecording == nil || *p.InRecording <= *p.Line {
		return ""
	}
	return fmt.Sprintf("This recording already breaks the line: %s missed against %s: it is not like the one that the policy was set on. ",
		document.Percent(*p.InRecording), document.Percent(*p.Line))
}

// spell returns a number of days as words, in years where it is one or more.
func spell(days float64) string {
	if years := days / 365.25; years >= 1 {
		return rounded(years) + " years"
	}
	return rounded(days) + " days"
}

// rise says to what the misses rise, beside what was expected.
func rise(p *plan.Plan) string {
	text := fmt.Sprintf("If misses rise to %s (twice the line of %s", document.Percent(2**p.Line), document.Percent(*p.Line))
	if p.Expected != nil {
		text += "; expected " + document.Percent(*p.Expected)
	}
	return text + ")"
}

// finds says when a rate finds out that misses rose to twice the line, and what is missed by then, or why
// it never does.
func finds(p *plan.Plan, r *plan.Rate) string {
	auditing := document.Percent(r.Rate)
	switch d := r.Double; {
	case (d == nil || p.Line == nil) && len(p.Notes) > 0:
		return "When audits find out that misses double is not known: " + strings.Join(p.Notes, "; ") + "."
	case d == nil || p.Line == nil:
		return "Misses cannot double: the line is at a half or more."
	case d.Inputs == nil:
		return fmt.Sprintf("%s, auditing %s does not find out within %s days (half of the simulations).", rise(p), auditing,
			rounded(d.Longest/p.InputsPerDay))
	case d.InputsIn90 == nil:
		return fmt.Sprintf("%s, auditing %s finds out after %s days (half of the simulations; one in 10 takes over %s); %s.", rise(p), auditing,
			rounded(*d.Days), rounded(d.Longest/p.InputsPerDay), missedBefore(p, d))
	default:
		return fmt.Sprintf("%s, auditing %s finds out after %s days (half of the simulations; 9 in 10 within %s); %s.", rise(p), auditing,
			rounded(*d.Days), rounded(*d.InputsIn90/p.InputsPerDay), missedBefore(p, d))
	}
}

// missedBefore says how many critical inputs are missed until half of the simulations find out: inputs times the
// share that the figure divides by times the figure.
func missedBefore(p *plan.Plan, d *plan.Delay) string {
	return fmt.Sprintf("about %s critical inputs are missed by then", rounded(*d.Inputs*p.CountedShare*2**p.Line))
}

// daysOf returns the median of the days until the alarm, with what 9 in 10 simulations do not exceed.
func daysOf(p *plan.Plan, d *plan.Delay) string {
	switch {
	case d == nil:
		return "n/a"
	case d.Inputs == nil:
		return "over " + rounded(d.Longest/p.InputsPerDay)
	case d.InputsIn90 == nil:
		return fmt.Sprintf("%s (over %s)", rounded(*d.Days), rounded(d.Longest/p.InputsPerDay))
	}
	return fmt.Sprintf("%s (%s)", rounded(*d.Days), rounded(*d.InputsIn90/p.InputsPerDay))
}

// auditSection shows what audit rates cost and show.
func auditSection(p *plan.Plan) document.Section {
	name := p.Bounds.Words()
	cost := &document.Table{Caption: "Audit rates", Head: []string{
		"audit rate", "reviews per 1,000 inputs", "deferred of these", "audits of these", "interval after a month", "width", "inputs between false alarms",
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
		"safe takes %s reviews per 1,000 inputs.",
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
