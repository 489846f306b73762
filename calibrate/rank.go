package calibrate

import (
	"fmt"

	"github.com/ckd-project/ckd/eval"
)

// rankFunc ranks a candidate by its held-out counts along the grid. critical is the number of
// critical inputs in the part that chooses, each counted as often as the counts count it.
//
// A certificate is sought for one candidate alone, so this part chooses the one that would get
// furthest.
type rankFunc func(found []counts, critical float64) rank

// rank says how far up the grid a candidate gets (-1 for nowhere), and how badly among those that
// get as far.
type rank struct {
	last    int
	badness float64
}

func (s rank) better(than rank) bool {
	return s.last > than.last || s.last == than.last && s.badness < than.badness
}

// coverageGrid returns the coverages at which candidates are ranked and points are tested.
func coverageGrid() []float64 {
	const steps = 50
	grid := make([]float64, steps)
	for i := range grid {
		grid[i] = float64(i+1) / steps
	}
	return grid
}

// compareRanks returns the candidate of the best rank in the chosen scope, with its held-out
// counts, from a search of the part that chooses at critical FNR f. It adds both scopes to the
// comparison, each candidate at the coverage that its rank stands for. Those figures are counted on
// the part that certifies, and choose nothing.
func (r *run) compareRanks(chooses, certifies part, f float64, rankOf rankFunc) (
	by *search, chosen candidate, held []counts, err error,
) {
	grid := coverageGrid()
	r.result.ComparisonBasis = fmt.Sprintf("the %d inputs that did not choose, each rule at the largest coverage that it promised "+
		"on the others; guaranteed is only what a certificate says", certifies.n)
	for _, scope := range bothScopes(r.Scope) {
		s := r.search(chooses, scope, f)
		found, err := s.estimate(r.ctx, grid, r.Seed)
		if err != nil {
			return nil, chosen, nil, err
		}
		critical := 0.0
		for i, in := range chooses.of {
			if in {
				critical += repeats * s.soft.critical[i]
			}
		}
		ranks := make([]rank, len(s.candidates))
		best := 0
		for i := range s.candidates {
			ranks[i] = rankOf(found[i], critical)
			if ranks[i].better(ranks[best]) {
				best = i
			}
		}
		shown := func(name string, i int) Row {
			critical := r.criticalIn(certifies)
			if ranks[i].last < 0 {
				nothing := row(name, scope, eval.Selective{Inputs: certifies.n}, critical)
				nothing.Nothing = true
				return nothing
			}
			t := s.curve(s.candidates[i])(grid[ranks[i].last])
			return row(name, scope, r.count(certifies, scope, s.candidates[i], t), critical)
		}
		own := shown("calibrated", best)
		own.Calibrated = true
		r.result.Comparison = append(r.result.Comparison, own)
		for i, one := range s.candidates {
			if one.plain() || one.papers() {
				r.result.Comparison = append(r.result.Comparison, shown(one.String(), i))
			}
		}
		if scope == r.Scope {
			by, chosen, held = s, s.candidates[best], found[best]
			r.result.Notes = append(r.result.Notes, s.notes...)
		}
	}
	return by, chosen, held, nil
}
