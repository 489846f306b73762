package document

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Bounds of a screen as plain text.
const (
	ScreenLines = 40
	textWidth   = 100 // columns, of screens and of whole documents

	screenRows     = 5
	screenWarnings = 3
)

// Screen is what a reader sees first, and alone unless more is asked for: the sentence to decide by,
// the rows that matter, what both rest on, and what to do.
type Screen struct {
	// Warnings say that the passes or labels are not what they seem: where one is right, nothing else
	// holds.
	Warnings []string
	// Lead begins with the sentence that its reader decides by.
	Lead string
	// Ask is what the reader has to say before the rest holds. "" for nothing.
	Ask string
	// Table has at most five rows. Nil for none.
	Table *Table
	Rests []string // what the lead rests on
	Next  []string // what to do, first things first
}

// WriteTo writes the screen as plain text of at most ScreenLines lines of 100 columns. The last
// points of what the lead rests on are left out where they do not fit.
func (s *Screen) WriteTo(w io.Writer) (int64, error) {
	rests := s.Rests
	content := s.text(rests)
	for strings.Count(content, "\n") > ScreenLines && len(rests) > 0 {
		rests = rests[:len(rests)-1]
		content = s.text(rests)
	}
	n, err := io.WriteString(w, content)
	return int64(n), err
}

func (s *Screen) text(rests []string) string {
	var out strings.Builder
	t := &textWriter{w: bufio.NewWriter(&out)}
	t.screen(s, rests)
	_ = t.w.Flush() // to memory
	return out.String()
}

// screen writes a screen. The list rests stands for that of the screen.
func (t *textWriter) screen(s *Screen, rests []string) {
	for i, warning := range s.Warnings {
		if left := len(s.Warnings) - i; i == screenWarnings && left > 1 {
			t.paragraph(fmt.Sprintf("%d more warnings: --full has them.", left))
			break
		}
		t.paragraph("Warning: " + warning)
	}
	if len(s.Warnings) > 0 && s.Lead != "" {
		fmt.Fprintln(t.w)
	}
	t.paragraph(s.Lead)
	if s.Ask != "" {
		fmt.Fprintln(t.w)
		t.paragraph(s.Ask)
	}
	if s.Table != nil {
		fmt.Fprintln(t.w)
		t.paragraph(s.Table.Caption)
		fmt.Fprintln(t.w, s.Table.narrow())
	}
	for _, part := range []struct {
		title  string
		points []string
	}{{"What this rests on", rests}, {"What to do next", s.Next}} {
		if len(part.points) > 0 {
			fmt.Fprintln(t.w)
			fmt.Fprintln(t.w, part.title)
			t.list(part.points)
		}
	}
	t.started = true
}

// narrow returns the table's first rows as plain text that fits into one screen. Names give way to
// numbers.
func (t *Table) narrow() string {
	cells, head := t.cells(), t.Head
	cells = cells[:min(len(cells), screenRows)]
	widths := columnWidths(head, cells)
	names := textWidth - total(widths[t.TextColumns:])
	for c := range t.TextColumns {
		width := names/t.TextColumns - columnGap
		for _, row := range cells {
			row[c] = shorten(row[c], max(width, headWidth))
		}
	}
	return renderTable(head, cells, columnWidths(head, cells), t.TextColumns, t.TextColumns, len(head))
}
