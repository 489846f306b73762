package report

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/policy"
)

// Calibration returns a calibration as a document. The policy was written to policyFile; "" stands for
// the standard output.
func Calibration(r *calibrate.Report, policyFile string) *document.Document {
	c := newCalibration(r, policyFile)
	d := &document.Document{Title: titled("Calibration", r.PassesFile), Screen: c.screen(), Notes: r.Notes}
	add := func(given bool, section func() document.Section) {
		if given {
			d.Sections = append(d.Sections, section())
		}
	}
	add(r.Chosen != nil, c.policySection)
	add(r.Certificate != nil, func() document.Section { return certificateSection(r.Certificate) })
	add(len(r.Comparison) > 0, c.comparisonSection)
	add(len(r.Lines) > 0, func() document.Section { return linesSection(r.Lines) })
	add(len(r.Reread) > 0, c.rereadSection)
	add(r.EarlyStop != nil && r.EarlyStop.Rule != nil, func() document.Section { return earlyStopSection(r.EarlyStop) })
	add(r.Risk != nil, func() document.Section { return riskSection(r.Risk, r.Groups > 0) })
	add(len(r.Costs) > 0, func() document.Section { return costSection(r) })
	add(len(r.Why) > 0, func() document.Section { return document.Section{ID: "why", Title: "How it was chosen", Points: r.Why} })
	d.Sections = append(d.Sections, computed("ckd calibrate", c.settings()...))
	return d
}

// asked returns an objective in words: a coverage as the reviews that it stands for.
func asked(objective string) string {
	if text, found := strings.CutPrefix(objective, "coverage "); found {
		if coverage, err := strconv.ParseFloat(text, 64); err == nil {
			return perThousand(1000*(1-coverage)) + " reviews per 1,000 inputs (" + objective + ")"
		}
	}
	if text, found := strings.CutPrefix(objective, "reviews-per-1000 "); found {
		return strings.TrimSuffix(text, " in all") + " reviews per 1,000 inputs, all critical calls among them"
	}
	return objective
}

// hashName names the hash of the whole policy. The one in the policy's file is of the policy without lines.
const hashName = "hash that ckd check and answers show"

// settings returns what a run of the same result needs.
func (c *calibration) settings() []setting {
	settings := append([]setting{{"software", c.Software}}, fileSettings("passes", c.PassesFile)...)
	if c.LabelsFile.Name != "" {
		settings = append(settings, fileSettings("labels", c.LabelsFile)...)
	}
	if c.GroupsFile != nil {
		settings = append(settings, fileSettings("groups", *c.GroupsFile)...)
	}
	settings = append(settings, setting{"seed", strconv.FormatUint(c.Seed, 10)})
	if c.Objective != "" {
		settings = append(settings, setting{"asked for", asked(c.Objective) + ", scope " + string(c.Scope)})
	}
	if c.PolicyHash != "" {
		settings = append(settings, setting{hashName, c.PolicyHash})
	}
	return settings
}

// policySection shows the scores and their thresholds. The policy has all digits of the thresholds.
func (c *calibration) policySection() document.Section {
	t := &document.Table{Caption: "Scores and thresholds", Head: []string{"rule", "score", "threshold"}, TextColumns: 2}
	add := func(name string, at *calibrate.Threshold) {
		if at != nil {
			t.Add(name, at.Score, strconv.FormatFloat(at.Threshold, 'g', 6, 64))
		}
	}
	add("primary", &c.Chosen.Primary)
	add("fallback", c.Chosen.Fallback)
	add("guard", c.Chosen.Guard)
	return document.NewSection("policy", "The policy", ruleSays(c.Chosen), t)
}

// certificateSection says what is guaranteed.
func certificateSection(c *calibrate.Certificate) document.Section {
	if c.Void != "" {
		return document.Section{ID: "certificate", Title: "No certificate", Intro: c.Void}
	}
	text := "For this one attempt on this recording, by " + string(c.Kind)
	if c.PValue > 0 {
		text += " (p = " + document.Digits(c.PValue) + ")"
	}
	return document.Section{ID: "certificate", Title: "Certificate", Intro: text + ": " + c.Statement + " It takes the labels as the truth."}
}

