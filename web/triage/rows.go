package triage

import (
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
)

// rows says which classes the page shows by themselves: the ones with a label of their own in the
// metrics. All others count together, in the last row.
type rows struct {
	labels   []string // by position, in policy order, the shared one last
	position map[string]int
	rest     int // classes without a row of their own
	classes  []pagestate.Class
}

func newRows(p *policy.Policy, labels []string, rest int) rows {
	r := rows{labels: labels, position: make(map[string]int), rest: rest, classes: make([]pagestate.Class, len(labels))}
	for i, label := range labels {
		r.position[label] = i
		r.classes[i] = pagestate.Class{Name: label, Critical: true, Safe: true}
	}
	for k, name := range p.Classes {
		i, own := r.position[name]
		if !own {
			i = len(labels) - 1
		}
		c := &r.classes[i]
		c.Critical, c.Safe, c.Shared = c.Critical && has(p.Critical, k), c.Safe && has(p.Safe, k), rest > 0 && i == len(labels)-1
		c.Of++
	}
	return r
}
