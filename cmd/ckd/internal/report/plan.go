package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/outcome/plan"
	"github.com/ckd-project/ckd/policy"
)

// Plan returns a plan of audits as a document.
func Plan(p *plan.Plan, of *policy.Policy, passes eval.File) *document.Document {
	screen := planScreen(p)
	if c := of.Calibration; c != nil && c.Recording.PassesSHA256 != "" && strings.EqualFold(c.Recording.PassesSHA256, passes.SHA256) {
		screen.Rests = slices.Insert(screen.Rests, 0, "The policy was calibrated on this recording, all of whose inputs count here, which flatters it: plan on another.")
	}
	return &document.Document{
		Title: titled("Audits of "+of.Name, passes), Screen: screen, Notes: p.Notes,
		Sections: []document.Section{auditSection(p)},
	}
}

// Times, in days, within which a rate is to find a doubling.
const (
	month = 30
	year  = 365
)

// advice names the audit rate to choose, with the reason.
type advice struct {
	rate *plan.Rate
	// slow says that no rate finds a doubling within a month, blind that none does within a year.
	slow, blind bool
	why         string
}

// advise chooses the least rate that finds a doubling within a month and says "holding" within one, else
// the least that finds a doubling, else the highest. Where nothing is known it takes the middle one.
func advise(p *plan.Plan) advice {
	var finds, both *plan.Rate
	for i := range p.Rates {
		r := &p.Rates[i]
		if !r.Finds(p.InputsPerDay, month) {
			continue
		}
		if finds == nil {
			finds = r
		}
		if both == nil && holdsWithin(r, month) {
			both = r
		}
	}
	highest := &p.Rates[len(p.Rates)-1]
	const least = "the least of these that finds twice the line within a month in 9 of 10 simulations"
	switch {
	case both != nil:
		return advice{rate: both, why: least + " and says holding within a month in half of them"}
	case finds != nil && finds.Holding != nil:
		return advice{rate: finds, why: least + "; none says holding within a month"}
	case finds != nil:
		return advice{rate: finds, why: least}
	case highest.Double == nil:
		return advice{rate: &p.Rates[len(p.Rates)/2], why: "the middle of these, until more is known"}
	}
	return advice{rate: highest, slow: true, blind: !highest.Finds(p.InputsPerDay, year), why: "the highest of these; none finds twice the line within a month in 9 of 10 simulations"}
}

// holdsWithin reports whether half of the simulations say "holding" within some days.
func holdsWithin(r *plan.Rate, days float64) bool {
	return r.Holding != nil && r.Holding.Days != nil && *r.Holding.Days <= days
}

// planScreen says first what the rate to choose finds out and what that costs, or that traffic is too low.
func planScreen(p *plan.Plan) document.Screen {
	chosen, name := advise(p), p.Bounds.Words()
	rate := chosen.rate
	reviews := rate.DeferredPer1000 + rate.AuditsPer1000
	s := document.Screen{Lead: fmt.Sprintf("%s%s It takes %s deferred and audited per 1,000 inputs: %s a day, %s of them audits.%s", breaks(p), finds(p, &chosen),
		rounded(reviews), rounded(reviews*p.InputsPerDay/1000), rounded(rate.AuditsPer1000*p.InputsPerDay/1000), readAll(p))}
	s.Table = &document.Table{TextColumns: 1, Head: []string{
		"audit rate", "reviews per 1,000", "audits of these", "95% interval after a month", "holding said: days (9 in 10)", "twice the line: days until seen (9 in 10)", "three times: days until seen (9 in 10)",
	}}
	rows := p.Rates
	if p.Everything != nil {
		rows = append(slices.Clone(rows[min(1, len(rows)-1):]), *p.Everything)
	}
	for _, r := range rows {
		interval := any("n/a")
		if r.Width != nil {
			interval = document.ShareInterval([2]float64{*r.Low, *r.High})
		}
		s.Table.Add(document.Percent(r.Rate), rounded(r.DeferredPer1000+r.AuditsPer1000), rounded(r.AuditsPer1000), interval,
			daysOf(p, r.Holding), daysOf(p, r.Double), daysOf(p, r.Triple))
	}
	if p.Line != nil {
		s.Rests = append(s.Rests, fmt.Sprintf("Days until seen: from when the %s rises to two and three times its line of %s, after 1,000 good outcomes. "+
			"To all days add %s until outcomes are due.", name, document.Percent(*p.Line), rounded(p.DueDays)))
	}
	if p.InRecording != nil {
		s.Rests = append(s.Rests, recorded(p, name))
	}
	called := "are audited too"
	if p.PredictedCritical == policy.CriticalFree {
		called = "are worked up anyway, and cost no audit"
	}
	s.Rests = append(s.Rests,
		fmt.Sprintf("%s inputs a day; retained inputs that are called critical %s.", rounded(p.InputsPerDay), called),
		fmt.Sprintf("A false alarm: about one in %s inputs (once in %s).", rounded(rate.InputsBetweenAlarms),
			spell(rate.InputsBetweenAlarms/p.InputsPerDay)))
	if rate.AuditsPer1000 < 0.99*rate.Rate*(1000-rate.DeferredPer1000) {
		free := ""
		if p.PredictedCritical == policy.CriticalFree {
			free = " and critical calls cost no audit"
		}
		s.Rests = append(s.Rests, fmt.Sprintf("Likelier misses are drawn more often%s, so that audits are fewer than %s of the retained inputs.", free,
			document.Percent(rate.Rate)))
	}
	if breaks(p) != "" {
		s.Next = append(s.Next, "First calibrate on data like those that will come: on this recording the alarm would sound with nothing changed.")
	}
	s.Next = append(s.Next, planNext(p, &chosen)...)
	return s
}

