package document

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"regexp"
	"strconv"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Ink is a colour by its role. Plots are drawn in placeholders, one for each role; in the SVG they
// become the variables of style.css, which has a light and a dark value for each.
type Ink uint8

// The inks. Under0 to Under2 are for values up to a threshold, from the least, and Over0 to Over2 for
// values above it.
const (
	Foreground Ink = iota
	Muted
	gridline
	Grey
	Blue
	Orange
	Green
	Purple
	Vermillion
	Sky
	Under0
	Under1
	Under2
	Over0
	Over1
	Over2
)

var inkNames = [...]string{
	"fg", "muted", "line", "grey", "blue", "orange", "green", "purple", "vermillion", "sky",
	"under0", "under1", "under2", "over0", "over1", "over2",
}

// String returns the name of the ink in style.css.
func (i Ink) String() string { return inkNames[i] }

// RGBA returns the placeholder of the ink.
func (i Ink) RGBA() (r, g, b, a uint32) { return i.faint(255).RGBA() }

// faint returns the ink at an opacity from 0 to 255.
func (i Ink) faint(opacity uint8) color.Color {
	return color.NRGBA{R: 0x40, G: inkStep*uint8(i) + inkStep/2, B: 0x80, A: opacity}
}

// inkStep is the distance of placeholders, wide enough to survive the rounding of vgsvg.
const inkStep = 8

// render draws a picture for a page. The name tells readers who cannot see the picture what it shows.
func render(width, height vg.Length, name string, paint func(draw.Canvas)) (template.HTML, error) {
	size, body, err := inkSVG(width, height, paint)
	head := fmt.Sprintf("<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\">\n", size.X.Points(), size.Y.Points(),
		template.HTMLEscapeString(name))
	return template.HTML(head + string(body)), err
}

// standalone draws a picture as a file of its own, with the colours of style.css.
func standalone(width, height vg.Length, name string, paint func(draw.Canvas)) ([]byte, error) {
	size, body, err := inkSVG(width, height, paint)
	if err != nil {
		return nil, err
	}
	style, err := files.ReadFile("style.css")
	if err != nil {
		return nil, err
	}
	colours, _, _ := bytes.Cut(style, []byte("* {")) // they come first
	name = template.HTMLEscapeString(name)
	w, h := size.X.Points(), size.Y.Points()
	head := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" role=\"img\" "+
		"aria-label=\"%s\" font-family=\"Liberation Sans, Arial, Helvetica, sans-serif\">\n<title>%s</title>\n<style>\n%s</style>\n"+
		"<rect width=\"100%%\" height=\"100%%\" style=\"fill:var(--bg)\"/>\n", w, h, w, h, name, name, colours)
	return append([]byte(head), body...), nil
}

// inkSVG draws a picture whose colours are variables of style.css. The size includes a margin, since
// the reader's font may be wider. The body begins after the opening svg tag, which the caller writes.
func inkSVG(width, height vg.Length, paint func(draw.Canvas)) (size vg.Point, body []byte, err error) {
	const margin = 8
	width, height = width+2*margin, height+2*margin
	canvas := vgsvg.NewWith(vgsvg.UseWH(width, height))
	paint(draw.Crop(draw.New(canvas), margin, -margin, margin, -margin))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return size, nil, err
	}
	_, body, found := bytes.Cut(out.Bytes(), []byte("xlink\">\n"))
	if !found {
		return size, nil, fmt.Errorf("the head of the SVG is not as expected: %.200q", out.Bytes())
	}
	body = styleAttribute.ReplaceAllFunc(body, func(style []byte) []byte {
		style = fontStyle.ReplaceAll(style, nil)
		return inkColor.ReplaceAllFunc(style, func(hex []byte) []byte {
			g, _ := strconv.ParseUint(string(hex[3:5]), 16, 8) // cannot fail: two hex digits
			return fmt.Appendf(nil, "var(--%s)", Ink(min(int(g/inkStep), len(inkNames)-1)))
		})
	})
	return vg.Point{X: width, Y: height}, body, nil
}

// Text in the SVG is escaped, quotes too: what looks like a style is one.
var (
	styleAttribute = regexp.MustCompile(`style="[^"]*"`)
	fontStyle      = regexp.MustCompile(`font-(family|variant|weight|style):[^;"]*;?`)
	inkColor       = regexp.MustCompile(`#[0-9A-F]{6}`)
)
