package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// riskFigure draws the risk over coverage, and below it the inputs that the risk is a share of.
func (d *deferral) riskFigure() *document.Figure {
	f := &document.Figure{
		Title: fmt.Sprintf("Critical inputs missed, as a share of those retained, at every coverage (%s)", d.scope.Words()),
		Says:  d.riskSays(),
		How: "Coverage is the share of inputs that the model decides alone: at the right end nobody reviews, towards the " +
			"left more goes to people. Lower is better. Where the lower panel is near zero, the curve above it rests on a " +
			"few inputs and means little.",
		Legend: d.legend(),
	}
	above, below := "missed of retained critical", "critical retained"
	if !d.byRisk {
		f.Title = fmt.Sprintf("Errors, as a share of the inputs retained, at every coverage (%s)", d.scope.Words())
		above, below = "errors of retained", "retained"
	}
	steady, most := 0.0, 1.0 // the highest risk of enough inputs, and the most inputs
	for _, l := range d.lines {
		risk, retained := d.riskCurve(l.curve)
		for i := range risk {
			most = max(most, retained[i])
			if retained[i] >= fewRetained {
				steady = max(steady, risk[i])
			}
		}
	}
	steady = min(1, 1.1*steady)
	f.Plots = d.panels(d.riskCurve,
		panel{above, 270, steady, document.Ticks{About: 5, Unit: 100, Sign: "%"}},
		panel{below, 125, most, document.Ticks{About: 3, Unit: 1}})
	if end := f.Plots[0].Y.Max; end < 1 && d.byRisk {
		f.How += fmt.Sprintf(" The upper panel ends at %s: curves may leave it where fewer than %d critical inputs are retained.", document.RoundPercent(end), fewRetained)
	}
	return f
}

// fewRetained is the number of inputs under which a risk may be anywhere. Axes make no room for it.
const fewRetained = 10

// riskCurve returns the risk at every coverage and the inputs that it is a share of. The risk is NaN
// where there are none.
func (d *deferral) riskCurve(c *eval.Curve) (risk, of []float64) {
	for i := range d.report.Curves.Coverage {
		missed, kept := c.Wrong[i], float64(d.report.Curves.Retained[i])
		if d.byRisk {
			missed, kept = c.CriticalMissed[i], c.CriticalRetained[i]
		}
		r := math.NaN()
		if kept > 0 {
			r = missed / kept
		}
		risk, of = append(risk, r), append(of, kept)
	}
	return risk, of
}

// riskSays compares the critical FNR of c_crit_max and of mutual information at the coverage, and
// names the lowest.
func (d *deferral) riskSays() string {
	text := "At " + document.RoundPercent(d.report.Source.Coverage) + " coverage "
	miRow := d.row(d.scope, mi)
	if !d.byRisk {
		best := d.fewest(d.scope)
		if best == nil {
			return "There is no score in this scope."
		}
		text += errorsOf(best) + ", the lowest error rate of a score"
		if miRow != nil && miRow != best {
			text += "; " + errorsOf(miRow)
		}
		return text + "."
	}
	byFNR := func(x, y *eval.Row) int { return ascending(x.CriticalFNR, y.CriticalFNR) }
	best := d.bestOfPaper(d.scope, byFNR)
	if best == nil {
		return "There is no score in this scope."
	}
	first := d.row(d.scope, decomp.CCritMax.String())
	if first == nil {
		first = best
	}
	text += fmt.Sprintf("%s retains %s and misses %s (%s)", plain(first.Name),
		document.Noun(first.CriticalRetained, "critical input"), document.Count(first.CriticalMissed),
		document.Percent(first.CriticalFNR))
	if miRow != nil && miRow != first {
		text += "; " + plain(mi) + " misses " + missedOf(miRow.At)
	}
	text += "."
	if best == first || best == miRow {
		text += " No score has a lower critical FNR than " + plain(best.Name) + "."
	} else {
		text += " The lowest critical FNR of a score is that of " + plain(best.Name) + ": " + missedOf(best.At) + "."
	}
	if lowest := slices.MinFunc(d.paperRankings(), byFNR); lowest.CriticalFNR < best.CriticalFNR {
		text += " That of " + d.lineName(lowest) + ", which is no score, is lower: " + missedOf(lowest.At) + "."
	}
	return text
}

func errorsOf(row *eval.Row) string {
	return fmt.Sprintf("%s retains %s with %s errors", plain(row.Name), document.Noun(row.Retained, "input"),
		document.Percent(1-row.Accuracy))
}

// panel is a plot over coverage. Its axis has room for highest.
type panel struct {
	label           string
	height, highest float64
	ticks           document.Ticks
}

// panels draws two curves of every line below each other, and marks the coverage of the report.
func (d *deferral) panels(curves func(*eval.Curve) (above, below []float64), upper, lower panel) []document.Plot {
	plots := make([]document.Plot, 2)
	coverages := document.Ticks{About: 10, Unit: 100, Sign: "%"}
	for i, p := range []panel{upper, lower} {
		plots[i].Height = p.height
		plots[i].X = document.Axis{Max: 1, Ticks: coverages}
		plots[i].Y = document.Axis{Label: p.label, Max: document.RoundUp(p.highest, 5), Ticks: p.ticks}
	}
	plots[0].X.Ticks.Unnamed = true
	plots[1].X.Label = "coverage"
	for _, l := range d.lines {
		above, below := curves(l.curve)
		for i, y := range [][]float64{above, below} {
			plots[i].Lines = append(plots[i].Lines, document.Line{Stroke: l.stroke, X: d.report.Curves.Coverage, Y: y})
		}
	}
	for i := range plots {
		plots[i].Upright(d.report.Source.Coverage, document.Stroke{Ink: document.Muted, Dash: document.MarkDotted, Width: 1})
	}
	return plots
}
