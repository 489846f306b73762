package triage

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

// row returns the position of the row that counts a class.
func (r *rows) row(class string) int {
	if i, own := r.position[class]; own {
		return i
	}
	return len(r.classes) - 1
}
