package document

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Ink is a colour by its role. It is a variable of style.css, which has a light and a dark value for
// each.
type Ink uint8

// The inks.
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
)

var inkNames = [...]string{
	"fg", "muted", "line", "grey", "blue", "orange", "green", "purple", "vermillion", "sky",
}

// String returns the name of the ink in style.css.
func (i Ink) String() string { return inkNames[i] }

// point is a place in a picture: x to the right and y down, in units of its viewBox.
type point struct{ x, y float64 }

// canvas collects the elements of a picture in SVG. Names and labels are escaped. Coordinates have
// two decimals, a fraction of what a screen can show.
type canvas struct{ strings.Builder }

// line strokes lines through points, as one element.
func (c *canvas) line(s Stroke, lines ...[]point) {
	if d := path(lines); d != "" {
		fmt.Fprintf(c, "<path d=\"%s\" style=\"fill:none;stroke:var(--%s);stroke-width:%s%s\"/>\n", d, s.Ink, number(s.Width), dashes[s.Dash])
	}
}

// dashes has the patterns of broken lines. No two are alike, so that lines can be told apart without
// colour, and show through each other.
var dashes = map[Mark]string{
	MarkLong:    ";stroke-dasharray:14,3",
	MarkDashed:  ";stroke-dasharray:6,3",
	MarkDashDot: ";stroke-dasharray:8,2.5,1.5,2.5",
	MarkDotted:  ";stroke-dasharray:1.5,2.5",
	MarkThin:    ";stroke-dasharray:1.5,2.5",
}

// Anchors of a text: the place is at its start, its middle or its end.
const (
	start  = "start"
	middle = "middle"
	end    = "end"
)

// text writes a text whose middle height is at a place. A text that is turned reads upwards.
func (c *canvas) text(at point, size float64, anchor string, turned bool, text string) {
	transform := ""
	if turned {
		transform = fmt.Sprintf(" transform=\"rotate(-90 %s %s)\"", number(at.x), number(at.y))
	}
	fmt.Fprintf(c, "<text x=\"%s\" y=\"%s\"%s style=\"font-size:%spx;fill:var(--fg);text-anchor:%s\">%s</text>\n", number(at.x),
		number(at.y+0.35*size), transform, number(size), anchor, escape(text))
}

// path returns the data of lines through points.
func path(lines [][]point) string {
	var d []byte
	for _, line := range lines {
		for i, p := range line {
			command := byte('L')
			if i == 0 {
				command = 'M'
			}
			d = append(append(d, command), number(p.x)...)
			d = append(append(d, ','), number(p.y)...)
		}
	}
	return string(d)
}

// number returns a coordinate with at most two decimals.
func number(x float64) string {
	return strconv.FormatFloat(math.Round(x*100)/100+0, 'f', -1, 64) // +0: never "-0"
}

// escape returns text for an element or an attribute of HTML or XML, in which control characters
// have no place.
func escape(text string) string {
	return template.HTMLEscapeString(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD")))
}

// measure returns about how wide a text is, rather too much than too little: which font the reader
// has is not known. The widths are those of Arial, in thousandths of the size.
func measure(text string, size float64) float64 {
	width := 0
	for _, r := range text {
		switch {
		case strings.ContainsRune("fijlrtI.,:;!|'()[]/- ", r):
			width += 340
		case strings.ContainsRune("mwMW%@", r), r >= 0x1100: // from there on are the wide scripts
			width += 1000
		case unicode.IsUpper(r):
			width += 740
		default:
			width += 570
		}
	}
	return float64(width) / 1000 * size
}

// svg returns a picture as an element of a page. The name tells readers who cannot see it what it
// shows.
func (c *canvas) svg(width, height float64, name string) template.HTML {
	return template.HTML(fmt.Sprintf("<svg viewBox=\"0 0 %s %s\" role=\"img\" aria-label=\"%s\">\n%s</svg>\n", number(width), number(height),
		escape(name), c.String()))
}
