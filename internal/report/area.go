package report

import (
	"cmp"
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// areaFigure is the AUSC of every ranking over the resamples. Nil without them.
func (b *builder) areaFigure(scope policy.Scope, lines []line) (*figure, error) {
	var rows []*eval.Row
	for i := range b.r.Policies {
		if row := &b.r.Policies[i]; row.Scope == scope && len(row.Bootstrap.Samples) > 0 {
			rows = append(rows, row)
		}
	}
	if !b.byRisk || len(rows) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(rows, func(x, y *eval.Row) int { return cmp.Compare(x.Bootstrap.Mean, y.Bootstrap.Mean) })
	f := &figure{
		Title: "Area under the curve of critical FNR (AUSC) over " + noun(b.r.Source.Bootstrap, "resample", "resamples"),
		How: "The area is the risk averaged over all coverages; lower is better. Boxes hold the middle half of the " +
			"resamples, with their median; whiskers reach to the last resample within 1.5 box lengths, circles are those " +
			"beyond. The diamond is the recording itself. Rankings are in the order of their mean.",
	}
	f.Says = b.areaSays(scope, rows)
	p := newPlot("AUSC of critical FNR", "")
	var ticks plot.ConstantTicks
	highest := 0.0
	for i, row := range rows {
		at := float64(len(rows) - 1 - i) // the best on top
		ticks = append(ticks, plot.Tick{Value: at, Label: label(row.Name) + " "})
		style := stroke{grey, "solid", 1}
		for _, l := range lines {
			if l.row == row {
				style.ink = l.stroke.ink
			}
		}
		highest = max(highest, slices.Max(row.Bootstrap.Samples), row.AUSC.CriticalFNR)
		if err := addBox(p, style, at, row.Bootstrap.Samples); err != nil {
			return nil, err
		}
		diamond, err := plotter.NewScatter(plotter.XYs{{X: row.AUSC.CriticalFNR, Y: at}})
		if err != nil {
			return nil, err
		}
		diamond.GlyphStyle = draw.GlyphStyle{Color: foreground, Radius: 3.2, Shape: diamondGlyph{}}
		p.Add(diamond)
	}
	p.X.Min, p.X.Max = 0, roundUp(highest, 6)
	p.X.Tick.Marker = numberTicks(6, 1, "")
	p.Y.Min, p.Y.Max = -0.7, float64(len(rows))-0.3
	p.Y.Tick.Marker = ticks
	var err error
	f.SVG, err = render(figureWidth, vg.Length(50+22*len(rows)), f.Title+". "+f.Says, p.Draw)
	return f, err
}

// areaSays names the ranking of the lowest mean area, and the score that wins
// most resamples.
func (b *builder) areaSays(scope policy.Scope, sorted []*eval.Row) string {
	lowest := sorted[0]
	s := fmt.Sprintf("The lowest mean AUSC is that of %s: %s (95%% interval %s)", alone(lowest.Name),
		number(lowest.Bootstrap.Mean), interval(lowest.Bootstrap.Interval))
	if of := b.row(scope, mi); of != nil && of != lowest {
		s += fmt.Sprintf("; that of mutual information alone is %s (%s)", number(of.Bootstrap.Mean), interval(of.Bootstrap.Interval))
	}
	winner := b.best(scope, func(row *eval.Row) float64 { return -row.Bootstrap.WinShare })
	if winner == nil {
		return s + "."
	}
	return s + fmt.Sprintf(". Of the scores, %s has the lowest area in %s of the resamples.", plain(winner.Name),
		percent(winner.Bootstrap.WinShare))
}

// addBox draws a horizontal box plot of values at a height.
func addBox(p *plot.Plot, s stroke, at float64, values []float64) error {
	box, err := plotter.NewBoxPlot(12, at, plotter.Values(values))
	if err != nil {
		return err
	}
	styleBox(box, s)
	p.Add(box)
	return nil
}

func styleBox(box *plotter.BoxPlot, s stroke) {
	box.Horizontal = true
	box.FillColor = s.ink.faint(70)
	box.BoxStyle = s.style()
	box.WhiskerStyle = s.style()
	box.MedianStyle = draw.LineStyle{Color: foreground, Width: 1.5}
	box.CapWidth = 6
	box.GlyphStyle = draw.GlyphStyle{Color: s.ink, Radius: 1.6, Shape: draw.RingGlyph{}}
}

// diamondGlyph is a filled diamond.
type diamondGlyph struct{}

// DrawGlyph draws it.
func (diamondGlyph) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	c.FillPolygon(s.Color, []vg.Point{
		{X: at.X - s.Radius, Y: at.Y}, {X: at.X, Y: at.Y + s.Radius},
		{X: at.X + s.Radius, Y: at.Y}, {X: at.X, Y: at.Y - s.Radius},
	})
}