// recorded says what the recording shows, and what the page says as long as that goes on.
func recorded(p *plan.Plan, name string) string {
	text := fmt.Sprintf("In this recording the %s is %s: the interval is what a month of such traffic shows.", name, document.Percent(*p.InRecording))
	switch {
	case p.Line == nil:
		return text
	case p.Rates[0].Holding == nil:
		return text + " The verdict holding needs less than the line: such traffic never reaches it."
	}
	return text + " Holding, the verdict that misses lie below the line, comes first after these days of it, if all outcomes arrive; until then the page says too few outcomes."
}

// planNext names the rate with its reason or, where traffic is too low, what to do instead.
func planNext(p *plan.Plan, chosen *advice) []string {
	write := fmt.Sprintf("Write audit: {rate: %v} into the policy: %s.", chosen.rate.Rate, chosen.why)
	surge := fmt.Sprintf("To have everything called safe deferred while the alarm is up, which takes %s reviews per 1,000 inputs: audit: {rate: %v, "+
		"on_breach: defer, surge: %.0f}.", rounded(p.SurgePer1000), chosen.rate.Rate, math.Ceil(p.SurgePer1000))
	if !chosen.slow || p.Everything == nil {
		return []string{write, surge}
	}
	all := p.Everything
	read := fmt.Sprintf("everything read for a while, as with audit: {rate: 1, m: 1}: %s reviews a day, and what is read is not missed.",
		rounded((all.DeferredPer1000+all.AuditsPer1000)*p.InputsPerDay/1000))
	pool := "Pool sites that use this model and policy in one ledger"
	if in90 := chosen.rate.Double.InputsIn90; in90 != nil {
		pool += fmt.Sprintf(": from %s inputs a day on, auditing %s finds twice the line within a month in 9 of 10 simulations", rounded(*in90/month), document.Percent(chosen.rate.Rate))
		if chosen.blind {
			pool += fmt.Sprintf(", from %s on within a year", rounded(*in90/year))
		}
	}
	if !chosen.blind {
		return []string{write, "To learn sooner, have " + read, pool + ".", surge}
	}
	return []string{
		"Do not rely on audits. Have " + read, pool + ".",
		"Else judge once a year by a new labelled recording: ckd calibrate anew on it.",
	}
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
	text := fmt.Sprintf("rise to %s (twice the line of %s", document.Percent(2**p.Line), document.Percent(*p.Line))
	if p.Expected != nil {
		text += "; expected " + document.Percent(*p.Expected)
	}
	return text + ")"
}

// finds says when the chosen rate finds out that misses rose to twice the line, and what is missed by then,
// or why it does not. Where traffic is too low it says so first.
func finds(p *plan.Plan, chosen *advice) string {
	r := chosen.rate
	auditing := document.Percent(r.Rate)
	switch d := r.Double; {
	case (d == nil || p.Line == nil) && len(p.Notes) > 0:
		return "When audits find out that misses double is not known: " + strings.Join(p.Notes, "; ") + "."
	case d == nil || p.Line == nil:
		return "Misses cannot double: the line is at a half or more."
	case chosen.blind:
		return fmt.Sprintf("With %s inputs a day audits cannot tell within a year whether misses doubled: if they %s, even auditing %s %s.",
			rounded(p.InputsPerDay), rise(p), auditing, found(p, d))
	case chosen.slow:
		return fmt.Sprintf("With %s inputs a day audits learn slowly: if misses %s, even auditing %s %s%s.",
			rounded(p.InputsPerDay), rise(p), auditing, found(p, d), wide(p, r))
	default:
		return fmt.Sprintf("Audit %s of what is retained: if misses %s, that %s.%s", auditing, rise(p), found(p, d), holds(r))
	}
}

