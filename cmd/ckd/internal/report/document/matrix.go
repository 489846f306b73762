package document

import (
	"math"
	"strings"
)

// Group is the part that a class plays: safe, critical or neither.
type Group int

// The groups, in the order in which matrices show them.
const (
	Safe Group = iota
	Neither
	Critical
)

// Matrix is a table of class by class whose cells are coloured by their values.
type Matrix struct {
	Caption string
	Corner  string // says what rows and columns are
	Names   []string
	Groups  []Group
	// Values set the colours, on a scale from 0 to the largest of them.
	Values [][]float64
	// Cells have what is written, in the types that Format knows.
	Cells [][]any
	// Outlined draws borders around the critical classes, and around the pairs of a safe and a
	// critical class.
	Outlined bool
	// OffDiagonal leaves the diagonal out of the scale.
	OffDiagonal bool
}

// Highest returns the largest value, which is the end of the scale of colours.
func (m *Matrix) Highest() float64 {
	highest := 0.0
	for i, row := range m.Values {
		for j, v := range row {
			if !m.OffDiagonal || i != j {
				if v > highest { // which a figure of nothing is not
					highest = v
				}
			}
		}
	}
	return highest
}

// Crowded reports whether the matrix has too many classes for large cells. Column names are then
// turned upright.
func (m *Matrix) Crowded() bool { return len(m.Names) > 8 }

// Cell returns the text of a cell.
func (m *Matrix) Cell(i, j int) string {
	if v, ok := m.Cells[i][j].(Short); ok && m.Crowded() {
		return fewDigits(float64(v))
	}
	return Format(m.Cells[i][j])
}

// Label returns the short name of a class.
func (m *Matrix) Label(k int) string { return Label(m.Names[k]) }

// HeadClass returns the CSS class of a class's name.
func (m *Matrix) HeadClass(k int) string {
	if m.Groups[k] == Critical {
		return "critical"
	}
	return ""
}

// CellClass returns the CSS classes of a cell: its colour and its borders.
func (m *Matrix) CellClass(i, j int) string {
	classes := []string{heatLevel(m.Values[i][j], m.Highest())}
	if m.OffDiagonal && i == j {
		classes[0] = "diagonal"
	}
	if m.Outlined {
		classes = append(classes, m.outline(i, j)...)
	}
	return strings.Join(classes, " ")
}

// heatLevel returns the CSS class of a value on a scale of ten colours. Level 0 has no colour.
func heatLevel(value, highest float64) string {
	levels := [...]string{"h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9", "h10"}
	if !(value > 0) || !(highest > 0) {
		return levels[0]
	}
	steps := float64(len(levels) - 1)
	return levels[min(len(levels)-1, max(1, int(math.Ceil(steps*value/highest-1e-9))))]
}

// outline returns the CSS classes of a cell's block: which block, and on which sides it ends.
func (m *Matrix) outline(row, column int) []string {
	block := func(r, c int) string {
		if min(r, c) < 0 || max(r, c) >= len(m.Groups) {
			return ""
		}
		switch [2]Group{m.Groups[r], m.Groups[c]} {
		case [2]Group{Critical, Critical}:
			return "inner"
		case [2]Group{Safe, Critical}, [2]Group{Critical, Safe}:
			return "cross"
		}
		return ""
	}
	own := block(row, column)
	if own == "" {
		return nil
	}
	classes := []string{own}
	for _, side := range []struct {
		name string
		r, c int
	}{{"top", row - 1, column}, {"right", row, column + 1}, {"bottom", row + 1, column}, {"left", row, column - 1}} {
		if block(side.r, side.c) != own {
			classes = append(classes, side.name)
		}
	}
	return classes
}
