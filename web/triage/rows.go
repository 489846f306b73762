package triage

import (
	"cmp"
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// A policy may have thousands of classes, and the metrics a label for each. A page with that many
// rows is of no use, and each row costs time in every sample and event.
const (
	maxRows   = 128 // rows, including the one for all other classes
	maxPaired = 64  // classes with pairs
)

// rows says which classes the page shows by themselves: critical ones first, up to the limit. All
// others count together, in the last row.
type rows struct {
	labels   []string // labels in the metrics, in policy order, the shared label last
	classes  []string // by position, the row for all others last
	position map[string]int
	paired   []bool // by position: whether pairs with the class are kept
	rest     int    // classes without a row of their own
}

// newRows chooses the rows from labels in the order of the policy. If shared, the last label stands
// for the classes that have none of their own.
func newRows(labels []string, shared bool, p *policy.Policy) rows {
	own := labels
	if shared {
		own = labels[:len(labels)-1]
	}
	late := make(map[string]int, len(own)) // 0 for critical classes, 1 for others
	for k, class := range p.Classes {
		if !has(p.Critical, k) {
			late[class] = 1
		}
	}
	first := slices.Clone(own)
	slices.SortStableFunc(first, func(a, b string) int { return cmp.Compare(late[a], late[b]) })

	r := rows{labels: labels, classes: labels, position: make(map[string]int), rest: len(p.Classes) - len(own)}
	if len(labels) > maxRows {
		r.rest = len(p.Classes) - (maxRows - 1)
		kept := make(map[string]bool, maxRows)
		for _, class := range first[:maxRows-1] {
			kept[class] = true
		}
		r.classes = slices.DeleteFunc(slices.Clone(own), func(class string) bool { return !kept[class] })
		if shared {
			r.classes = append(r.classes, labels[len(labels)-1])
		} else {
			r.classes = append(r.classes, restLabel(p.Classes))
		}
	}
	for i, class := range r.classes {
		r.position[class] = i
	}
	r.paired = make([]bool, len(r.classes))
	for _, class := range first[:min(len(first), maxPaired)] {
		r.paired[r.position[class]] = true
	}
	return r
}

// restLabel returns the name of the last row as the metrics name their shared label: "other", or
// "_other" if a class has that name, and so on.
func restLabel(classes []string) string {
	label := "other"
	for slices.Contains(classes, label) {
		label = "_" + label
	}
	return label
}

// equal reports whether every row counts the same labels as in o.
func (r *rows) equal(o *rows) bool {
	return slices.Equal(r.labels, o.labels) && slices.Equal(r.classes, o.classes) && slices.Equal(r.paired, o.paired)
}

// row returns the position of the row that counts a label.
func (r *rows) row(label string) int {
	if i, own := r.position[label]; own {
		return i
	}
	return len(r.classes) - 1
}

// pair reports whether the pair of two classes is kept.
func (r *rows) pair(a, b string) bool {
	i, hasA := r.position[a]
	j, hasB := r.position[b]
	return hasA && hasB && r.paired[i] && r.paired[j]
}