// found says when a doubling is found, and how many critical inputs are missed until then: days times the
// share that the figure divides by times the figure.
func found(p *plan.Plan, d *plan.Delay) string {
	longest := rounded(d.Longest / p.InputsPerDay)
	if d.Inputs == nil {
		return fmt.Sprintf("does not find out within %s days (half of the simulations)", longest)
	}
	most := "9 in 10 within "
	if d.InputsIn90 == nil {
		most = "one in 10 takes over "
	} else {
		longest = rounded(*d.InputsIn90 / p.InputsPerDay)
	}
	missed := (*d.Inputs + p.DueDays*p.InputsPerDay) * p.CountedShare * 2 * *p.Line
	return fmt.Sprintf("finds out after %s days (half of the simulations; %s%s), plus %s until outcomes are due; about %s critical inputs are missed by then",
		rounded(*d.Days), most, longest, rounded(p.DueDays), rounded(missed))
}

// wide says that a month tells nothing, where its interval is wider than the line.
func wide(p *plan.Plan, r *plan.Rate) string {
	if r.Width == nil || *r.Width <= *p.Line {
		return ""
	}
	return fmt.Sprintf("; after a month all that is known is a rate of %s", document.PercentRange(*r.Low, *r.High))
}

// holds says when the page first says that the promise holds.
func holds(r *plan.Rate) string {
	switch {
	case r.Holding == nil:
		return ""
	case r.Holding.Days == nil:
		return " If nothing changes, it takes longer than was simulated until the page says holding."
	}
	return fmt.Sprintf(" If nothing changes, the page says holding after %s days.", rounded(*r.Holding.Days))
}

// readAll says when reading everything finds out, where no rate does within a month.
func readAll(p *plan.Plan) string {
	switch {
	case p.Everything == nil || p.Everything.Double == nil:
		return ""
	case p.Everything.Double.Days == nil || *p.Everything.Double.Days > year:
		return " Not even reading everything finds out within a year."
	}
	return fmt.Sprintf(" Reading everything finds out after %s days.", rounded(*p.Everything.Double.Days))
}

// daysOf returns the median of the days that something takes, with what 9 in 10 simulations do not exceed.
// What takes longer than a year is not worth a number.
func daysOf(p *plan.Plan, d *plan.Delay) string {
	if d == nil {
		return "n/a"
	}
	days := func(inputs *float64) string {
		switch {
		case inputs == nil && d.Longest <= year*p.InputsPerDay:
			return "over " + rounded(d.Longest/p.InputsPerDay)
		case inputs == nil || *inputs > year*p.InputsPerDay:
			return "over a year"
		}
		return rounded(*inputs / p.InputsPerDay)
	}
	median, most := days(d.Inputs), days(d.InputsIn90)
	if strings.HasPrefix(median, "over") {
		return median
	}
	return fmt.Sprintf("%s (%s)", median, most)
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
	holding := &document.Table{Caption: "Until the promise is said to hold", Head: []string{"audit rate", "inputs", "audits", "days"}}
	rows := p.Rates
	if p.Everything != nil {
		rows = append(slices.Clone(rows), *p.Everything)
	}
	for _, r := range rows {
		interval, width := any("n/a"), any("n/a")
		if r.Width != nil {
			interval, width = document.ShareInterval([2]float64{*r.Low, *r.High}), document.Share(*r.Width)
		}
		cost.Add(document.Share(r.Rate), rounded(r.DeferredPer1000+r.AuditsPer1000), rounded(r.DeferredPer1000), rounded(r.AuditsPer1000),
			interval, width, rounded(r.InputsBetweenAlarms))
		delays.Add(slices.Concat([]any{document.Share(r.Rate)}, delayCells(r.Double), delayCells(r.Triple))...)
		holding.Add(append([]any{document.Share(r.Rate)}, delayCells(r.Holding)...)...)
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
		"simulations, in brackets what 90%% of them do not exceed; outcomes count when they are due. Holding says when the rate is first "+
		"said to lie below the line, with the risk of the recording. Deferring everything that is called "+
		"safe takes %s reviews per 1,000 inputs.",
		line, rounded(p.InputsPerDay), called, p.Days, rounded(p.SurgePer1000)), cost, delays, holding)
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
