package triage

import (
	"cmp"
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// A policy may have thousands of classes, and the metrics a label for each. Nobody
// reads so many rows, and each costs at every sample and in every event.
const (
	mostRows   = 128 // classes, the one that stands for the rest among them
	mostPaired = 64  // of these that have pairs
)

// rows is which classes the page shows by themselves: critical ones before others,
// as many as there may be. The rest count together, in the last row.
type rows struct {
	labels   []string // of the metrics, in the order of the policy, the shared one last
	classes  []string // by position, the one that stands for the rest last
	position map[string]int
	paired   []bool // by position: pairs of two of these are kept
	rest     int    // classes that have no row of their own
}

// newRows chooses the rows out of labels in the order of the policy, the last of
// which is the shared one if not all classes have one of their own.
func newRows(labels []string, shared bool, p *policy.Policy) rows {
	own := labels
	if shared {
		own = labels[:len(labels)-1]
	}
	late := make(map[string]int, len(own)) // 1, but for critical ones
	for k, class := range p.Classes {
		if !has(p.Critical, k) {
			late[class] = 1
		}
	}
	first := slices.Clone(own)
	slices.SortStableFunc(first, func(a, b string) int { return cmp.Compare(late[a], late[b]) })

	r := rows{labels: labels, classes: labels, position: make(map[string]int), rest: len(p.Classes) - len(own)}
	if len(labels) > mostRows {
		r.rest = len(p.Classes) - (mostRows - 1)
		kept := make(map[string]bool, mostRows)
		for _, class := range first[:mostRows-1] {
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
	for _, class := range first[:min(len(first), mostPaired)] {
		r.paired[r.position[class]] = true
	}
	return r
}

// restLabel is as that of the metrics: "other", or "_other" if a class has that name,
// and so on.
func restLabel(classes []string) string {
	label := "other"
	for slices.Contains(classes, label) {
		label = "_" + label
	}
	return label
}

// equal reports whether each row counts the same labels as it does in o.
func (r *rows) equal(o *rows) bool {
	return slices.Equal(r.labels, o.labels) && slices.Equal(r.classes, o.classes) && slices.Equal(r.paired, o.paired)
}

// row is the position of the class of a label.
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
