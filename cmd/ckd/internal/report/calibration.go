package report

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// Calibration returns a calibration as a document. The policy was written to policyFile; "" stands for
// the standard output.
func Calibration(r *calibrate.Report, policyFile string) *document.Document {
	d := &document.Document{Title: titled("Calibration", r.PassesFile), Screen: document.Screen{Warnings: passcheck.Texts(r.Signs)}, Notes: r.Notes}
	if r.Objective != "" {
		counted := fmt.Sprintf("%s of %d passes", document.Noun(r.Inputs, "input"), r.Passes)
		if r.FromOutcomes {
			counted = document.Noun(r.Inputs, "reviewed input")
		}
		d.Screen.Lead = fmt.Sprintf("Objective: %s, scope %s. %s; %d are critical, and %d of these are missed without deferral.",
			r.Objective, r.Scope, counted, r.Critical, r.Missed)
	}
	if r.Gain != "" {
		d.Screen.Lead = r.Gain + " " + d.Screen.Lead
	}
	if r.Chosen != nil {
		d.Sections = append(d.Sections, chosenSection(r))
	}
	if r.Expected != nil {
		d.Sections = append(d.Sections, expectedSection(r.Expected, r.Groups > 0))
	}
	if r.Certificate != nil || r.Refusal != nil || r.Objective != "" && !r.Refused() {
		d.Sections = append(d.Sections, certificateSection(r))
	}
	if len(r.Reread) > 0 {
		d.Sections = append(d.Sections, rereadSection(r))
	}
	if len(r.Lines) > 0 {
		d.Sections = append(d.Sections, linesSection(r.Lines))
	}
	if s := r.EarlyStop; s != nil {
		d.Sections = append(d.Sections, earlyStopSection(s))
		if s.Rule != nil {
			d.Sections = append(d.Sections, fullDecisionSection(s))
		}
	}
	if r.Risk != nil {
		d.Sections = append(d.Sections, riskSection(r.Risk, r.Groups > 0))
	}
	if len(r.Costs) > 0 {
		d.Sections = append(d.Sections, costSection(r))
	}
	if len(r.Comparison) > 0 {
		d.Sections = append(d.Sections, comparisonSection(r))
	}
	if len(r.Why) > 0 {
		d.Sections = append(d.Sections, document.Section{ID: "why", Title: "Why", Points: r.Why})
	}
	settings := append([]setting{{"software", r.Software}}, fileSettings("passes", r.PassesFile)...)
	if r.LabelsFile.Name != "" {
		settings = append(settings, fileSettings("labels", r.LabelsFile)...)
	}
	if r.GroupsFile != nil {
		settings = append(settings, fileSettings("groups", *r.GroupsFile)...)
	}
	settings = append(settings, setting{"seed", strconv.FormatUint(r.Seed, 10)})
	d.Sections = append(d.Sections, computed("ckd calibrate", settings...))
	if policyFile != "" && !r.Refused() {
		d.Sections = append(d.Sections, document.NewSection("policy", "Policy",
			fmt.Sprintf("%s has it: load it with \"ckd serve --policy %s\", and see with \"ckd check %s\" what it means. Its hash "+
				"is %s.", policyFile, policyFile, policyFile, r.PolicyHash)))
	}
	return d
}

// chosenSection shows the gate, its scores and their thresholds. The policy has all digits of the
// thresholds.
func chosenSection(r *calibrate.Report) document.Section {
	title := "Chosen: gate "
	if r.Objective == "" {
		title = "Kept: gate "
	}
	t := &document.Table{Caption: "Scores and thresholds", Head: []string{"rule", "score", "threshold"}, TextColumns: 2}
	add := func(name string, at calibrate.Threshold) {
		t.Add(name, at.Score, strconv.FormatFloat(at.Threshold, 'g', 6, 64))
	}
	add("primary", r.Chosen.Primary)
	if fallback := r.Chosen.Fallback; fallback != nil {
		add("fallback", *fallback)
	}
	if guard := r.Chosen.Guard; guard != nil {
		t.Add("guard", guard.Score, strconv.FormatFloat(guard.Threshold, 'g', 6, 64))
	}
	return document.NewSection("chosen", title+string(r.Chosen.Gate),
		"An input is retained when the score that the gate chooses is at or under its threshold.", t)
}

