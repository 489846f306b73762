package document

import (
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// figureWidth is the width of every plot. The page scales it.
const figureWidth = 680

// picture draws the plots of a figure for the page.
func picture(f *Figure) (template.HTML, error) {
	plots, heights, err := f.plots()
	if err != nil {
		return "", err
	}
	return render(figureWidth, total(heights), f.Title+". "+f.Says, func(c draw.Canvas) { drawStack(c, plots, heights) })
}

// SVG writes the plots of a figure as an SVG file of its own, with its title and legend. The file
// loads nothing and follows the reader's light or dark theme.
func SVG(w io.Writer, f *Figure) error {
	plots, heights, err := f.plots()
	if err != nil {
		return err
	}
	const title, row = 20, 17
	head := vg.Length(title + row*((len(f.Legend)+1)/2) + 6)
	svg, err := standalone(figureWidth, head+total(heights), f.Title+". "+f.Says, func(c draw.Canvas) {
		style := text.Style{Color: Foreground, Font: sans(13), Handler: plot.DefaultTextHandler}
		c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y - 12}, f.Title)
		style.Font = sans(11)
		for i, key := range f.Legend {
			x, y := c.Min.X+vg.Length(i%2)*figureWidth/2, c.Max.Y-title-row*vg.Length(i/2)-8
			key.draw(c, x, y+4)
			c.FillText(style, vg.Point{X: x + 36, Y: y}, key.Text)
		}
		c.Max.Y -= head
		drawStack(c, plots, heights)
	})
	if err != nil {
		return err
	}
	_, err = w.Write(svg)
	return err
}

// draw draws the mark of a legend's entry, from x to x+28.
func (k Key) draw(c draw.Canvas, x, y vg.Length) {
	if glyph := glyphs[k.Mark]; glyph != nil {
		c.DrawGlyph(draw.GlyphStyle{Color: k.Ink, Radius: 4.5, Shape: glyph}, vg.Point{X: x + 14, Y: y})
		return
	}
	style := Stroke{k.Ink, k.Mark, 2}.style()
	if k.Mark == MarkBand {
		style = draw.LineStyle{Color: k.Ink.faint(76), Width: 10}
	}
	c.StrokeLine2(style, x, y, x+28, y)
}

// plots prepares the plots of a figure for drawing, with their heights.
func (f *Figure) plots() (plots []*plot.Plot, heights []vg.Length, err error) {
	for i := range f.Plots {
		p, err := f.Plots[i].prepare()
		if err != nil {
			return nil, nil, err
		}
		plots, heights = append(plots, p), append(heights, vg.Length(f.Plots[i].Height))
	}
	return plots, heights, nil
}

func (p *Plot) prepare() (*plot.Plot, error) {
	drawn := newPlot(p.X.Label, p.Y.Label)
	for _, band := range p.Bands {
		if err := band.add(drawn); err != nil {
			return nil, err
		}
	}
	for _, box := range p.Boxes {
		if err := box.add(drawn); err != nil {
			return nil, err
		}
	}
	for _, line := range p.Lines {
		for _, points := range runs(line.X, line.Y) {
			l, err := plotter.NewLine(points)
			if err != nil {
				return nil, err
			}
			l.LineStyle = line.style()
			drawn.Add(l)
		}
	}
	for _, points := range p.Points {
		if err := points.add(drawn); err != nil {
			return nil, err
		}
	}
	// Adding widens the axes, so that their ends are set last.
	drawn.X.Min, drawn.X.Max, drawn.X.Tick.Marker = p.X.Min, p.X.Max, p.X.Ticks.ticker()
	drawn.Y.Min, drawn.Y.Max, drawn.Y.Tick.Marker = p.Y.Min, p.Y.Max, p.Y.Ticks.ticker()
	return drawn, nil
}

// newPlot returns an empty plot in the style of the page.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color = Muted
		axis.Padding = 0
		axis.Label.TextStyle.Color = Foreground
		axis.Label.TextStyle.Font = sans(11)
		axis.Label.Padding = 5
		axis.Tick.Color = Muted
		axis.Tick.Length = 4
		axis.Tick.Label.Color = Foreground
		axis.Tick.Label.Font = sans(11)
	}
	grid := plotter.NewGrid()
	grid.Horizontal = draw.LineStyle{Color: gridline, Width: 0.5}
	grid.Vertical = grid.Horizontal
	p.Add(grid)
	return p
}

// sans returns a font with the measures of the page's font.
func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

func (s Stroke) style() draw.LineStyle {
	style := draw.LineStyle{Color: s.Ink, Width: vg.Length(s.Width)}
	switch s.Dash {
	case MarkDashed:
		style.Dashes = []vg.Length{6, 3}
	case MarkDotted, MarkThin:
		style.Dashes = []vg.Length{1.5, 2.5}
	}
	return style
}

func (b *Band) add(to *plot.Plot) error {
	lower, upper := slices.Clone(b.Low), slices.Clone(b.High)
	for j := range lower { // both are NaN where one of them is
		lower[j] += 0 * b.High[j]
		upper[j] += 0 * b.Low[j]
	}
	uppers := runs(b.X, upper)
	for r, ring := range runs(b.X, lower) {
		slices.Reverse(uppers[r])
		band, err := plotter.NewPolygon(append(ring, uppers[r]...))
		if err != nil {
			return err
		}
		band.Color = b.Ink.faint(36)
		band.LineStyle.Width = 0
		to.Add(band)
	}
	return nil
}

