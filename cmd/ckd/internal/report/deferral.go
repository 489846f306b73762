package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// deferral makes the figures and tables of one scope.
type deferral struct {
	*evaluation
	scope policy.Scope
	lines []line
}

// deferralSection shows what review saves: the curve and the rankings, the model alone first.
func deferralSection(e *evaluation) document.Section {
	s := document.NewSection("deferral", "What review saves", "")
	if !e.byRisk {
		d := &deferral{evaluation: e, scope: policy.AllInputs, lines: lines(e, policy.AllInputs)}
		s.Parts = document.NewSection("", "", "", d.riskFigure(), d.errorsTable()).Parts
		return s
	}
	s.Intro = "Any input may go to people, or only those called safe: an input called critical cannot be missed. " + e.callsSay()
	s.Parts = document.NewSection("", "", "", e.missesFigure()).Parts
	for _, scope := range e.scopes() {
		d := &deferral{evaluation: e, scope: scope}
		s.Parts = append(s.Parts, document.NewSection("", "", "", d.missesTable()).Parts...)
	}
	s.Parts = append(s.Parts, document.NewSection("", "", "", e.classMisses()).Parts...)
	return s
}

// callsSay says what happens to critical calls that are kept.
func (e *evaluation) callsSay() string {
	switch e.report.Source.CriticalCalls {
	case eval.Reviewed:
		return "Critical calls are reviewed anyway and count as reviews."
	case eval.ActedOn:
		return "Critical calls are acted on without a look."
	}
	return "To leave these alone is right only where critical calls are acted on."
}

// line is a ranking that the figures of a scope show.
type line struct {
	row    *eval.Row
	curve  *eval.Curve
	stroke document.Stroke
}

// lines selects rankings, few enough to be told apart: mutual information, the score with the lowest
// area, those that the paper's rule chooses from, the gates, and the given policy.
func lines(e *evaluation, scope policy.Scope) []line {
	best := e.bestOfPaper(scope, e.byArea)
	var lines []line
	for _, row := range e.rankings(scope) {
		s, chosen := strokes[row.Name]
		if !e.byRisk && !chosen {
			s, chosen = errorStrokes[row.Name]
		}
		if isPolicy(row.Name) {
			s, chosen = document.Stroke{Ink: document.Vermillion, Dash: document.MarkSolid, Width: widest}, true
		}
		if row == best && !chosen {
			s, chosen = document.Stroke{Ink: document.Sky, Dash: document.MarkSolid, Width: 2.2}, true
		}
		curve := e.curve(scope, row.Name)
		if !chosen || curve == nil {
			continue
		}
		lines = append(lines, line{row, curve, s})
	}
	return inSight(lines)
}

// inSight returns lines in an order in which none hides another: broken ones above solid ones, and
// thin ones above thick ones.
func inSight(lines []line) []line {
	rank := map[document.Mark]int{document.MarkSolid: 0, document.MarkLong: 1, document.MarkDashed: 2, document.MarkDashDot: 3, document.MarkDotted: 4}
	slices.SortStableFunc(lines, func(x, y line) int {
		return cmp.Or(cmp.Compare(rank[x.stroke.Dash], rank[y.stroke.Dash]), cmp.Compare(y.stroke.Width, x.stroke.Width))
	})
	return lines
}

// widest is the width of a line that others cover and that still shows on both sides of them. Solid
// lines differ in width as broken ones do in their pattern.
const widest = 3.6

var strokes = map[string]document.Stroke{
	mi:                         {Ink: document.Grey, Dash: document.MarkDashed, Width: 1.6},
	decomp.CCritMax.String():   {Ink: document.Blue, Dash: document.MarkSolid, Width: 1.2},
	decomp.CBEC.String():       {Ink: document.Orange, Dash: document.MarkLong, Width: 1.6},
	string(policy.AnyCritical): {Ink: document.Green, Dash: document.MarkDotted, Width: 1.8},
}

// errorStrokes has the scores that are drawn too where there are no critical inputs, which the scores
// of strokes are made for.
var errorStrokes = map[string]document.Stroke{
	decomp.Entropy.String(): {Ink: document.Green, Dash: document.MarkDotted, Width: 1.8},
	decomp.MaxProb.String(): {Ink: document.Sky, Dash: document.MarkSolid, Width: 2.2},
	decomp.EUVar.String():   {Ink: document.Purple, Dash: document.MarkDashDot, Width: 1.6},
}

func isScore(name string) bool {
	_, ok := decomp.ParseScore(name)
	return ok
}

// isPolicy reports whether a ranking is the one of the given policy.
func isPolicy(name string) bool {
	return !isScore(name) && name != string(policy.AnyCritical)
}

// legend returns the entries of the lines and of the coverage.
func (d *deferral) legend() []document.Key {
	var keys []document.Key
	for _, l := range d.lines {
		text := d.lineName(l.row)
		if l.row == d.bestOfPaper(d.scope, d.byArea) {
			text += " (lowest area of the scores)"
		}
		keys = append(keys, l.stroke.Key(text))
	}
	return append(keys, document.Key{Mark: document.MarkThin, Ink: document.Muted,
		Text: document.RoundPercent(d.report.Source.Coverage) + " coverage"})
}

// lineName returns the names of a ranking, with the model of the given policy.
func (e *evaluation) lineName(row *eval.Row) string {
	text := e.names(row)
	if e.report.Policy != nil && isPolicy(row.Name) {
		text += " (" + e.report.Policy.Model + ")"
	}
	return text
}

// missedOf returns the critical inputs missed of those retained: "32 of 364 (8.8%)".
func missedOf(at eval.At) string {
	if at.CriticalRetained == 0 {
		return "0 of 0 (n/a)"
	}
	return fmt.Sprintf("%s of %s (%s)", document.Count(at.CriticalMissed), document.Count(at.CriticalRetained),
		document.Percent(at.CriticalFNR))
}

// missedOfAll returns the critical inputs missed of all: "32 of 471 (6.8%)".
func missedOfAll(at eval.At, all int) string {
	return fmt.Sprintf("%s of %s (%s)", document.Count(at.CriticalMissed), document.Count(all), document.Percent(at.CriticalMissRate))
}

// share returns n/of, and 0 of nothing.
func share[N int | float64](n, of N) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
