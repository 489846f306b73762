package report

import (
	"cmp"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
)

// classes are those of a report, and the ones that matrices of class by class have room for.
type classes struct {
	all []eval.Class
	// shown has the numbers of classes by group: safe, neither, critical.
	shown []int
	// anyCritical is set where a class is critical.
	anyCritical bool
}

func newClasses(all []eval.Class) *classes {
	return &classes{
		all: all, shown: shownClasses(all),
		anyCritical: slices.ContainsFunc(all, func(c eval.Class) bool { return c.Critical }),
	}
}

// mostShown bounds the classes of a matrix.
const mostShown = 30

// shownClasses selects the classes for matrices, by group and then in class order. Of many classes,
// half the room is for the critical ones with the most inputs, and the rest for the others.
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

// largest returns up to n classes with the most inputs, ties in class order.
func largest(classes []eval.Class, of []int, n int) []int {
	of = slices.Clone(of)
	slices.SortStableFunc(of, func(a, b int) int { return cmp.Compare(classes[b].Support, classes[a].Support) })
	return of[:min(n, len(of))]
}

func group(c eval.Class) document.Group {
	switch {
	case c.Critical:
		return document.Critical
	case c.Safe:
		return document.Safe
	default:
		return document.Neither
	}
}

// shownSentence says which classes are shown, and is empty where all are.
func (c *classes) shownSentence() string {
	if len(c.shown) == len(c.all) {
		return ""
	}
	return "Of the " + document.Count(len(c.all)) + " classes, " + document.Count(len(c.shown)) +
		" are shown: the critical and the other ones with the most inputs."
}

// outlineSentence says what the outlines of a matrix mean, and is empty without critical classes.
func (c *classes) outlineSentence() string {
	if !c.anyCritical {
		return ""
	}
	return "Solid outline: critical classes among themselves. Dashed outline: across the boundary of safe and critical. "
}

// main returns the rows that plain text shows of a table with a row for each class: those of the
// matrices, and what follows the classes.
func (c *classes) main(rows int) []int {
	main := slices.Sorted(slices.Values(c.shown))
	for i := len(c.all); i < rows; i++ {
		main = append(main, i)
	}
	return main
}

// matrix returns a matrix of the shown classes that is coloured by value. cell returns what is
// written for two classes and their value.
func (c *classes) matrix(caption, corner string, value func(row, column int) float64, cell func(row, column int, v float64) any) *document.Matrix {
	m := &document.Matrix{Caption: caption, Corner: corner}
	for _, i := range c.shown {
		m.Names, m.Groups = append(m.Names, c.all[i].Name), append(m.Groups, group(c.all[i]))
		var values []float64
		var cells []any
		for _, j := range c.shown {
			v := value(i, j)
			values, cells = append(values, v), append(cells, cell(i, j, v))
		}
		m.Values, m.Cells = append(m.Values, values), append(m.Cells, cells)
	}
	return m
}

// nats returns a matrix of values in nats, with a unit that suits the largest of them.
func (c *classes) nats(caption, corner string, offDiagonal bool, value func(row, column int) float64) *document.Matrix {
	m := c.matrix(caption, corner, value, shortCell)
	m.Outlined, m.OffDiagonal = c.anyCritical, offDiagonal
	perNat, unit := natUnit(m.Highest())
	m.Caption += " (" + unit + ")"
	for i, row := range m.Values {
		for j, v := range row {
			m.Cells[i][j] = document.Short(perNat * v)
		}
	}
	return m
}

// shortCell writes the value itself.
func shortCell(_, _ int, v float64) any { return document.Short(v) }

// natUnit returns the unit in which a largest value in nats has one to three digits before its point:
// how many units are in a nat, and the name of the unit.
func natUnit(highest float64) (perNat float64, name string) {
	switch {
	case highest < 1e-6:
		return 1e9, "0.000000001 nats"
	case highest < 1e-3:
		return 1e6, "0.000001 nats"
	default:
		return 1e3, "0.001 nats"
	}
}
