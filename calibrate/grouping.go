package calibrate

import "github.com/ckd-project/ckd/internal/clustered"

// grouping says which inputs are not independent. Inputs of one group never part: they are all in
// one fold, and in one part of a split.
type grouping struct {
	group   []int // of each input, numbered from 0 as they appear
	groups  int
	grouped bool // false where every input is a group of its own
}

// newGrouping numbers the groups of n inputs, which may have any numbers; nil for none.
func newGrouping(given []int, n int) *grouping {
	g := &grouping{group: make([]int, n), groups: n, grouped: given != nil}
	number := make(map[int]int)
	for i := range g.group {
		g.group[i] = i
		if g.grouped {
			if _, seen := number[given[i]]; !seen {
				number[given[i]] = len(number)
			}
			g.group[i], g.groups = number[given[i]], len(number)
		}
	}
	return g
}

// members returns some inputs by group.
func (g *grouping) members(inputs []int) [][]int {
	members := make([][]int, g.groups)
	for _, i := range inputs {
		members[g.group[i]] = append(members[g.group[i]], i)
	}
	return members
}

func (g *grouping) newTally() clustered.Tally { return clustered.NewTally(g.grouped) }
