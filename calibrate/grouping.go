package calibrate

import (
	"github.com/ckd-project/ckd/internal/binomial"
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

// members returns some inputs by group.
func (g *grouping) members(inputs []int) [][]int {
	members := make([][]int, g.groups)
	for _, i := range inputs {
		members[g.group[i]] = append(members[g.group[i]], i)
	}
	return members
}

// tally counts cases and the misses among them, by group where inputs come in groups.
type tally struct {
	cases, misses int
	largest       int         // cases of the largest group
	place         map[int]int // of a group among groups; nil where inputs are independent
	groups        []clustered.Group
}

func (g *grouping) newTally() tally {
	if !g.grouped {
		return tally{}
	}
	return tally{place: map[int]int{}}
}

func (t *tally) add(group int, miss bool) {
	t.cases++
	t.misses += index(miss)
	if t.place == nil {
		return
	}
	at, seen := t.place[group]
	if !seen {
		at = len(t.groups)
		t.place[group] = at
		t.groups = append(t.groups, clustered.Group{})
	}
	t.groups[at].Cases++
	t.groups[at].Misses += float64(index(miss))
	t.largest = max(t.largest, t.groups[at].Cases)
}

// interval returns the 95% interval of the share of misses, where no group has more than most cases.
func (t *tally) interval(most int) [2]float64 {
	if t.place == nil {
		return exactInterval(t.misses, t.cases)
	}
	low, high := clustered.Interval(t.groups, most, 0.95)
	return [2]float64{low, high}
}

// exactInterval returns the 95% interval of a share of which k of n were seen.
func exactInterval(k, n int) [2]float64 {
	low, high := binomial.Interval(k, n, 0.95)
	return [2]float64{low, high}
}