// expectedSection shows what unseen inputs will show.
func expectedSection(e *calibrate.Expected, byGroup bool) document.Section {
	t := &document.Table{Caption: "Expected figures", Head: []string{"figure", "value", "95% interval"}, TextColumns: 1}
	t.Add("coverage", document.Share(e.Coverage), document.ShareInterval(e.CoverageInterval))
	intro := "Intervals are exact (Clopper-Pearson)."
	if byGroup {
		intro = "Intervals are by group: inputs of one group may hang together in any way."
	}
	intro += " The critical miss rate is of all critical inputs, the critical FNR of those retained."
	for _, figure := range []struct {
		name     string
		value    *float64
		interval *[2]float64
	}{{"critical miss rate", e.CriticalMissRate, e.CriticalMissRateInterval}, {"critical FNR", e.CriticalFNR, e.CriticalFNRInterval}} {
		if figure.value != nil {
			t.Add(figure.name, document.Share(*figure.value), document.ShareInterval(*figure.interval))
		}
	}
	if e.CriticalMissRate == nil {
		intro = "Of misses the certificate says what can be said."
	}
	return document.NewSection("expected", "Expected on unseen inputs", intro, t)
}

// certificateSection says what is guaranteed, or why nothing is.
func certificateSection(r *calibrate.Report) document.Section {
	s := document.Section{ID: "certificate", Title: "No certificate"}
	switch c := r.Certificate; {
	case c != nil && c.Void != "":
		s.Intro = c.Void
	case c != nil:
		s.Title, s.Intro = "Certificate", "For this one attempt on this recording, by "+string(c.Kind)
		if c.PValue > 0 {
			s.Intro += " (p = " + document.Digits(c.PValue) + ")"
		}
		s.Intro += ": " + c.Statement // ends with what it presumes
		s.Intro += " It takes the labels as the truth; docs/calibrate.md says what wrong ones do."
	case r.Refusal != nil:
		s.Title, s.Intro = "Nothing certifies", sentence(r.Refusal.Reason)
		if would := r.Refusal.Would; len(would) > 0 {
			s.Intro += " On this recording these would have been certified; on it a second attempt is void, so try them on fresh data:"
			s.Points = would
		}
	default:
		s.Intro = "A coverage guarantees nothing about misses: see --max-critical-miss and --max-critical-fnr."
	}
	return s
}