// sentence ends a text with a full stop, unless it ends in one or with a question.
func sentence(text string) string {
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

// rereadSection shows the inputs whose labels are to be read again.
func (c *calibration) rereadSection() document.Section {
	return document.NewSection("reread", "Labels to read again",
		"Of the critical inputs that are called safe, the model is surest of these. A wrong label among them costs reviews. Inputs "+
			"count from 0, as in the file.", c.rereadTable(len(c.Reread)))
}

func (c *calibration) rereadTable(most int) *document.Table {
	name := "risk"
	if c.Risk == nil {
		name = policy.PCritical.Short()
	}
	t := &document.Table{Caption: "Critical inputs of least " + name, Head: []string{"label", "predicted", "input", name}, TextColumns: 2}
	for _, input := range c.Reread[:min(most, len(c.Reread))] {
		t.Add(document.Label(input.Label), document.Label(input.Predicted), strconv.Itoa(input.Input), policy.RiskScore.Value(input.Risk))
	}
	return t
}

// linesSection shows what outcomes are tested against.
func linesSection(lines []policy.Line) document.Section {
	return document.NewSection("lines", "When it alarms", "Once outcomes come back: when they are evidence of more misses than this.", linesTable(lines, len(lines)))
}

func linesTable(lines []policy.Line, most int) *document.Table {
	t := &document.Table{Caption: "Lines", Head: []string{"figure", "inputs", "line from", "alarm above"}, TextColumns: 3}
	for _, l := range lines[:min(most, len(lines))] {
		figure := policy.Line{Bounds: l.Bounds}
		origin := l.Origin()
		if l.From == policy.ExpectedLine {
			origin = "upper end of the 95% interval"
		}
		t.Add(figure.Figure(), cmp.Or(l.Class, "all critical"), origin, document.Share(l.Above))
	}
	return t
}

// earlyStopSection says what the early-stopping rule does.
func earlyStopSection(e *calibrate.EarlyStop) document.Section {
	order := "any order"
	if e.Order == policy.MembersOrder {
		order = "the order of the recording, which is that of the ensemble's members"
	}
	r := e.Rule
	intro := fmt.Sprintf("%s After %d to %d passes, %d of %d inputs were decided early. Passes come in %s. The rule has %d fitted numbers.",
		r.Statement, r.FirstAfter, r.LastAfter, r.Settled, e.CertifiedOn, order, r.Numbers)
	return document.NewSection("early-stop", "Early stopping", intro, earlyStopTable(e), fullDecisionTable(e))
}

// earlyStopTable shows what early decisions change.
func earlyStopTable(e *calibrate.EarlyStop) *document.Table {
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
	add("decided otherwise than by all passes", e.Rule.Disagreements)
	add("deferred by all passes, retained instead", e.Rule.Released)
	if e.Rule.CriticalReleased != nil {
		add("the same of critical inputs", *e.Rule.CriticalReleased)
	}
	return t
}

// intervalHead says of which kind intervals are.
func intervalHead(byGroup bool) string {
	if byGroup {
		return "95% interval by group"
	}
	return "95% interval (exact)"
}

// fullDecisionTable shows how certain the decision by all passes itself is.
func fullDecisionTable(e *calibrate.EarlyStop) *document.Table {
	t := &document.Table{Caption: "The full decision beside the early one", Head: []string{"figure", "seen", "share", intervalHead(e.Groups > 0)}, TextColumns: 1}
	add := func(what string, e *calibrate.ExactShare) {
		t.Add(what, document.Of{e.Count, e.Inputs}, document.Share(e.Share), document.ShareInterval(e.Interval))
	}
	add("two halves of the passes decide otherwise", e.HalvesDiffer)
	if r := e.Rule; r.CriticalFNR != nil {
		add("critical FNR with the rule in force", r.CriticalFNR)
		add("critical FNR of all passes", r.FullCriticalFNR)
	}
	return t
}

// comparisonSection shows every rule: of either scope what it misses, and the paper's figures.
func (c *calibration) comparisonSection() document.Section {
	byScope := map[policy.Scope]*document.Table{}
	paper := &document.Table{Caption: "The paper's figures", TextColumns: 1,
		Head: []string{"rule", "coverage", "accuracy", "critical FNR", intervalHead(c.Groups > 0), "missed"}}
	s := document.NewSection("comparison", "Every rule", "Measured on "+c.ComparisonBasis+".")
	for i := range c.Comparison {
		row := &c.Comparison[i]
		t := byScope[row.Scope]
		if t == nil {
			t = &document.Table{Caption: "Where all inputs may be deferred", TextColumns: 1, Head: []string{"rule", "missed", "critical miss rate",
				intervalHead(c.Groups > 0), "reviews per 1,000", "critical calls kept", "of these false"}}
			if row.Scope == policy.PredictedSafe {
				t.Caption = "Where only inputs called safe may be deferred"
			}
			byScope[row.Scope] = t
			s.Parts = append(s.Parts, t)
		}
		name := short(row.Rule)
		if row.Calibrated && row.Scope == c.Scope {
			name = "* this policy"
		}
		if row.Nothing {
			t.Add(padded(t, name, "none")...)
			continue
		}
		rate, interval := known(row.CriticalMissRate, row.CriticalMissRateInterval)
		t.Add(name, document.Of{row.Missed, row.CriticalInputs}, rate, interval, perThousand(1000*share(row.Reviews, row.Inputs)), row.CriticalKept, row.FalseKept)
		if row.Scope != c.Scope {
			continue
		}
		rate, interval = known(row.CriticalFNR, row.CriticalFNRInterval)
		var accuracy any = "n/a"
		if row.Accuracy != nil {
			accuracy = document.Share(*row.Accuracy)
		}
		paper.Add(name, document.Share(row.Coverage), accuracy, rate, interval, document.Of{row.Missed, row.CriticalRetained})
	}
	s.Parts = append(s.Parts, paper)
	return s
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
