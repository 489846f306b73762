package report

import (
	"fmt"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
)

// Most rows of the sheet's tables, so that it stays on two sides of paper.
const (
	sheetLabels = 8
	sheetLines  = 6
	sheetClass  = 6 // critical classes
	sheetPoints = 7 // of what is promised
)

// CalibrationSheet returns a calibration as one page to sign. The policy was written to policyFile.
func CalibrationSheet(r *calibrate.Report, policyFile string) *document.Sheet {
	c := newCalibration(r, policyFile)
	screen := c.screen()
	title := "No policy to sign"
	if r.Policy != nil {
		title = fmt.Sprintf("Policy for model %s", document.Label(r.Policy.Name))
	}
	promise := "What is promised, and on what it rests"
	switch {
	case r.Refused():
		promise = "Why nothing is promised"
	case r.Unsupported != "":
		title = "FORCED: " + title
	}
	s := &document.Sheet{Title: title, Warnings: screen.Warnings, Lead: screen.Lead, Ask: screen.Ask, Table: screen.Table}
	s.Warnings = s.Warnings[:min(2, len(s.Warnings))]
	add := func(section document.Section) {
		if section.Intro != "" || len(section.Points)+len(section.Parts) > 0 {
			s.Sections = append(s.Sections, section)
		}
	}
	rests := screen.Rests
	if more := len(rests) - sheetPoints; more > 0 {
		rests = append(rests[:sheetPoints:sheetPoints], fmt.Sprintf("%s: ckd calibrate --full has them.", document.Noun(more, "more note")))
	}
	for i, point := range rests {
		rests[i] = clipped(point)
	}
	add(document.Section{ID: "promise", Title: promise, Points: rests})
	if !r.Refused() {
		add(document.NewSection("who", "Who looks at what", "", c.whoTable()))
		add(c.classSection())
		add(c.curveSection())
		add(c.alarmSection())
	}
	if n := len(r.Reread); n > 0 {
		section := c.rereadSection()
		section.Parts = []document.Part{c.rereadTable(sheetLabels)}
		if n > sheetLabels {
			section.Intro += fmt.Sprintf(" These are %d of %d; ckd calibrate --format json lists the others.", sheetLabels, n)
		}
		add(section)
	}
	if !r.Refused() {
		add(document.Section{ID: "site", Title: "To fill in", Points: []string{
			"Model and version " + blank + blank, "The data are from " + blank + blank, "The labels were read by " + blank + blank,
			"Audited: ____ % of what is retained; twice the line is found after ____ days and ____ misses (ckd outcomes plan)",
			"On alarm " + blank + " does " + blank + " within " + blank, "Valid until " + blank}})
	}
	data := computed("ckd calibrate", c.settings()...)
	add(document.NewSection("data", "Data", "", data.Parts[0].(*document.Table)))
	if !r.Refused() {
		s.Blanks = []string{"Owner of the risk: name", "Date and signature", "For the service: name", "Date and signature"}
		s.Foot = "Signed is the policy with the " + hashName + ": " + r.PolicyHash + ". A later calibration or an edit is another policy. " +
			"The policy_hash in its file is another: of the policy without its lines."
	}
	return s
}

const blank = "____________________"

// classSection names the critical classes, and says how many of each are missed.
func (c *calibration) classSection() document.Section {
	var intro string
	if c.Inputs > 0 {
		intro = fmt.Sprintf("Assumed is that %s of inputs are critical, as here: %s of %s.", document.Percent(share(c.Critical, c.Inputs)),
			document.Count(c.Critical), document.Count(c.Inputs))
	}
	s := document.Section{ID: "classes", Title: "Critical classes", Intro: intro}
	if len(c.CriticalClasses) == 0 {
		return s
	}
	t := &document.Table{Caption: "Missed of each critical class", Head: []string{"class", "missed", "critical miss rate", intervalHead(c.Groups > 0)}, TextColumns: 1}
	for _, class := range c.CriticalClasses[:min(sheetClass, len(c.CriticalClasses))] {
		rate, interval := known(class.CriticalMissRate, class.CriticalMissRateInterval)
		t.Add(document.Label(class.Class), document.Of{class.Missed, class.Inputs}, rate, interval)
	}
	if more := c.CriticalClasses[min(sheetClass, len(c.CriticalClasses)):]; len(more) > 0 {
		missed, inputs := 0, 0
		for _, class := range more {
			missed, inputs = missed+class.Missed, inputs+class.Inputs
		}
		t.Add(document.Noun(len(more), "further class"), document.Of{missed, inputs}, nil, nil)
	}
	s.Parts = []document.Part{t}
	return s
}

// clipped bounds a point of the sheet.
func clipped(text string) string {
	const most = 500
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "\u2026 (--full has all)"
	}
	return text
}