// sentence ends a text with a full stop, unless it ends in one or with a question.
func sentence(text string) string {
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

// rereadSection shows the inputs whose labels are to be read again.
func rereadSection(r *calibrate.Report) document.Section {
	name := "risk"
	if r.Risk == nil {
		name = string(policy.PCritical)
	}
	t := &document.Table{Caption: "Critical inputs of least " + name, Head: []string{"label", "predicted", "input", name}, TextColumns: 2}
	for _, input := range r.Reread {
		t.Add(input.Label, input.Predicted, strconv.Itoa(input.Input), document.Digits(input.Risk))
	}
	return document.NewSection("reread", "Labels to read again",
		"Of the critical inputs that are called safe, the model is surest of these. A wrong label among them costs coverage. Inputs "+
			"count from 0, as in the file.", t)
}

// linesSection shows what outcomes are tested against.
func linesSection(lines []policy.Line) document.Section {
	t := &document.Table{Caption: "Lines", Head: []string{"figure", "inputs", "alarm above", "from"}, TextColumns: 2}
	names := map[policy.Figure]string{policy.CriticalFNR: "critical FNR", policy.CriticalMissRate: "critical miss rate"}
	for _, l := range lines {
		t.Add(names[l.Bounds], cmp.Or(l.Class, "all critical"), document.Share(l.Above), l.Origin())
	}
	return document.NewSection("lines", "What outcomes are tested against",
		"Once outcomes come back, an alarm is raised when they are evidence of more misses than this; see ckd outcomes plan. Nothing "+
			"here changes a decision.", t)
}

// earlyStopSection says what the early-stopping rule does, or why there is none.
func earlyStopSection(e *calibrate.EarlyStop) document.Section {
	if e.Refusal != nil {
		return document.NewSection("early-stop", "Nothing certifies a rule to stop early", e.Refusal.Reason+".")
	}
	order := "any order"
	if e.Order == policy.MembersOrder {
		order = "the order of the recording, which is that of the ensemble's members"
	}
	r := e.Rule
	intro := fmt.Sprintf("%s On these inputs it used %.3g of %d passes on average, which is %.3g times fewer. After %d to %d passes, "+
		"%d of %d inputs were decided early. Passes come in %s. The rule has %d fitted numbers.", r.Statement, r.MeanPasses, e.Passes, r.Saving, r.FirstAfter, r.LastAfter,
		r.Settled, e.CertifiedOn, order, r.Numbers)
	t := &document.Table{
		Caption: "What early decisions change", Says: fmt.Sprintf("The upper bounds hold with confidence %v.", e.Confidence),
		Head: []string{"inputs", "seen", "share", "at most"}, TextColumns: 1,
	}
	add := func(what string, b calibrate.BoundedShare) {
		if b.Inputs == 0 {
			t.Add(what, "none", nil, nil)
			return
		}
		t.Add(what, document.Of{b.Count, b.Inputs}, document.FineShare(share(b.Count, b.Inputs)), document.FineShare(b.AtMost))
	}
	add("decided otherwise than by all passes", r.Disagreements)
	add("deferred by all passes, retained instead", r.Released)
	if r.CriticalReleased != nil {
		add("the same of critical inputs", *r.CriticalReleased)
	}
	return document.NewSection("early-stop", "Early stopping", intro, t)
}

// intervalHead says of which kind intervals are.
func intervalHead(byGroup bool) string {
	if byGroup {
		return "95% interval by group"
	}
	return "95% interval (exact)"
}

// fullDecisionSection says how certain the decision by all passes itself is.
func fullDecisionSection(e *calibrate.EarlyStop) document.Section {
	kind := intervalHead(e.Groups > 0)
	t := &document.Table{Caption: "The full decision beside the early one", Head: []string{"figure", "seen", "share", kind}, TextColumns: 1}
	add := func(what string, e *calibrate.ExactShare) {
		t.Add(what, document.Of{e.Count, e.Inputs}, document.Share(e.Share), document.ShareInterval(e.Interval))
	}
	add("two halves of the passes decide otherwise", e.HalvesDiffer)
	if r := e.Rule; r.CriticalFNR != nil {
		add("critical FNR with the rule in force", r.CriticalFNR)
		add("critical FNR of all passes", r.FullCriticalFNR)
	}
	return document.NewSection("full-decision", "What the full decision is worth",
		"Two halves of the passes, each decided by itself, say how much chance there is in the full decision itself.", t)
}

// comparisonSection shows the calibrated rule beside those that it was chosen over, the critical
// miss rate first.
func comparisonSection(r *calibrate.Report) document.Section {
	misses := &document.Table{Caption: "Misses and reviews", TextColumns: 2,
		Head: []string{"rule", "scope", "critical miss rate", intervalHead(r.Groups > 0), "missed", "missed per 1,000", "reviews per 1,000",
			"called critical and kept per 1,000", "of these false"}}
	paper := &document.Table{Caption: "The paper's figures", TextColumns: 2,
		Head: []string{"rule", "scope", "coverage", "accuracy", "critical FNR", intervalHead(r.Groups > 0), "missed"}}
	for _, row := range r.Comparison {
		name := row.Rule
		if row.Calibrated {
			name = "* " + name
		}
		if row.Nothing {
			misses.Add(padded(misses, name, string(row.Scope), "none")...)
			paper.Add(padded(paper, name, string(row.Scope), "none")...)
			continue
		}
		per1000 := func(n int) string { return document.Digits(1000 * share(n, row.Inputs)) }
		rate, interval := known(row.CriticalMissRate, row.CriticalMissRateInterval)
		misses.Add(name, string(row.Scope), rate, interval, document.Of{row.Missed, row.CriticalInputs}, per1000(row.Missed),
			per1000(row.Reviews), per1000(row.CriticalKept), per1000(row.FalseKept))
		rate, interval = known(row.CriticalFNR, row.CriticalFNRInterval)
		var accuracy any = "n/a"
		if row.Accuracy != nil {
			accuracy = document.Share(*row.Accuracy)
		}
		paper.Add(name, string(row.Scope), document.Share(row.Coverage), accuracy, rate, interval,
			document.Of{row.Missed, row.CriticalRetained})
	}
	return document.NewSection("comparison", "Comparison", "On "+r.ComparisonBasis+". The critical miss rate is of all critical inputs, "+
		"the critical FNR of those retained.", misses, paper)
}

// padded returns the cells of a row with empty ones at its end, as many as the table has columns.
func padded(t *document.Table, cells ...any) []any {
	return append(cells, make([]any, len(t.Head)-len(cells))...)
}

// known returns the cells of a share and its interval: "n/a" where nothing is below the line.
func known(value *float64, interval *[2]float64) (cell, intervalCell any) {
	if value == nil || interval == nil {
		return "n/a", nil
	}
	return document.Share(*value), document.ShareInterval(*interval)
}

// riskSection shows what the risk of the policy is worth.
func riskSection(r *calibrate.RiskReport, byGroup bool) document.Section {
	t := &document.Table{Caption: "Reliability of risk", Head: []string{"figure", "value", "from", "to", "interval"}, TextColumns: 1}
	add := func(name string, f calibrate.Figure) {
		t.Add(name, document.Short(f.Value), document.Short(f.Low), document.Short(f.High), f.Kind)
	}
	add("observed / expected critical inputs", r.ObservedOverExpected)
	add("calibration slope", r.Slope)
	add("Brier score", r.Brier)

	bins := &document.Table{Caption: "Inputs called safe, in bins of equally many by their risk",
		Head: []string{"mean risk", "truly critical", "share", intervalHead(byGroup)}}
	for _, b := range r.Bins {
		bins.Add(document.FineShare(b.Risk), document.Of{b.Critical, b.Inputs}, document.FineShare(b.Observed.Value),
			document.FineInterval{b.Observed.Low, b.Observed.High})
	}
	return document.NewSection("risk", "Risk: the probability that an input called safe is truly critical",
		fmt.Sprintf("On inputs held out from the fit: %d of %d inputs called safe are truly critical; their risks sum to %s. Inputs called "+
			"critical have no risk.", r.Critical, r.CalledSafe, document.Digits(r.Expected)), t, bins)
}

// costSection shows what thresholds on the risk cost.
func costSection(r *calibrate.Report) document.Section {
	t := &document.Table{Caption: "Costs", TextColumns: 1, Head: []string{"a miss costs", "defer above a risk of", "deferred per 1,000",
		"missed per 1,000", "cost per 1,000, in reviews", "without deferral"}}
	for _, c := range r.Costs {
		t.Add(fmt.Sprintf("%v reviews", c.Ratio), document.Digits(c.Threshold), document.Digits(c.DeferredPer1000), document.Digits(c.MissedPer1000),
			document.Digits(c.CostPer1000), document.Digits(c.WithoutDeferral))
	}
	return document.NewSection("costs", "What misses and reviews cost together", "On "+r.ComparisonBasis+". With --prevalence, inputs count as often as where the model serves. It assumes that a review finds the miss.", t)
}
