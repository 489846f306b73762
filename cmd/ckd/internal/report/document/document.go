package document

// Document holds a whole report.
type Document struct {
	Title string
	// Screen comes first in both forms.
	Screen Screen
	Notes  []string
	Words  []Word
	// Sections in the order in which both renderers show them.
	Sections []Section
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

// Figure holds plots or matrices, with a title and a sentence that says what they show.
type Figure struct {
	Title  string
	Says   string // what the figure shows, computed from its data
	How    string // how to read it
	Legend []Key
	// Plots are drawn below each other and share the ends of their x axes.
	Plots    []Plot
	Matrices []*Matrix
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
	MarkSolid   Mark = "solid"
	MarkLong    Mark = "long"
	MarkDashed  Mark = "dashed"
	MarkDashDot Mark = "dashdot"
	MarkDotted  Mark = "dotted"
	MarkThin    Mark = "dotted thin"
)

// Plot is one pair of axes with the lines that are drawn on them.
type Plot struct {
	Height float64
	X, Y   Axis
	Lines  []Line
}

// Axis runs from Min to Max.
type Axis struct {
	Label    string
	Min, Max float64
	Ticks    Ticks
}

// Ticks says where an axis has marks and names: at about About round numbers, multiplied by Unit and
// followed by Sign.
type Ticks struct {
	About int
	Unit  float64
	Sign  string
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

// Upright adds a vertical line over the whole height.
func (p *Plot) Upright(x float64, s Stroke) {
	p.Lines = append(p.Lines, Line{Stroke: s, X: []float64{x, x}, Y: []float64{p.Y.Min, p.Y.Max}})
}
