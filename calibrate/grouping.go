package calibrate

import (
	"math/rand/v2"

	"github.com/ckd-project/ckd/internal/clustered"
)

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

// split draws n groups at random, and returns the inputs of each of them and of each of the others.
func (g *grouping) split(n int, rng *rand.Rand) (drawn, others [][]int) {
	members := make([][]int, g.groups)
	for i, group := range g.group {
		members[group] = append(members[group], i)
	}
	for at, group := range rng.Perm(g.groups) {
		if at < n {
			drawn = append(drawn, members[group])
		} else {
			others = append(others, members[group])
		}
	}
	return drawn, others
}

func (g *grouping) newTally() clustered.Tally { return clustered.NewTally(g.grouped) }
