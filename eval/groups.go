package eval

import (
	"github.com/ckd-project/ckd/internal/clustered"
)

// groups says which inputs are not independent, such as several images of one patient. Nil says that
// all are.
type groups struct {
	members [][]int32 // inputs of each group, in the order in which groups appear
}

// newGroups gathers the groups of the inputs, which may have any numbers; nil for none.
func newGroups(given []int) *groups {
	if given == nil {
		return nil
	}
	g := &groups{}
	number := make(map[int]int)
	for i, name := range given {
		n, seen := number[name]
		if !seen {
			n = len(number)
			number[name] = n
			g.members = append(g.members, nil)
		}
		g.members[n] = append(g.members[n], int32(i))
	}
	return g
}

// count counts cases, and the expected misses among them, by group. Groups without cases are left
// out. most is the largest number of cases of a group, at least 1.
func (g *groups) count(isCase func(i int) bool, missed func(i int) float64) (counted []clustered.Group, most int) {
	most = 1
	for _, members := range g.members {
		var group clustered.Group
		for _, i := range members {
			if isCase(int(i)) {
				group.Cases++
				group.Misses += missed(int(i))
			}
		}
		if group.Cases > 0 {
			counted = append(counted, group)
			most = max(most, group.Cases)
		}
	}
	return counted, most
}
