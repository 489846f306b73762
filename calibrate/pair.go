package calibrate

import "math"

// paired holds, for some candidates, how often each input is retained and missed when it is held
// out: over repeats and nearby coverages, between 0 and 1. Only inputs that can be missed are in it.
type paired struct {
	missed [][]float64 // [candidate][input that can be missed]
	group  []int       // of these inputs; those of one group are not independent
}

// pair decides held-out folds by some candidates, at coverages with weights.
func (s *search) pair(r *run, candidates []candidate, coverages, weights []float64) (*paired, error) {
	var missable []int
	for i, missed := range s.missed {
		if missed {
			missable = append(missable, i)
		}
	}
	found := make([][][]float64, foldsOfSearch) // [fold][candidate][missable input]
	err := s.eachFold(r.ctx, r.Seed, func(h int, out part) {
		fitted := s.columnsOf(s.part.without(out), s.scope, candidates, s.soft, true, s.f)
		found[h] = make([][]float64, len(candidates))
		for c, one := range candidates {
			found[h][c] = make([]float64, len(missable))
			for at, coverage := range coverages {
				t := fitted.at(one, coverage)
				for m, i := range missable {
					if out.of[i] && s.retains(i, s.scope, one, t) {
						found[h][c][m] += weights[at] / repeats
					}
				}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	p := &paired{missed: found[0]}
	for _, fold := range found[1:] { // in one order, so that rounding is always the same
		for c := range fold {
			for m, v := range fold[c] {
				p.missed[c][m] += v
			}
		}
	}
	for _, i := range missable {
		p.group = append(p.group, s.groupOf(i))
	}
	return p, nil
}

// difference returns how many more inputs the first candidate misses than the second, and the
// standard error of that: of a sum over independent groups.
func (p *paired) difference(first, second int) (more, se float64) {
	byGroup := map[int]float64{}
	var groups []int
	for m, g := range p.group {
		d := p.missed[first][m] - p.missed[second][m]
		if d == 0 {
			continue
		}
		if _, seen := byGroup[g]; !seen {
			groups = append(groups, g)
		}
		more += d
		byGroup[g] += d
	}
	for _, g := range groups {
		se += byGroup[g] * byGroup[g]
	}
	return more, math.Sqrt(se)
}
