package calibrate

// grouping says which inputs are not independent. Inputs of one group never part: they are all in
// one fold, and in one part of a split.
type grouping struct {
	// group of each input, numbered from 0 as they appear; nil if every input is a group of its own.
	group  []int
	groups int
}

// newGrouping numbers the groups of inputs, which may have any numbers; nil for none.
func newGrouping(given []int) (to grouping) {
	if given == nil {
		return to
	}
	number := make(map[int]int)
	to.group = make([]int, len(given))
	for i, g := range given {
		n, seen := number[g]
		if !seen {
			n = len(number)
			number[g] = n
		}
		to.group[i] = n
	}
	to.groups = len(number)
	return to
}

// groupOf returns the group of an input.
func (g *grouping) groupOf(i int) int {
	if g.group == nil {
		return i
	}
	return g.group[i]
}

// members returns the inputs of a part by group; nil if every input is a group of its own.
func (g *grouping) members(p part) [][]int {
	if g.group == nil {
		return nil
	}
	members := make([][]int, g.groups)
	for _, i := range p.inputs() {
		members[g.group[i]] = append(members[g.group[i]], i)
	}
	return members
}
