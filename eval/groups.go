package eval

import (
	"math"
	"slices"

	"github.com/ckd-project/ckd/internal/clustered"
)

// groups says which inputs are not independent, such as several images of one patient. Nil says that
// all are.
type groups struct {
	byInput []int     // group of each input, numbered from 0 as they appear
	members [][]int32 // inputs of each group
}

// newGroups numbers the groups of the inputs, which may have any numbers; nil for none.
func newGroups(given []int) *groups {
	if given == nil {
		return nil
	}
	g := &groups{byInput: make([]int, len(given))}
	number := make(map[int]int)
	for i, name := range given {
		n, seen := number[name]
		if !seen {
			n = len(number)
			number[name] = n
			g.members = append(g.members, nil)
		}
		g.byInput[i] = n
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

// signFlip returns the p-value of the exact two-sided sign-flip test: the chance that the sum of
// differences is as far from 0 as it is, or farther, if the sign of each were as likely the other
// one. With differences of 1 and -1 it is the exact McNemar test. Differences that are not whole are
// rounded to a fraction of 1 that keeps the sums few.
//
// A difference is that of one group, so that inputs of a group may hang together in any way.
func signFlip(given []float64) float64 {
	parts := 1.0 // of 1
	if slices.ContainsFunc(given, func(d float64) bool { return d != math.Trunc(d) }) {
		const finest, mostSums = 64, 4096
		total := 0.0
		for _, d := range given {
			total += math.Abs(d)
		}
		parts = max(1, min(finest, math.Floor(mostSums/total)))
	}
	sum, reach, differences := 0, 0, make([]int, len(given))
	for i, d := range given {
		differences[i] = int(math.Round(parts * d))
		sum += differences[i]
		reach += max(differences[i], -differences[i])
	}
	// chance[reach+s] is that of the sum s, over the signs so far.
	chance, next := make([]float64, 2*reach+1), make([]float64, 2*reach+1)
	chance[reach] = 1
	so := 0 // the largest sum so far
	for _, d := range differences {
		d = max(d, -d)
		if d == 0 {
			continue
		}
		clear(next)
		for s := reach - so; s <= reach+so; s++ {
			next[s+d] += chance[s] / 2
			next[s-d] += chance[s] / 2
		}
		so += d
		chance, next = next, chance
	}
	p := 0.0
	for s, c := range chance {
		if max(s-reach, reach-s) >= max(sum, -sum) {
			p += c
		}
	}
	return min(1, p)
}
