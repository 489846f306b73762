package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
)

// areaFigure draws the AUSC of every ranking over the resamples. It returns nil without resamples.
func (d *deferral) areaFigure() *document.Figure {
	rows := slices.DeleteFunc(d.paperRankings(), func(row *eval.Row) bool { return !row.Bootstrap.Mean.Defined() })
	if !d.byRisk || len(rows) == 0 {
		return nil
	}
	slices.SortStableFunc(rows, func(x, y *eval.Row) int { return cmp.Compare(y.Bootstrap.Mean, x.Bootstrap.Mean) })
	p := document.Plot{Height: float64(50 + 22*len(rows))} // the lowest area on top
	diamonds := document.Points{Mark: document.MarkDiamond, Ink: document.Foreground, Radius: 3.2}
	var names []string
	highest := 0.0
	for i, row := range rows {
		names = append(names, d.paperNames(row))
		ink := document.Grey
		for _, l := range d.lines {
			if l.row == row {
				ink = l.stroke.Ink
			}
		}
		var samples []float64
		for _, s := range row.Bootstrap.Samples {
			if s.Defined() {
				samples = append(samples, float64(s))
			}
		}
		highest = max(highest, slices.Max(samples))
		p.Boxes = append(p.Boxes, document.Box{Ink: ink, At: float64(i), Values: samples})
		if a := row.AUSC.CriticalFNR; a.Defined() {
			highest = max(highest, float64(a))
			diamonds.X, diamonds.Y = append(diamonds.X, float64(a)), append(diamonds.Y, float64(i))
		}
	}
	p.Points = []document.Points{diamonds}
	p.X = document.Axis{Label: "AUSC of critical FNR", Max: document.RoundUp(highest, 6), Ticks: document.Ticks{About: 6, Unit: 1}}
	p.Y = document.Axis{Min: -0.7, Max: float64(len(rows)) - 0.3, Ticks: document.Ticks{Names: names}}
	return &document.Figure{
		Title: fmt.Sprintf("Area under the curve of critical FNR (AUSC) over %s (scope %s)",
			document.Noun(d.report.Source.Bootstrap, "resample"), d.scope),
		Says: d.areaSays(rows[len(rows)-1]),
		How: "The area under the risk over the coverages at which every ranking retains critical inputs (of the recording: " +
			d.definedRange() + "); lower is better. Boxes hold the middle half of the " +
			"resamples, with their median; whiskers reach to the last resample within 1.5 box lengths, circles are those " +
			"beyond. The diamond is the recording itself. Rankings are in the order of their mean.",
		Plots: []document.Plot{p},
	}
}

// areaSays describes the ranking of the lowest mean area, and names the score that wins most
// resamples.
func (d *deferral) areaSays(lowest *eval.Row) string {
	s := fmt.Sprintf("The lowest mean AUSC is that of %s: %s (%s %s)", alone(lowest.Name),
		document.Decimal(lowest.Bootstrap.Mean), d.resampled95(), document.Format(interval(lowest.Bootstrap.Interval)))
	if of := d.row(d.scope, mi); of != nil && of != lowest && of.Bootstrap.Mean.Defined() {
		s += fmt.Sprintf("; that of mutual information alone is %s (%s)", document.Decimal(of.Bootstrap.Mean),
			document.Format(interval(of.Bootstrap.Interval)))
	}
	winner := d.bestOfPaper(d.scope, func(x, y *eval.Row) int { return ascending(-x.Bootstrap.WinShare, -y.Bootstrap.WinShare) })
	if winner == nil || !winner.Bootstrap.WinShare.Defined() {
		return s + "."
	}
	return s + fmt.Sprintf(". Of the scores, %s has the lowest area in %s of the resamples.", plain(winner.Name),
		document.Percent(winner.Bootstrap.WinShare))
}

func interval(i eval.Interval) document.NumberInterval {
	return document.NumberInterval{float64(i.Low), float64(i.High)}
}
