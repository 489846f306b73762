package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/eval"
)

// heat is a table of class x class whose cells are coloured.
type heat struct {
	Caption string
	Corner  string // what rows and columns are
	Columns []heatHead
	Rows    []heatRow
	Upright bool // column names are turned: there are many
}

type heatHead struct{ Text, Full, Class string }

type heatRow struct {
	Head  heatHead
	Cells []heatCell
}

type heatCell struct{ Text, Class string }

// mostShown bounds the classes in a table of class x class.
const mostShown = 30

// heatLevels are the steps of a colour scale; level 0 has no colour.
const heatLevels = 10

// shownClasses are the classes for tables of class x class: safe, neither,
// critical, each in class order. Of many, half the room is for the critical
// classes with the most inputs, and the rest for the others.
func shownClasses(classes []eval.Class) []int {
	var critical, others []int
	for k, c := range classes {
		if c.Critical {
			critical = append(critical, k)
		} else {
			others = append(others, k)
		}
	}
	if len(classes) > mostShown {
		room := max(mostShown/2, mostShown-len(others))
		critical = largest(classes, critical, room)
		others = largest(classes, others, mostShown-len(critical))
	}
	shown := slices.Concat(others, critical)
	slices.SortFunc(shown, func(a, b int) int {
		return cmp.Or(cmp.Compare(group(classes[a]), group(classes[b])), cmp.Compare(a, b))
	})
	return shown
}

// largest are up to n classes with the most inputs, ties in class order.
func largest(classes []eval.Class, of []int, n int) []int {
	of = slices.Clone(of)
	slices.SortStableFunc(of, func(a, b int) int { return cmp.Compare(classes[b].Support, classes[a].Support) })
	return of[:min(n, len(of))]
}

// group of a class in a table: 0 safe, 1 neither, 2 critical.
func group(c eval.Class) int {
	switch {
	case c.Critical:
		return 2
	case c.Safe:
		return 0
	default:
		return 1
	}
}

// shownSentence says which classes are shown; "" where all are.
func (b *builder) shownSentence() string {
	if len(b.shown) == b.t.K {
		return ""
	}
	return "Of the " + count(b.t.K) + " classes, " + count(len(b.shown)) +
		" are shown: the critical and the other ones with the most inputs."
}

// matrix is a heat map of a value for every pair of shown classes. Where marked,
// the critical block and the pairs of a safe and a critical class are outlined.
// Where offDiagonal, the diagonal has neither colour nor part in the scale.
func (b *builder) matrix(caption, corner string, marked, offDiagonal bool,
	value func(row, column int) float64, text func(float64) string) heat {
	h := heat{Caption: caption, Corner: corner, Upright: b.crowded()}
	highest := b.highest(offDiagonal, value)
	for _, j := range b.shown {
		h.Columns = append(h.Columns, b.heatHead(j))
	}
	for r, i := range b.shown {
		row := heatRow{Head: b.heatHead(i)}
		for c, j := range b.shown {
			classes := []string{}
			if offDiagonal && i == j {
				classes = append(classes, "diagonal")
			} else {
				classes = append(classes, heatLevel(value(i, j), highest))
			}
			if marked {
				classes = append(classes, b.outline(r, c)...)
			}
			row.Cells = append(row.Cells, heatCell{
				Text: text(value(i, j)), Class: strings.Join(classes, " "),
			})
		}
		h.Rows = append(h.Rows, row)
	}
	return h
}

// nats is matrix for a value in nats, whose unit goes behind the caption.
func (b *builder) nats(caption, corner string, offDiagonal bool, value func(row, column int) float64) heat {
	perNat, unit := natUnit(b.highest(offDiagonal, value))
	cell := b.cellText()
	return b.matrix(caption+" ("+unit+")", corner, b.anyCritical(), offDiagonal, value,
		func(x float64) string { return cell(perNat * x) })
}

// highest value of the shown classes.
func (b *builder) highest(offDiagonal bool, value func(row, column int) float64) float64 {
	highest := 0.0
	for _, i := range b.shown {
		for _, j := range b.shown {
			if !offDiagonal || i != j {
				highest = max(highest, value(i, j))
			}
		}
	}
	return highest
}

// crowded: there are so many classes that cells are small and names upright.
func (b *builder) crowded() bool { return len(b.shown) > 8 }

// cellText is how numbers are written in the cells of a matrix.
func (b *builder) cellText() func(float64) string {
	if b.crowded() {
		return tiny
	}
	return short
}

func (b *builder) heatHead(k int) heatHead {
	h := heatHead{Text: label(b.r.Classes[k].Name), Full: b.r.Classes[k].Name}
	if b.r.Classes[k].Critical {
		h.Class = "critical"
	}
	return h
}

// heatLevel is the CSS class of a value on the scale from 0 to the highest.
func heatLevel(value, highest float64) string {
	levels := [heatLevels + 1]string{"h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9", "h10"}
	if !(value > 0) || !(highest > 0) {
		return levels[0]
	}
	return levels[min(heatLevels, max(1, int(math.Ceil(heatLevels*value/highest-1e-9))))]
}

// outline is the CSS classes of the cell at a position among the shown classes:
// the sides on which the block that it belongs to ends.
func (b *builder) outline(row, column int) []string {
	block := func(r, c int) string {
		if r < 0 || c < 0 || r >= len(b.shown) || c >= len(b.shown) {
			return ""
		}
		switch group(b.r.Classes[b.shown[r]]) + 3*group(b.r.Classes[b.shown[c]]) {
		case 2 + 3*2:
			return "inner"
		case 0 + 3*2, 2 + 3*0:
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
