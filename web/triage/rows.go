package triage

import (
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// rows says which classes the page shows by themselves: the ones with a label of their own in the
// metrics. All others count together, in the last row.
type rows struct {
	classes  []string // labels by position, in policy order, the shared one last
	position map[string]int
	rest     int // classes without a row of their own
}

func newRows(labels []string, rest int) rows {
	r := rows{classes: labels, position: make(map[string]int), rest: rest}
	for i, class := range labels {
		r.position[class] = i
	}
	return r
}

// rowsBefore returns the rows of a policy before its metrics are scraped.
func rowsBefore(p *policy.Policy) rows {
	const most = 128 // a policy may have thousands of classes
	if rest := len(p.Classes) - most; rest > 0 {
		return newRows(append(slices.Clone(p.Classes[:most]), "other"), rest)
	}
	return newRows(p.Classes, 0)
}

// row returns the position of the row that counts a class.
func (r *rows) row(class string) int {
	if i, own := r.position[class]; own {
		return i
	}
	return len(r.classes) - 1
}
