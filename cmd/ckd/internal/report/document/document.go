package document

// Document holds a whole report.
type Document struct {
	Title string
	// Warnings come before everything else: where they are right, nothing else holds.
	Warnings []string
	Subject  string   // what was evaluated, in one line
	Lead     []string // the summary, a paragraph each
	Tiles    []Tile
	Notes    []string
	Words    []Word
	// Sections in the order in which both renderers show them.
	Sections []Section
}

// Tile is one number that matters. HTML alone shows tiles: the lead and the tables repeat them.
type Tile struct {
	Value, Label, Detail string
	Strong               bool
}

// Word has a term that the document uses, and its meaning. HTML alone shows words.
type Word [2]string

// Section groups parts under a heading.
type Section struct {
	ID, Title, Intro string
	Points           []string // a list below the intro
	Parts            []Part
}

// Part is a *Table or a *Figure.
type Part interface{ part() }

// NewSection returns a section with the parts that are not nil.
func NewSection(id, title, intro string, parts ...Part) Section {
	s := Section{ID: id, Title: title, Intro: intro}
	for _, p := range parts {
		switch p := p.(type) {
		case *Table:
			if p != nil {
				s.Parts = append(s.Parts, p)
			}
		case *Figure:
			if p != nil {
				s.Parts = append(s.Parts, p)
			}
		}
	}
	return s
}

// Table holds rows of typed cells; see Format for the types.
type Table struct {
	Caption string
	Says    string // what the table shows or how to read it
	Head    []string
	// TextColumns counts the columns from the left that hold text. The others hold numbers.
	TextColumns int
	Rows        [][]any
	// Closed tables are opened by the reader of the HTML page.
	Closed bool
	// Main lists the rows that plain text shows when there are too many, in ascending order. Nil
	// takes the first rows.
	Main []int
}

func (*Table) part() {}

// Add appends a row.
func (t *Table) Add(cells ...any) { t.Rows = append(t.Rows, cells) }

// LongTable is the number of rows above which tables are usually closed at first.
const LongTable = 15

// cells formats every cell.
func (t *Table) cells() [][]string {
	rows := make([][]string, len(t.Rows))
	for i, row := range t.Rows {
		for _, cell := range row {
			rows[i] = append(rows[i], Format(cell))
		}
	}
	return rows
}

// Figure holds plots, matrices or bars, with a title and a sentence that says what they show.
type Figure struct {
	Title       string
	Says        string // what the figure shows, computed from its data
	How         string // how to read it
	LegendTitle string
	Legend      []Key
	// Plots are drawn below each other and share the ends of their x axes.
	Plots    []Plot
	Matrices []*Matrix
	Bars     []BarGroup
}

func (*Figure) part() {}

// Key is an entry of a legend: a mark in a colour.
type Key struct {
	Mark Mark
	Ink  Ink
	Text string
}

// Mark is the shape of a legend's entry, and a CSS class of style.css.
type Mark string

// The marks.
const (
	MarkSolid    Mark = "solid"
	MarkLong     Mark = "long"
	MarkDashed   Mark = "dashed"
	MarkDashDot  Mark = "dashdot"
	MarkDotted   Mark = "dotted"
	MarkThin     Mark = "dotted thin"
	MarkBand     Mark = "band"
	MarkBox      Mark = "box"
	MarkCircle   Mark = "dot"
	MarkTriangle Mark = "triangle"
	MarkDiamond  Mark = "diamond"
)

// Plot is one pair of axes with what is drawn on them: bands first, then boxes, lines and points.
type Plot struct {
	Height float64
	X, Y   Axis
	Bands  []Band
	Boxes  []Box
	Lines  []Line
	Points []Points
}

// Axis runs from Min to Max.
type Axis struct {
	Label    string
	Min, Max float64
	Ticks    Ticks
}

// Ticks says where an axis has marks and names. Names, where there are any, stand at 0, 1, 2 and so
// on. Decades marks powers of ten on an axis of decimal logarithms. Else there are about About round
// numbers, multiplied by Unit and followed by Sign.
type Ticks struct {
	About   int
	Unit    float64
	Sign    string
	Decades bool
	Names   []string
	// Unnamed keeps the marks and leaves out their names, which another plot shows.
	Unnamed bool
}

// Stroke is the look of a line.
type Stroke struct {
	Ink   Ink
	Dash  Mark // MarkSolid, MarkLong, MarkDashed, MarkDashDot or MarkDotted
	Width float64
}

// Key returns the entry of a legend for the line.
func (s Stroke) Key(text string) Key { return Key{Mark: s.Dash, Ink: s.Ink, Text: text} }

// Line connects points. It is broken where Y is NaN.
type Line struct {
	Stroke
	X, Y []float64
}

// Band fills the space from Low to High. It is broken where one of them is NaN.
type Band struct {
	Ink          Ink
	X, Low, High []float64
}

// Box is a horizontal box plot of values at the height At.
type Box struct {
	Ink    Ink
	At     float64
	Values []float64
	// Percentiles ends the whiskers at the 5th and the 95th percentile, and draws nothing beyond.
	// Else they end at the last value within 1.5 lengths of the box.
	Percentiles bool
}

// Points are single marks: MarkCircle, MarkTriangle or MarkDiamond.
type Points struct {
	Mark   Mark
	Ink    Ink
	Radius float64
	Faint  bool
	X, Y   []float64
}

// BarGroup holds horizontal bars under a title.
type BarGroup struct {
	Title, Detail string
	Kind, Class   string // a word beside the title, and its CSS class
	Bars          []Bar
}

// Bar is a named value. Share is its length as a share of the longest bar of the figure.
type Bar struct {
	Name, Value string
	Share       float64
	Critical    bool
}

// Upright adds a vertical line over the whole height.
func (p *Plot) Upright(x float64, s Stroke) {
	p.Lines = append(p.Lines, Line{Stroke: s, X: []float64{x, x}, Y: []float64{p.Y.Min, p.Y.Max}})
}
