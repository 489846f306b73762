package calibrate

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

// coverage returns the coverage that the rank stands for, 0 where it stands for none.
func (s rank) coverage() float64 {
	if s.last < 0 {
		return 0
	}
	return coverageGrid()[s.last]
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

// at returns the candidate at a point of its curve.
func (r *ranking) at(t thresholds) *choice { return &choice{r.search, r.chosen, t} }
