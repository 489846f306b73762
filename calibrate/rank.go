package calibrate

import (
	"fmt"

	"github.com/ckd-project/ckd/eval"
)

// rankFunc ranks the candidates of a search.
//
// A certificate is sought for one candidate alone, so the part that chooses takes the one that would
// get furthest.
type rankFunc func(s *search) ([]rank, error)

// rank says how far up the grid a candidate gets (-1 for nowhere), and how badly among those that
// get as far.
type rank struct {
	last    int
	badness float64
	from    int // the point of the grid to start from
}

// ranking holds the candidate of the best rank in a scope.
type ranking struct {
	*search
	chosen candidate
	best   rank
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

// compareRanks returns the candidate of the best rank in each scope, the chosen scope first, from
// searches of the part that chooses at critical FNR f. It adds both scopes to the comparison, each
// candidate at the coverage that its rank stands for. Those figures are counted on the part that
// certifies, and choose nothing.
func (r *run) compareRanks(chooses, certifies part, f float64, rankOf rankFunc) ([]ranking, error) {
	grid := coverageGrid()
	r.result.ComparisonBasis = fmt.Sprintf("the %d inputs that did not choose, each rule at the largest coverage that it promised "+
		"on the others, the calibrated one where it is certified; guaranteed is only what a certificate says", certifies.n)
	var all []ranking
	for _, scope := range bothScopes(r.Scope) {
		s, err := r.search(chooses, scope, f)
		if err != nil {
			return nil, err
		}
		ranks, err := rankOf(s)
		if err != nil {
			return nil, err
		}
		best := 0
		for i := range ranks {
			if ranks[i].better(ranks[best]) {
				best = i
			}
		}
		shown := func(name string, i int) Row {
			critical := r.criticalIn(certifies)
			if ranks[i].last < 0 {
				nothing := r.row(name, scope, eval.Selective{Inputs: certifies.n}, critical)
				nothing.Nothing = true
				return nothing
			}
			t := s.curve(s.candidates[i])(grid[ranks[i].last])
			return r.row(name, scope, s.final.count(certifies, scope, s.candidates[i], t), critical)
		}
		own := shown("calibrated", best)
		own.Calibrated = true
		r.result.Comparison = append(r.result.Comparison, own)
		for i, one := range s.candidates {
			if one.plain() || one.papers() {
				r.result.Comparison = append(r.result.Comparison, shown(one.String(), i))
			}
		}
		all = append(all, ranking{s, s.candidates[best], ranks[best]})
	}
	r.result.Notes = append(r.result.Notes, all[0].notes...)
	return all, nil
}
