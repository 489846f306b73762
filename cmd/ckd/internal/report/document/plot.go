package document

import (
	"html/template"
	"math"
)

// Measures of pictures, in units of their viewBox. The page scales them.
const (
	figureWidth = 696.0
	margin      = 8.0
	textSize    = 11.0
	tickLength  = 4.0
	labelGap    = 3.0 // between a tick and its label
)

// picture draws the plots of a figure for the page.
func picture(f *Figure) template.HTML {
	var c canvas
	height := c.stack(f.Plots, margin) + margin
	return c.svg(figureWidth, height, f.Title+". "+f.Says)
}

// stack draws plots below each other from top on, with the left and right ends of their x axes in
// line. It returns where the last one ends.
func (c *canvas) stack(plots []Plot, top float64) (bottom float64) {
	left, right := 0.0, 0.0
	for i := range plots {
		l, r := plots[i].sides()
		left, right = max(left, l), max(right, r)
	}
	for i := range plots {
		p := &plots[i]
		f := frame{p.X, p.Y, margin + left, figureWidth - margin - right, top + textSize/2, top + p.Height - p.foot()}
		p.draw(c, &f)
		top += p.Height
	}
	return top
}

// sides returns the room for what is left of the y axis, and for the name that hangs over the right
// end of the x axis.
func (p *Plot) sides() (left, right float64) {
	for _, t := range p.Y.marks() {
		left = max(left, measure(t.label, textSize))
	}
	left += tickLength + labelGap
	if p.Y.Label != "" {
		left += textSize + 2*labelGap
	}
	for _, t := range p.X.marks() {
		right = max(right, measure(t.label, textSize)/2)
	}
	return max(left, right), right
}

// foot returns the height of what is below the x axis.
func (p *Plot) foot() float64 {
	foot := tickLength + 2*labelGap
	if !p.X.Ticks.Unnamed {
		foot += textSize
	}
	if p.X.Label != "" {
		foot += textSize + 2*labelGap
	}
	return foot
}

// frame maps the values of two axes to the rectangle that they enclose.
type frame struct {
	xAxis, yAxis             Axis
	left, right, top, bottom float64
}

// pointAt returns the place of a value on each axis. An axis without an extent has all at its beginning.
func (f *frame) pointAt(x, y float64) point {
	return point{f.left + f.xAxis.part(x)*(f.right-f.left), f.bottom - f.yAxis.part(y)*(f.bottom-f.top)}
}

// part returns how far along the axis a value is: 0 at Min, 1 at Max. Values that are further away
// than a picture can tell stay where sums with them are exact enough.
func (a *Axis) part(value float64) float64 {
	if !(a.Max > a.Min) {
		return 0 * value // NaN stays
	}
	const far = 1e6
	return min(max((value-a.Min)/(a.Max-a.Min), -far), far)
}

// draw draws the axes with their grid, and what is on it as a group of its own.
func (p *Plot) draw(c *canvas, f *frame) {
	var lines, ticks [][]point
	for _, t := range p.X.marks() {
		at := f.pointAt(t.value, p.Y.Min)
		ticks = append(ticks, []point{{at.x, f.bottom}, {at.x, f.bottom + tickLength}})
		lines = append(lines, []point{{at.x, f.top}, {at.x, f.bottom}})
		if !p.X.Ticks.Unnamed {
			c.text(point{at.x, f.bottom + tickLength + labelGap + textSize/2}, textSize, middle, false, t.label)
		}
	}
	for _, t := range p.Y.marks() {
		at := f.pointAt(p.X.Min, t.value)
		ticks = append(ticks, []point{{f.left - tickLength, at.y}, {f.left, at.y}})
		lines = append(lines, []point{{f.left, at.y}, {f.right, at.y}})
		c.text(point{f.left - tickLength - labelGap, at.y}, textSize, end, false, t.label)
	}
	c.line(Stroke{Ink: gridline, Width: 0.5}, lines...)
	axes := []point{{f.left, f.top}, {f.left, f.bottom}, {f.right, f.bottom}}
	c.line(Stroke{Ink: Muted, Width: 0.7}, append(ticks, axes)...)
	if p.X.Label != "" {
		c.text(point{(f.left + f.right) / 2, f.bottom + p.foot() - labelGap - textSize/2}, textSize, middle, false, p.X.Label)
	}
	if p.Y.Label != "" {
		c.text(point{margin + textSize/2, (f.top + f.bottom) / 2}, textSize, middle, true, p.Y.Label)
	}
	c.WriteString("<g class=\"data\">\n")
	for i := range p.Lines {
		l := &p.Lines[i]
		c.line(l.Stroke, f.cut(f.runs(l.X, l.Y))...)
	}
	c.WriteString("</g>\n")
}

// runs returns the places of neighbouring points that are numbers.
func (f *frame) runs(x, y []float64) (runs [][]point) {
	open := false
	for i := range y {
		if finite := !math.IsNaN(x[i]+y[i]) && !math.IsInf(x[i]+y[i], 0); !finite {
			open = false
			continue
		}
		if !open {
			runs, open = append(runs, nil), true
		}
		runs[len(runs)-1] = append(runs[len(runs)-1], f.pointAt(x[i], y[i]))
	}
	return runs
}

// cut returns the parts of lines that are inside the frame.
func (f *frame) cut(lines [][]point) [][]point {
	for _, inside := range []func(p point) float64{
		func(p point) float64 { return p.x - f.left },
		func(p point) float64 { return f.right - p.x },
		func(p point) float64 { return p.y - f.top },
		func(p point) float64 { return f.bottom - p.y },
	} {
		var kept [][]point
		for _, line := range lines {
			kept = append(kept, half(line, inside)...)
		}
		lines = kept
	}
	return lines
}

// half returns the parts of a line on one side of an edge. A place is on that side where inside is not
// negative.
func half(line []point, inside func(point) float64) (parts [][]point) {
	var part []point
	for i, p := range line {
		side := inside(p)
		if i > 0 {
			if from := inside(line[i-1]); (from < 0) != (side < 0) {
				a, t := line[i-1], from/(from-side)
				part = append(part, point{a.x + t*(p.x-a.x), a.y + t*(p.y-a.y)})
			}
		}
		if side >= 0 {
			part = append(part, p)
		} else if part != nil {
			parts, part = append(parts, part), nil
		}
	}
	if part != nil {
		parts = append(parts, part)
	}
	return parts
}
