package metrics

import (
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// classLabels says under which label each class is counted.
type classLabels struct {
	names   []string // by label
	byClass []int    // by class: its label
	cut     int      // classes that share the last label; 0 if each has its own

	own  []int // by label that is not shared: its class
	runs []run // the classes that share the last label
}

// run is a range of classes; to is excluded.
type run struct {
	from, to int
}

// newClassLabels gives the first most classes a label each, critical classes before others, both in
// the policy's order. All others share one label.
func newClassLabels(p *policy.Policy, most int) classLabels {
	own := make([]bool, len(p.Classes))
	left := min(most, len(p.Classes))
	give := func(k int) {
		if left > 0 && !own[k] {
			own[k] = true
			left--
		}
	}
	for _, k := range p.Critical {
		give(k)
	}
	for k := range p.Classes {
		give(k)
	}

	l := classLabels{byClass: make([]int, len(p.Classes)), cut: max(0, len(p.Classes)-most)}
	for k, name := range p.Classes {
		l.byClass[k] = min(most, len(p.Classes)) // the shared label is the last
		if own[k] {
			l.byClass[k] = len(l.names)
			l.names = append(l.names, name)
			l.own = append(l.own, k)
		} else if last := len(l.runs) - 1; last >= 0 && l.runs[last].to == k {
			l.runs[last].to = k + 1
		} else {
			l.runs = append(l.runs, run{k, k + 1})
		}
	}
	if l.cut > 0 {
		l.names = append(l.names, sharedLabel(p.Classes))
	}
	return l
}

// Labels returns the labels of a policy's classes, in the policy's order, and how many classes share
// the last one; 0 if each has its own.
func (m *Metrics) Labels(p *policy.Policy) (labels []string, shared int) {
	l := newClassLabels(p, m.options.ClassLabels)
	return l.names, l.cut
}

// isCut reports whether class k shares its label.
func (l *classLabels) isCut(k int) bool { return l.cut > 0 && l.byClass[k] == len(l.names)-1 }

// sharedLabel returns "other", or "_other" if a class has that name, and so on.
func sharedLabel(classes []string) string {
	label := "other"
	for slices.Contains(classes, label) {
		label = "_" + label
	}
	return label
}