func (b *Box) add(to *plot.Plot) error {
	box, err := plotter.NewBoxPlot(12, b.At, plotter.Values(b.Values))
	if err != nil {
		return err
	}
	line := draw.LineStyle{Color: b.Ink, Width: 1}
	box.Horizontal = true
	box.FillColor = b.Ink.faint(70)
	box.BoxStyle, box.WhiskerStyle = line, line
	box.MedianStyle = draw.LineStyle{Color: Foreground, Width: 1.5}
	box.CapWidth = 6
	box.GlyphStyle = draw.GlyphStyle{Color: b.Ink, Radius: 1.6, Shape: draw.RingGlyph{}}
	if b.Percentiles {
		sorted := slices.Sorted(slices.Values(b.Values))
		last := len(sorted) - 1
		box.AdjLow, box.AdjHigh, box.Outside = sorted[last*5/100], sorted[last*95/100], nil
	}
	to.Add(box)
	return nil
}

func (p *Points) add(to *plot.Plot) error {
	xys := make(plotter.XYs, len(p.X))
	for i := range xys {
		xys[i] = plotter.XY{X: p.X[i], Y: p.Y[i]}
	}
	scatter, err := plotter.NewScatter(xys)
	if err != nil {
		return err
	}
	scatter.GlyphStyle = draw.GlyphStyle{Color: p.Ink, Radius: vg.Length(p.Radius), Shape: glyphs[p.Mark]}
	if p.Faint {
		scatter.Color = p.Ink.faint(190)
	}
	to.Add(scatter)
	return nil
}

// glyphs has the shapes of the marks that are points.
var glyphs = map[Mark]draw.GlyphDrawer{
	MarkCircle: draw.CircleGlyph{},
	MarkTriangle: polygon(func(at vg.Point, r vg.Length) []vg.Point {
		return []vg.Point{{X: at.X - r, Y: at.Y - r}, {X: at.X + r, Y: at.Y - r}, {X: at.X, Y: at.Y + r}}
	}),
	MarkDiamond: polygon(func(at vg.Point, r vg.Length) []vg.Point {
		return []vg.Point{{X: at.X - r, Y: at.Y}, {X: at.X, Y: at.Y + r}, {X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y - r}}
	}),
}

// polygon returns the corners of a filled shape of a radius.
type polygon func(at vg.Point, radius vg.Length) []vg.Point

// DrawGlyph fills the shape.
func (p polygon) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	c.FillPolygon(s.Color, p(at, s.Radius))
}

// runs returns the neighbouring points that are numbers.
func runs(x, y []float64) []plotter.XYs {
	var all []plotter.XYs
	open := false
	for i := range y {
		if math.IsNaN(y[i]) || math.IsInf(y[i], 0) {
			open = false
			continue
		}
		if !open {
			all = append(all, nil)
			open = true
		}
		all[len(all)-1] = append(all[len(all)-1], plotter.XY{X: x[i], Y: y[i]})
	}
	return all
}

func total[N int | vg.Length](parts []N) (sum N) {
	for _, n := range parts {
		sum += n
	}
	return sum
}

// drawStack draws plots below each other from the top of the canvas, with the left and right ends of
// their x axes in line.
func drawStack(c draw.Canvas, plots []*plot.Plot, heights []vg.Length) {
	tiles := make([]draw.Canvas, len(plots))
	var left, right vg.Length
	top := c.Max.Y
	for i, p := range plots {
		tiles[i] = c
		tiles[i].Max.Y, tiles[i].Min.Y = top, top-heights[i]
		top -= heights[i]
		data := p.DataCanvas(tiles[i])
		left = max(left, data.Min.X-c.Min.X)
		right = max(right, c.Max.X-data.Max.X)
	}
	for i, p := range plots {
		data := p.DataCanvas(tiles[i])
		p.Draw(draw.Crop(tiles[i], left-(data.Min.X-c.Min.X), (c.Max.X-data.Max.X)-right, 0, 0))
	}
}

func (t Ticks) ticker() plot.Ticker {
	return plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
		switch {
		case t.Names != nil:
			for i, name := range t.Names {
				ticks = append(ticks, plot.Tick{Value: float64(i), Label: Label(name) + " "})
			}
		case t.Decades:
			ticks = decades(low, high)
		default:
			ticks = t.round(low, high)
		}
		for i := range ticks {
			if t.Unnamed {
				ticks[i].Label = " " // an empty label would leave out the line of the grid
			}
		}
		return ticks
	})
}

// decades names each power of ten, and marks 2 to 9 times each without a name.
func decades(low, high float64) (ticks []plot.Tick) {
	for e := math.Ceil(low); e <= high; e++ {
		ticks = append(ticks, plot.Tick{Value: e, Label: Plain(math.Pow10(int(e)))})
		for m := 2.0; m < 10; m++ {
			ticks = append(ticks, plot.Tick{Value: e + math.Log10(m)})
		}
	}
	return ticks
}

// round returns about t.About round numbers from low to high.
func (t Ticks) round(low, high float64) (ticks []plot.Tick) {
	step := roundStep((high - low) * t.Unit / float64(t.About))
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for i := math.Ceil(low*t.Unit/step - 1e-9); i*step <= high*t.Unit+1e-9*step; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step / t.Unit,
			Label: strconv.FormatFloat(i*step+0, 'f', decimals, 64) + t.Sign}) // +0: never "-0"
	}
	return ticks
}

// roundStep returns the smallest of 1, 2, 5, 10 and so on, times a power of ten, that is at least
// step; 1 where step is no positive number.
func roundStep(step float64) float64 {
	if !(step > 0) || math.IsInf(step, 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= step*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// RoundUp returns the end of an axis from 0 that has room for x, with about n ticks.
func RoundUp(x float64, n int) float64 {
	if !(x > 0) || math.IsInf(x, 0) {
		return 1
	}
	step := roundStep(x / float64(n))
	return step * math.Ceil(x/step-1e-9)
}
