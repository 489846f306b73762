package report

import (
	"html/template"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// figureWidth is the width of every plot. It is scaled to the page.
const figureWidth = 680

// newPlot is an empty plot in the style of the page.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color = muted
		axis.Padding = 0
		axis.Label.TextStyle.Color = foreground
		axis.Label.TextStyle.Font = sans(11)
		axis.Label.Padding = 5
		axis.Tick.Color = muted
		axis.Tick.Length = 4
		axis.Tick.Label.Color = foreground
		axis.Tick.Label.Font = sans(11)
	}
	grid := plotter.NewGrid()
	grid.Horizontal = draw.LineStyle{Color: gridline, Width: 0.5}
	grid.Vertical = grid.Horizontal
	p.Add(grid)
	return p
}

// sans is a font whose measures are those of the page's.
func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// stroke is how a line looks; dash is one of the classes of a legend.
type stroke struct {
	ink   ink
	dash  string // "solid", "dashed", "dotted"
	width vg.Length
}

func (s stroke) style() draw.LineStyle {
	style := draw.LineStyle{Color: s.ink, Width: s.width}
	switch s.dash {
	case "dashed":
		style.Dashes = []vg.Length{6, 3}
	case "dotted":
		style.Dashes = []vg.Length{1.5, 2.5}
	}
	return style
}

func (s stroke) key(text string) key { return key{Class: s.dash + " " + s.ink.String(), Text: text} }

// addLine draws y over x. It is broken where y is no number.
func addLine(p *plot.Plot, s stroke, x, y []float64) error {
	for _, points := range runs(x, y) {
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = s.style()
		p.Add(line)
	}
	return nil
}

// addBand fills from low to high over x, where they are numbers.
func addBand(p *plot.Plot, i ink, x, low, high []float64) error {
	lower := make([]float64, len(low)) // no number where high is none
	for j := range low {
		lower[j] = low[j] + 0*high[j]
	}
	upper := make([]float64, len(high))
	for j := range high {
		upper[j] = high[j] + 0*low[j]
	}
	uppers := runs(x, upper)
	for r, ring := range runs(x, lower) {
		for j := len(uppers[r]) - 1; j >= 0; j-- {
			ring = append(ring, uppers[r][j])
		}
		band, err := plotter.NewPolygon(ring)
		if err != nil {
			return err
		}
		band.Color = i.faint(36)
		band.LineStyle.Width = 0
		p.Add(band)
	}
	return nil
}

// runs of neighbouring points that are numbers.
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

// unnamed is marks without names, for an axis whose names are under another.
type unnamed struct{ plot.Ticker }

// Ticks are those of the other axis.
func (u unnamed) Ticks(low, high float64) []plot.Tick {
	ticks := u.Ticker.Ticks(low, high)
	for i := range ticks {
		ticks[i].Label = " " // with none, it would have no line in the grid
	}
	return ticks
}

// upright is a vertical line over the whole height.
func upright(p *plot.Plot, s stroke, x float64) error {
	return addLine(p, s, []float64{x, x}, []float64{p.Y.Min, p.Y.Max})
}

// stack draws plots under each other, with one x axis: their left and right ends
// are in line. Heights are of the whole plots.
func stack(name string, plots []*plot.Plot, heights []vg.Length) (template.HTML, error) {
	return render(figureWidth, total(heights), name, func(c draw.Canvas) { drawStack(c, plots, heights) })
}

func total(heights []vg.Length) (height vg.Length) {
	for _, h := range heights {
		height += h
	}
	return height
}

// drawStack draws a stack from the top of the canvas.
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

// numberTicks are about n round numbers from 0 or the least to the highest,
// times a unit and with it behind them.
func numberTicks(n int, unit float64, sign string) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		step := roundStep((high - low) * unit / float64(n))
		decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
		var ticks []plot.Tick
		for i := math.Ceil(low*unit/step - 1e-9); i*step <= high*unit+1e-9*step; i++ {
			ticks = append(ticks, plot.Tick{Value: i * step / unit,
				Label: strconv.FormatFloat(i*step+0, 'f', decimals, 64) + sign}) // +0: never "-0"
		}
		return ticks
	})
}

// roundStep is the least of 1, 2, 5, 10, ... (times a power of ten) that is not
// under a step; 1 where there is none.
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

// roundUp is the end of an axis from 0 with about n ticks that has room for x.
func roundUp(x float64, n int) float64 {
	if !(x > 0) || math.IsInf(x, 0) {
		return 1
	}
	step := roundStep(x / float64(n))
	return step * math.Ceil(x/step-1e-9)
}
