package calibrate

import (
	"sort"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// column holds the inputs of a part that one side of a gate decides by a score, in the order of
// that score.
type column struct {
	score []float64 // ascending
	// missed and critical are sums over the first j inputs, at index j.
	missed, critical []float64
	// cost is the cost of retaining the input at each place, not descending, and one for all inputs
	// that no threshold parts. It is nil if the column is used only for counting. Mid-rank quantiles
	// order inputs of equal cost.
	cost []float64
}

// group names the candidates that share their sides and what no score decides.
type group struct {
	gate policy.Gate
	by   treatment
}

func (r candidate) group() group { return group{r.gate, r.treatment()} }

// columns holds the columns of a part by group, side and score. Gate never has one side.
type columns struct {
	part part
	of   map[group]*grouped
}

// grouped holds the columns of a group, and the inputs of the part that no score decides.
type grouped struct {
	fixed
	sides *sides
	by    [2][numScores]*column
}

// columnsOf returns the columns of a part for some candidates. Labels may be soft. With curve it
// fits the costs at the critical FNR f too.
func (s *sample) columnsOf(p part, scope policy.Scope, candidates []candidate, soft *labels, curve bool, f float64) columns {
	if curve && s.countsReviews {
		scope = policy.PredictedSafe
	}
	all := columns{p, map[group]*grouped{}}
	for _, r := range candidates {
		g := all.of[r.group()]
		if g == nil {
			g = &grouped{fixed: s.fixedOf(p, scope, r.treatment(), soft), sides: s.sidesOf(p, scope, r)}
			all.of[r.group()] = g
		}
		for side := range r.sides() {
			if at := &g.by[side][r.score(side)]; *at == nil {
				*at = s.column(r.score(side), g.sides, side, soft, curve, f)
			}
		}
	}
	return all
}

// sides says for each input of a part which side of a gate decides it, and counts the inputs of
// each side. An input outside the part, or one that no score decides, belongs to neither side.
type sides struct {
	of []uint8
	n  [2]int
}

const neither = 2

func (s *sample) sidesOf(p part, scope policy.Scope, r candidate) *sides {
	all := &sides{of: make([]uint8, s.n)}
	for i, in := range p.of {
		all.of[i] = neither
		if in && s.fate(i, scope, r.treatment()) == 0 {
			side := r.side(s.table, i)
			all.of[i] = uint8(side)
			all.n[side]++
		}
	}
	return all
}

func (s *sample) column(score decomp.Score, sides *sides, side int, soft *labels, curve bool, f float64) *column {
	values, n := s.values(score), sides.n[side]
	c := &column{score: make([]float64, n), missed: make([]float64, n+1), critical: make([]float64, n+1)}
	if curve {
		c.cost = make([]float64, n)
	}
	at := 0
	for _, i := range s.order[score] {
		if sides.of[i] != uint8(side) {
			continue
		}
		missed, critical := soft.missed[i], soft.critical[i]
		c.score[at] = values[i]
		c.missed[at+1], c.critical[at+1] = c.missed[at]+missed, c.critical[at]+critical
		if curve {
			c.cost[at] = missed - f*critical
		}
		at++
	}
	isotonic(c.cost, c.score)
	return c
}

// isotonic replaces values by the closest ones, in squares, that do not descend (pool adjacent
// violators), and that are equal where scores are not distinct.
func isotonic(values, scores []float64) {
	type block struct {
		sum float64
		n   int
	}
	var blocks []block
	for from := 0; from < len(values); {
		b := block{values[from], 1}
		for from++; from < len(values) && !distinct(scores[from-1], scores[from]); from++ {
			b = block{b.sum + values[from], b.n + 1}
		}
		for len(blocks) > 0 {
			last := blocks[len(blocks)-1]
			if last.sum*float64(b.n) < b.sum*float64(last.n) {
				break
			}
			b = block{b.sum + last.sum, b.n + last.n}
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, b)
	}
	at := 0
	for _, b := range blocks {
		for range b.n {
			values[at] = b.sum / float64(b.n)
			at++
		}
	}
}

// retained returns how many inputs of the column a threshold retains.
func (c *column) retained(threshold float64) int {
	return sort.Search(len(c.score), func(i int) bool { return c.score[i] > threshold })
}

// threshold returns one that retains at least the first n inputs, and no more than it must. It lies
// between two scores that are distinct, below the lowest, or above the highest.
func (c *column) threshold(n int) float64 {
	const beyond = 1e-6 // relative, so that the end of the column is not on a score
	if len(c.score) == 0 {
		return 0
	}
	if n == 0 {
		return c.score[0] / 2
	}
	for ; n < len(c.score); n++ {
		if distinct(c.score[n-1], c.score[n]) {
			return c.score[n-1] + (c.score[n]-c.score[n-1])/2
		}
	}
	return c.score[len(c.score)-1] * (1 + beyond)
}

// before reports whether the curve retains input i of column a before input j of column b.
func before(a *column, i int, b *column, j int) bool {
	if a.cost[i] != b.cost[j] {
		return a.cost[i] < b.cost[j]
	}
	return (float64(i)+0.5)*float64(len(b.score)) <= (float64(j)+0.5)*float64(len(a.score))
}

// split returns how many of the first n inputs on the merged curve are from a. The others are from
// b.
func split(a, b *column, n int) int {
	least, most := max(0, n-len(b.score)), min(n, len(a.score))
	return least + sort.Search(most-least, func(x int) bool {
		taken := least + x + 1 // number taken from a; the next of b must follow the last of these
		next := n - taken
		return next < len(b.score) && !before(a, taken-1, b, next)
	})
}

// fit returns the thresholds of a candidate that retain n of the columns' inputs.
func (c columns) fit(r candidate, n int) thresholds {
	by := &c.of[r.group()].by
	primary := by[byPrimary][r.primary]
	if r.sides() == 1 {
		t := primary.threshold(min(n, len(primary.score)))
		return thresholds{t, t}
	}
	fallback := by[byFallback][r.fallback]
	n = min(n, len(primary.score)+len(fallback.score))
	first := split(primary, fallback, n)
	return thresholds{primary.threshold(first), fallback.threshold(n - first)}
}

// at returns the thresholds of a candidate for a coverage of the whole part.
func (c columns) at(r candidate, coverage float64) thresholds {
	return c.fit(r, c.of[r.group()].decided(coverage, c.part))
}

// counts holds what is retained, with soft labels.
type counts struct{ retained, missed, critical float64 }

func (c *counts) add(o counts) {
	c.retained += o.retained
	c.missed += o.missed
	c.critical += o.critical
}

// fnr returns the critical FNR.
func (c counts) fnr() float64 { return shareOf(c.missed, c.critical) }

// shareOf returns n/of, or 0 if of is 0.
func shareOf(n, of float64) float64 {
	if of == 0 {
		return 0
	}
	return n / of
}

// count counts what a candidate retains of the columns' inputs.
func (c columns) count(r candidate, t thresholds) (sum counts) {
	for side := range r.sides() {
		column := c.of[r.group()].by[side][r.score(side)]
		n := column.retained(t[side])
		sum.add(counts{float64(n), column.missed[n], column.critical[n]})
	}
	return sum
}

// fixed counts the inputs of a part that no score decides, and what of them is retained.
type fixed struct {
	inputs   int
	retained counts
	// unseen counts the retained inputs that nobody looks at: all of them, unless critical calls count
	// as reviewed.
	unseen int
}

func (s *sample) fixedOf(p part, scope policy.Scope, by treatment, soft *labels) (f fixed) {
	for i, in := range p.of {
		if !in {
			continue
		}
		if fate := s.fate(i, scope, by); fate != 0 {
			f.inputs++
			if fate == policy.Retain {
				f.retained.add(counts{1, soft.missed[i], soft.critical[i]})
				f.unseen += index(!s.countsReviews || !s.predictedCritical[i])
			}
		}
	}
	return f
}

// decided returns how many inputs to retain of those that a score decides, for a coverage of the
// whole part.
func (f fixed) decided(coverage float64, p part) int {
	return max(0, min(p.n-f.inputs, eval.Kept(coverage, p.n)-f.unseen))
}
