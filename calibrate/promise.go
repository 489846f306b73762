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
// scopes go into the comparison, each rule at the coverage that it promises.
func (r *run) comparePromises(chooses part, f float64, promises promise) (
	by *search, chosen rule, held []counts, err error,
) {
	grid := coverageGrid()
	r.result.ComparisonBasis = fmt.Sprintf("cross-validation inside the %d inputs that chose the rule, each at the largest "+
		"coverage that it promised; guaranteed is only what a certificate says", chooses.n)
	scopes := r.bothScopes()
	for done, scope := range scopes {
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
		own := r.promised("calibrated", s, s.rules[best], standings[best], grid)
		own.Calibrated = true
		r.result.Comparison = append(r.result.Comparison, own)
		for i, one := range s.rules {
			if one.plain() || one.papers() {
				r.result.Comparison = append(r.result.Comparison, r.promised(one.String(), s, one, standings[i], grid))
			}
		}
		if scope == r.Scope {
			by, chosen, held = s, s.rules[best], found[best]
			r.result.Notes = append(r.result.Notes, s.notes...)
		}
		if r.Progress != nil {
			r.Progress(done+1, len(scopes))
		}
	}
	return by, chosen, held, nil
}

// promised is the row of a rule: what held-out folds show at the coverage that it
// promises, by the labels of the recording.
func (r *run) promised(name string, s *search, one rule, at standing, grid []float64) Row {
	critical := r.criticalIn(s.part)
	if at.last < 0 {
		shown := row(name, s.scope, eval.Selective{Inputs: s.part.n}, critical)
		shown.Nothing = true
		return shown
	}
	var sum eval.Selective
	for _, out := range r.foldsOf(s.part, folds, newRand(r.Seed, streamFolds)) {
		rest := *s
		rest.part = s.part.without(out)
		addTo(&sum, r.count(out, s.scope, one, rest.path(one)(grid[at.last])))
	}
	return row(name, s.scope, sum, critical)
}
