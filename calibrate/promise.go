package calibrate

import (
	"fmt"

	"github.com/ckd-project/ckd/eval"
)

// A certificate is sought for one rule alone. The part of the recording that
// chooses it asks each rule what it would get.

// promise is what a rule would get, by its held-out counts along the grid. The
// part has critical inputs in all, counted as often as the counts are.
type promise func(found []counts, critical float64) standing

// standing is how far up the grid a rule gets, -1 for nowhere, and among equals
// how badly.
type standing struct {
	last    int
	badness float64
}

func (s standing) better(than standing) bool {
	return s.last > than.last || s.last == than.last && s.badness < than.badness
}

// coverageGrid of the promises, and of the points that are tested.
func coverageGrid() []float64 {
	const steps = 50
	grid := make([]float64, steps)
	for i := range grid {
		grid[i] = float64(i+1) / steps
	}
	return grid
}

// comparePromises takes the rule that promises most in the chosen scope, with its
// held-out counts, by a search of the part that chooses at critical FNR f. Both
// scopes go into the comparison, each rule at the coverage that it promises,
// counted on the part that certifies: that chooses nothing by it.
func (r *run) comparePromises(chooses, certifies part, f float64, promises promise) (
	by *search, chosen rule, held []counts, err error,
) {
	grid := coverageGrid()
	r.result.ComparisonBasis = fmt.Sprintf("the %d inputs that did not choose, each rule at the largest coverage that it promised "+
		"on the others; guaranteed is only what a certificate says", certifies.n)
	for _, scope := range r.bothScopes() {
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
		standings := make([]standing, len(s.rules))
		best := 0
		for i := range s.rules {
			standings[i] = promises(found[i], critical)
			if standings[i].better(standings[best]) {
				best = i
			}
		}
		shown := func(name string, i int) Row {
			critical := r.criticalIn(certifies)
			if standings[i].last < 0 {
				nothing := row(name, scope, eval.Selective{Inputs: certifies.n}, critical)
				nothing.Nothing = true
				return nothing
			}
			t := s.path(s.rules[i])(grid[standings[i].last])
			return row(name, scope, r.count(certifies, scope, s.rules[i], t), critical)
		}
		own := shown("calibrated", best)
		own.Calibrated = true
		r.result.Comparison = append(r.result.Comparison, own)
		for i, one := range s.rules {
			if one.plain() || one.papers() {
				r.result.Comparison = append(r.result.Comparison, shown(one.String(), i))
			}
		}
		if scope == r.Scope {
			by, chosen, held = s, s.rules[best], found[best]
			r.result.Notes = append(r.result.Notes, s.notes...)
		}
	}
	return by, chosen, held, nil
}
