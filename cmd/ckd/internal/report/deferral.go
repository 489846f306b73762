package report

import (
	"fmt"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// deferral makes the section about what deferral does in one scope.
type deferral struct {
	*evaluation
	scope policy.Scope
	lines []line
}

func deferralSection(e *evaluation, scope policy.Scope) document.Section {
	d := &deferral{evaluation: e, scope: scope, lines: lines(e, scope)}
	intro := "Any input may go to a person, those first whose score is highest."
	if scope == policy.PredictedSafe {
		intro = "Inputs that the model already calls critical are not deferred: they get their treatment anyway, and " +
			"cannot be missed. People look at the others, those first whose score is highest."
	}
	return document.NewSection("deferral-"+string(scope), fmt.Sprintf("What deferral does (scope %s)", scope), intro,
		d.riskFigure(), d.jointFigure(), d.areaFigure(), d.policyTable(), d.areaTable(), d.coverageTable(), d.pairwiseTable())
}

// line is a ranking that the figures of a scope show.
type line struct {
	row    *eval.Row
	curve  *eval.Curve
	stroke document.Stroke
	banded bool // the bootstrap band is drawn: more than three bands could not be told apart
}

func (l line) hasBand() bool {
	return l.banded && len(l.curve.Low) > 0 && len(l.curve.Low) == len(l.curve.High)
}

// lines selects rankings, few enough to be told apart: mutual information, the score with the lowest
// area, those that the paper's rule chooses from, the gates, and the given policy.
func lines(e *evaluation, scope policy.Scope) []line {
	best := e.best(scope, e.area)
	var lines []line
	for _, row := range e.rankings(scope) {
		s, chosen := strokes[row.Name]
		if !e.byRisk && !chosen {
			s, chosen = errorStrokes[row.Name]
		}
		if isPolicy(row.Name) {
			s, chosen = document.Stroke{Ink: document.Vermillion, Dash: document.MarkSolid, Width: 2.4}, true
		}
		if row == best && !chosen {
			s, chosen = document.Stroke{Ink: document.Sky, Dash: document.MarkSolid, Width: 1.6}, true
		}
		curve := e.curve(scope, row.Name)
		if !chosen || curve == nil {
			continue
		}
		lines = append(lines, line{row, curve, s, row == best || row.Name == mi || s.Ink == document.Vermillion})
	}
	return lines
}

var strokes = map[string]document.Stroke{
	mi:                           {Ink: document.Grey, Dash: document.MarkDashed, Width: 1.6},
	decomp.CCritMax.String():     {Ink: document.Blue, Dash: document.MarkSolid, Width: 1.6},
	decomp.CBEC.String():         {Ink: document.Orange, Dash: document.MarkSolid, Width: 1.6},
	string(policy.AnyCritical):   {Ink: document.Green, Dash: document.MarkDotted, Width: 1.8},
	string(policy.DecidingClass): {Ink: document.Purple, Dash: document.MarkDashed, Width: 1.6},
}

// errorStrokes has the scores that are drawn too where there are no critical inputs, which the scores
// of strokes are made for.
var errorStrokes = map[string]document.Stroke{
	decomp.Entropy.String(): {Ink: document.Green, Dash: document.MarkDotted, Width: 1.8},
	decomp.MaxProb.String(): {Ink: document.Sky, Dash: document.MarkSolid, Width: 1.6},
	decomp.EUVar.String():   {Ink: document.Purple, Dash: document.MarkDashed, Width: 1.6},
}

var mi = decomp.MI.String()

func isScore(name string) bool {
	_, ok := decomp.ParseScore(name)
	return ok
}

// isPolicy reports whether a ranking is the one of the given policy.
func isPolicy(name string) bool {
	return !isScore(name) && name != string(policy.AnyCritical) && name != string(policy.DecidingClass)
}

// legend returns the entries of the lines, of their bands, and of the coverage.
func (d *deferral) legend(bands bool) []document.Key {
	var keys []document.Key
	var banded []string
	for _, l := range d.lines {
		text := l.row.Name
		if d.report.Policy != nil && isPolicy(text) {
			text += " (" + d.report.Policy.Model + ")"
		}
		if l.row == d.best(d.scope, d.area) {
			text += " (lowest area of all scores)"
		}
		keys = append(keys, l.stroke.Key(text))
		if l.hasBand() {
			banded = append(banded, l.row.Name)
		}
	}
	if bands && d.byRisk && len(banded) > 0 {
		keys = append(keys, document.Key{Mark: document.MarkBand, Text: "95% bootstrap band of " + document.List(banded)})
	}
	return append(keys, document.Key{Mark: document.MarkThin, Ink: document.Muted,
		Text: document.RoundPercent(d.report.Source.Coverage) + " coverage"})
}

// plain returns the name of a ranking for sentences.
func plain(name string) string {
	if name == mi {
		return "mutual information"
	}
	return name
}

// alone returns the name of a ranking for sentences that hold it against mutual information.
func alone(name string) string {
	if name == mi {
		return "mutual information alone"
	}
	return name
}

// missedOf returns the critical inputs missed of those retained: "32 of 364 (8.8%)".
func missedOf(at eval.At) string {
	if at.CriticalRetained == 0 {
		return "0 of 0"
	}
	return fmt.Sprintf("%s of %s (%s)", document.Count(at.CriticalMissed), document.Count(at.CriticalRetained),
		document.Percent(at.CriticalFNR))
}

// share returns n/of, and 0 of nothing.
func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
