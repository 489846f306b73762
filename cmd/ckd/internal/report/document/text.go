package document

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

const (
	nameWidth   = 64 // columns that a table gives to a name
	leastWidth  = 24 // columns that a table leaves to names, or what is theirs of 60
	mostRows    = 40 // rows of a table in plain text
	mostColumns = 12 // of a matrix in plain text
	headWidth   = 8  // columns up to which a head is not wrapped
)

// Text writes a document as plain text. Tables with many rows are cut, and say so.
func Text(w io.Writer, d *Document) error {
	t := &textWriter{w: bufio.NewWriter(w)}
	t.heading(d.Title)
	t.screen(&d.Screen, d.Screen.Rests)
	if len(d.Notes) > 0 {
		t.heading("Notes")
		t.list(d.Notes)
	}
	for _, s := range d.Sections {
		t.heading(s.Title)
		t.paragraph(s.Intro)
		t.list(s.Points)
		for _, p := range s.Parts {
			switch p := p.(type) {
			case *Table:
				t.table(p)
			case *Figure:
				t.figure(p)
			}
		}
	}
	return t.w.Flush()
}

type textWriter struct {
	w       *bufio.Writer
	started bool
}

func (t *textWriter) heading(title string) {
	if title == "" {
		return
	}
	if t.started {
		fmt.Fprintln(t.w)
	}
	t.started = true
	title = wrap(title, textWidth)
	fmt.Fprintln(t.w, title)
	fmt.Fprintln(t.w, strings.Repeat("=", text.LongestLineLen(title)))
}

func (t *textWriter) paragraph(s string) {
	if s != "" {
		fmt.Fprintln(t.w, wrap(s, textWidth))
	}
}

func (t *textWriter) list(points []string) {
	for _, p := range points {
		fmt.Fprintln(t.w, "- "+strings.ReplaceAll(wrap(p, textWidth-2), "\n", "\n  "))
	}
}

// caption starts a part of a section, with what the part says.
func (t *textWriter) caption(title, says string) {
	if t.started {
		fmt.Fprintln(t.w)
	}
	t.started = true
	t.paragraph(title)
	t.paragraph(says)
}

// figure writes the sentence of a figure and its small matrices. Plots cannot be written.
func (t *textWriter) figure(f *Figure) {
	t.caption(f.Title, f.Says)
	for _, m := range f.Matrices {
		if len(m.Names) > mostColumns {
			t.paragraph(fmt.Sprintf("%s: %d classes, for --format html or json.", m.Caption, len(m.Names)))
			continue
		}
		asTable := &Table{Caption: m.Caption, Head: []string{m.Corner}, TextColumns: 1}
		for i := range m.Names {
			asTable.Head = append(asTable.Head, m.Label(i))
			cells := []any{m.Label(i)}
			for j := range m.Names {
				cells = append(cells, m.Cell(i, j))
			}
			asTable.Add(cells...)
		}
		t.table(asTable)
	}
}

func (t *textWriter) table(content *Table) {
	t.caption(content.Caption, content.Says)
	cells, head := content.cells(), slices.Clone(content.Head)
	if content.TextColumns < len(head) {
		for c := range head {
			head[c] = shorten(head[c], nameWidth)
		}
		for _, row := range cells {
			for c := range content.TextColumns {
				row[c] = shorten(row[c], nameWidth)
			}
		}
	}
	left := len(cells) - mostRows
	if left > 0 && content.Main != nil {
		var main [][]string
		for _, i := range content.Main {
			main = append(main, cells[i])
		}
		cells, left = main, len(cells)-len(main)
	}
	cells = cells[:min(len(cells), mostRows)]
	for _, part := range splitTable(head, cells, content.TextColumns) {
		fmt.Fprintln(t.w, part)
	}
	if left > 0 {
		t.paragraph(fmt.Sprintf("%d more rows are left out here: --format json has all.", left))
	}
}

// splitTable returns a table as one text or, where it is too wide, as several that repeat the columns
// of text. Where the columns are named as the rows are, and the names make it too wide, the columns
// get the numbers of the rows instead.
func splitTable(head []string, rows [][]string, texts int) []string {
	widths := columnWidths(head, rows)
	if texts == 1 && total(widths) > textWidth && namesRows(head[1:], rows) {
		numbered := []string{"", head[0]}
		for i := range rows {
			rows[i] = append([]string{strconv.Itoa(i + 1)}, rows[i]...)
			numbered = append(numbered, strconv.Itoa(i+1))
		}
		head, texts = numbered, 2
		widths = columnWidths(head, rows)
	}
	for c := range texts { // long names give way to numbers
		least := min(leastWidth, 60/texts) + columnGap
		if over := total(widths) - textWidth; over > 0 && widths[c] > least {
			widths[c] = max(widths[c]-over, least)
			for _, row := range rows {
				row[c] = wrap(row[c], widths[c]-columnGap)
			}
		}
	}
	var parts []string
	for from := texts; from < len(head) || from == texts; {
		width, to := total(widths[:texts]), from
		for to < len(head) && (to == from || width+widths[to] <= textWidth) {
			width += widths[to]
			to++
		}
		parts = append(parts, renderTable(head, rows, widths, texts, from, to))
		from = max(to, from+1)
	}
	return parts
}

func namesRows(head []string, rows [][]string) bool {
	return slices.EqualFunc(head, rows, func(name string, row []string) bool { return name == row[0] })
}

// columnGap is the space between two columns.
const columnGap = 2

// columnWidths returns the widths of the columns with their gaps. Long heads are wrapped at words.
func columnWidths(head []string, rows [][]string) []int {
	widths := make([]int, len(head))
	for c, name := range head {
		width := min(headWidth, text.StringWidth(name))
		for word := range strings.FieldsSeq(name) {
			width = max(width, text.StringWidth(word))
		}
		for _, row := range rows {
			width = max(width, text.StringWidth(row[c]))
		}
		widths[c] = width + columnGap
	}
	return widths
}

// renderTable returns the columns of text, and those from from up to to.
func renderTable(head []string, rows [][]string, widths []int, texts, from, to int) string {
	columns := func(cells []string) []string { return slices.Concat(cells[:texts], cells[from:to]) }
	var header table.Row
	var right []int
	widths = slices.Concat(widths[:texts], widths[from:to])
	for i, name := range columns(head) {
		if i >= texts {
			right = append(right, i+1)
		}
		header = append(header, wrap(name, widths[i]-columnGap))
	}
	t := newTextTable(header, right)
	for _, row := range rows {
		var cells table.Row
		for _, cell := range columns(row) {
			cells = append(cells, cell)
		}
		t.AppendRow(cells)
	}
	return trimLines(t.Render())
}

// newTextTable returns a table without lines except below its header. The columns in right, counted
// from 1, are aligned to the right.
func newTextTable(header table.Row, right []int) table.Writer {
	t := table.NewWriter()
	t.AppendHeader(header)
	t.SetStyle(table.StyleLight)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Options.SeparateHeader = true
	t.Style().Format.Header = text.FormatDefault
	var columns []table.ColumnConfig
	for _, c := range right {
		columns = append(columns, table.ColumnConfig{Number: c, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

// wrap breaks the lines of a text between words.
func wrap(s string, width int) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if text.StringWidth(line) > width {
			lines[i] = text.WrapSoft(line, width)
		}
	}
	return trimLines(strings.Join(lines, "\n"))
}

// trimLines removes the padding at the ends of lines.
func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

func total(parts []int) (sum int) {
	for _, n := range parts {
		sum += n
	}
	return sum
}