// whoTable says of 1,000 inputs who looks at them.
func (c *calibration) whoTable() *document.Table {
	t := &document.Table{Head: []string{"inputs", "who looks", "per 1,000", "counted here"}, TextColumns: 2}
	t.Caption = "Of 1,000 inputs like these"
	if c.own == nil {
		if e := c.Expected; e != nil && c.EarlyStop == nil {
			t.Add("deferred", "a person, before anything is done", perThousand(1000*(1-e.Coverage)), nil)
			t.Add("retained", "nobody, but for audits of ____ % (ckd outcomes plan)", perThousand(1000*e.Coverage), nil)
			return t
		}
		return nil
	}
	add := func(what, who string, n int) {
		t.Add(what, who, perThousand(1000*share(n, c.own.Inputs)), document.Of{n, c.own.Inputs})
	}
	add("deferred", "a person, before anything is done", c.own.Deferred)
	look := "nobody; at your site: [ ] each is acted on  [ ] each is reviewed"
	switch c.CriticalCalls {
	case eval.ActedOn:
		look = "nobody: each is acted on"
	case eval.Reviewed:
		look = "a person, as every critical call"
	}
	add("called critical, retained", look, c.own.CriticalKept)
	add("of these false", "", c.own.FalseKept)
	safe := c.own.Inputs - c.own.Deferred - c.own.CriticalKept
	add("called safe, retained", "nobody, but for audits of ____ % (ckd outcomes plan)", safe)
	add("of these missed", "found by nobody but the few that an audit happens to draw", c.own.Missed)
	return t
}

// curveSection draws what is missed against what is deferred, with the chosen point.
func (c *calibration) curveSection() document.Section {
	const diamond = 0.012 // of the axes
	if c.Curve == nil || c.own == nil || c.none == nil {
		return document.Section{}
	}
	per1000 := func(n int) float64 { return 1000 * share(n, c.Curve.Inputs) }
	at := per1000(c.own.Deferred)
	plot := document.Plot{Height: 185,
		X: document.Axis{Label: "inputs deferred, of 1,000", Max: min(1000, document.RoundUp(max(2.5*at, 100), 5)), Ticks: document.Ticks{About: 8, Unit: 1}},
		Y: document.Axis{Label: "critical inputs missed", Max: document.RoundUp(float64(max(c.none.Missed, 1)), 4), Ticks: document.Ticks{About: 4, Unit: 1}}}
	line := func(points []calibrate.CurvePoint, s document.Stroke) {
		x, y := []float64{0}, []float64{float64(c.none.Missed)}
		for i := len(points) - 1; i >= 0; i-- {
			x, y = append(x, per1000(points[i].Deferred)), append(y, float64(points[i].Missed))
		}
		plot.Lines = append(plot.Lines, document.Line{Stroke: s, X: x, Y: y})
	}
	mi := document.Stroke{Ink: document.Grey, Dash: document.MarkDashed, Width: 1.5}
	own := document.Stroke{Ink: document.Blue, Dash: document.MarkSolid, Width: 2.2}
	chosen := document.Stroke{Ink: document.Vermillion, Dash: document.MarkSolid, Width: 3}
	line(c.Curve.MI, mi)
	line(c.Curve.Policy, own)
	dx, dy, missed := diamond*plot.X.Max/2, diamond*plot.Y.Max*2, float64(c.own.Missed)
	plot.Lines = append(plot.Lines, document.Line{Stroke: chosen, X: []float64{at - dx, at, at + dx, at, at - dx}, Y: []float64{missed, missed + dy, missed, missed - dy, missed}})
	f := &document.Figure{Title: "Critical inputs missed against reviews",
		Says: fmt.Sprintf("Chosen: %s of 1,000 inputs deferred, %s of %s missed.", perThousand(at), document.Count(c.own.Missed),
			document.Noun(c.own.CriticalInputs, "critical input")),
		Legend: []document.Key{own.Key("this policy at other thresholds"), mi.Key("mutual information"), chosen.Key("chosen")}, Plots: []document.Plot{plot}}
	return document.NewSection("curve", "What more or fewer reviews would do", "", f)
}

// alarmSection says when it alarms.
func (c *calibration) alarmSection() document.Section {
	if len(c.Lines) == 0 {
		return document.Section{ID: "lines", Title: "When it alarms", Intro: "Never: no line was calibrated."}
	}
	s := linesSection(c.Lines)
	if c.own != nil && c.own.Inputs > 0 {
		s.Intro += fmt.Sprintf(" With on_breach: defer in the policy people then see everything called safe, %s of 1,000 inputs in all, until somebody "+
			"clears the alarm.", perThousand(1000*share(c.own.Inputs-c.own.CriticalKept+reviewedCalls(c.Report, c.own), c.own.Inputs)))
	}
	s.Parts = []document.Part{linesTable(c.Lines, sheetLines)}
	if more := len(c.Lines) - sheetLines; more > 0 {
		s.Intro += fmt.Sprintf(" %s: see ckd check.", document.Noun(more, "further line"))
	}
	return s
}
