package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/eval"
)

// sheetWidth is how wide the text of a sheet is.
const sheetWidth = 110

// nameWidth is how much of a class's name a table shows.
const nameWidth = 16

// sheet is a page of titled tables, for people.
type sheet struct {
	w       *bufio.Writer
	started bool
}

func newSheet(w io.Writer) *sheet { return &sheet{w: bufio.NewWriter(w)} }

// section begins with a title and a text.
func (s *sheet) section(title, format string, args ...any) {
	if s.started {
		fmt.Fprintln(s.w)
	}
	s.started = true
	fmt.Fprintln(s.w, title)
	if format != "" {
		s.text(format, args...)
	}
}

// text is a paragraph.
func (s *sheet) text(format string, args ...any) {
	fmt.Fprintln(s.w, wrap(fmt.Sprintf(format, args...), sheetWidth))
}

// points are a list.
func (s *sheet) points(points []string) {
	for _, p := range points {
		fmt.Fprintln(s.w, "- "+strings.ReplaceAll(wrap(p, sheetWidth-2), "\n", "\n  "))
	}
}

// wrap a text between words.
func wrap(s string, width int) string { return trimLines(text.WrapSoft(s, width)) }

// trimLines takes the padding off the ends of lines.
func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

// table has names in its first columns, and numbers to their right.
func (s *sheet) table(names int, header []string, rows [][]string) {
	var right []int
	for c := names + 1; c <= len(header); c++ {
		right = append(right, c)
	}
	t := plainTable(row(header), right)
	for _, r := range rows {
		t.AppendRow(row(r))
	}
	fmt.Fprintln(s.w, trimLines(t.Render()))
}

// computed says by what, and from which files. how is more of it.
func (s *sheet) computed(software, kind, variance, how string, files ...eval.File) {
	s.section("How it was computed", "By %s, from %s, with the %s variance.%s The files and their SHA-256:", software, kind, variance, how)
	var points []string
	for _, f := range files {
		points = append(points, f.Name+" "+f.SHA256)
	}
	s.points(points)
}

func (s *sheet) end() error { return s.w.Flush() }

func row(cells []string) table.Row {
	r := make(table.Row, len(cells))
	for i, c := range cells {
		r[i] = c
	}
	return r
}

// shortName is a class's name as tables show it.
func shortName(name string) string { return text.Snip(name, nameWidth, "~") }

// fits reports whether columns for numbers, under names, are not too wide beside
// what takes some columns already.
func fits(names []string, taken int) bool {
	const least, gap = 6, 2
	for _, name := range names {
		taken += max(text.StringWidth(name), least) + gap
	}
	return taken <= sheetWidth
}

// fixed is a share, a rate or a correlation with three decimals.
func fixed(v float64) string {
	if math.Abs(v) < 0.0005 { // no -0.000
		v = 0
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// percent of a share.
func percent(v float64) string { return strconv.FormatFloat(100*v, 'f', 1, 64) + "%" }

// within is a figure with its standard deviation.
func within(v, sd float64) string { return fixed(v) + " ± " + fixed(sd) }

// pValue of a test, by its logarithm where it underflows.
func pValue(p, log10 float64) string {
	switch {
	case p >= 0.001:
		return fixed(p)
	case log10 > -300:
		return strconv.FormatFloat(p, 'e', 0, 64)
	}
	return fmt.Sprintf("1e%.0f", log10)
}
