package calibrate

import (
	"math"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// search compares the candidates on a part of a sample. Inputs outside the part have no influence.
type search struct {
	*sample
	model      *riskModel // nil where too few critical inputs are called safe
	part       part
	scope      policy.Scope
	candidates []candidate
	notes      []string // what was left out
}

// search prepares a search over the candidates of a scope, on a part.
func (r *run) search(p part, scope policy.Scope) (*search, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	s := &search{part: p, scope: scope}
	s.sample, s.model = r.fit(p)
	s.candidates, s.notes = candidatesFor(s.sample, p, scope, r.Base.ReliabilityThreshold)
	if len(s.candidates) == 0 { // the few inputs of the part do not differ, so that no rule is better
		s.candidates = []candidate{single(decomp.MI)}
	}
	r.step()
	return s, nil
}

// step reports that one more of the rules or searches is being done.
func (r *run) step() {
	r.done++
	r.Progress.stageProgress("comparing rules")(r.done, r.total)
}

// choiceAt returns a candidate at a coverage of the part, as a policy will decide.
func (s *search) choiceAt(rule candidate, coverage float64) *choice {
	return &choice{s, rule, s.path(s.part, s.scope, rule).thresholds(coverage)}
}

// Candidates are compared at the requested coverage and at coverages near it, with Gaussian
// weights. At a single coverage one critical input moves the figures, and candidates rarely differ.
const (
	nearby   = 3 // steps to either side
	nearStep = 0.05
	nearSD   = 0.06
)

// coveragesNear returns the coverages around one, with weights whose sum is 1.
func coveragesNear(coverage float64) (coverages, weights []float64) {
	const leastCoverage = 0.05
	sum := 0.0
	for i := -nearby; i <= nearby; i++ {
		if c := coverage + float64(i)*nearStep; i == 0 || c >= leastCoverage && c <= 1+1e-9 {
			w := math.Exp(-math.Pow(float64(i)*nearStep/nearSD, 2) / 2)
			coverages, weights, sum = append(coverages, c), append(weights, w), sum+w
		}
	}
	for i := range weights {
		weights[i] /= sum
	}
	return coverages, weights
}

// misses holds how far each input of the part is missed by a candidate around a coverage, between 0
// and 1, and their sum.
type misses struct {
	candidate
	missed []float64
	sum    float64
}

func (s *search) missesOf(rule candidate, coverage float64) *misses {
	m := &misses{candidate: rule, missed: make([]float64, s.n)}
	way := s.path(s.part, s.scope, rule)
	coverages, weights := coveragesNear(coverage)
	for step, coverage := range coverages {
		t := way.thresholds(coverage)
		for i, inside := range s.part.holds {
			if inside && s.missed[i] && s.retains(i, s.scope, rule, t) {
				m.missed[i] += weights[step]
				m.sum += weights[step]
			}
		}
	}
	return m
}

// lead returns how many fewer inputs a candidate misses than another, and the standard error of that:
// of a sum over independent groups.
func (s *search) lead(m, over *misses) (fewer, se float64) {
	byGroup := map[int]float64{}
	for i := range m.missed {
		if d := over.missed[i] - m.missed[i]; d != 0 {
			fewer += d
			byGroup[s.group[i]] += d
		}
	}
	for i := range m.missed { // in one order, so that rounding is always the same
		if d, has := byGroup[s.group[i]]; has {
			se += d * d
			delete(byGroup, s.group[i])
		}
	}
	return fewer, math.Sqrt(se)
}

// best returns the candidate to choose at a coverage: the simplest one, unless another misses fewer
// inputs by more than one standard error of the paired difference.
//
// Where a candidate may keep all critical calls, p_critical is the simplest: nothing is fitted or
// picked. Risk, the best of the paper's scores, and the paper's gate follow. Elsewhere p_critical
// would defer critical calls first and risk is no candidate, so that the best of the paper's scores
// is the first.
func (s *search) best(coverage float64, keepsCalls bool) candidate {
	var score, risk, pCritical, gate *misses
	for _, rule := range s.candidates {
		if rule.keepsCalls() && !keepsCalls {
			continue
		}
		switch m := s.missesOf(rule, coverage); {
		case rule.gate != policy.Never:
			gate = m
		case rule.primary == riskScore:
			risk = m
		case rule.primary == decomp.PCritical:
			pCritical = m
		case score == nil || m.sum < score.sum:
			score = m
		}
	}
	order := []*misses{score, pCritical, gate}
	if keepsCalls {
		order = []*misses{pCritical, risk, score, gate}
	}
	var best *misses
	for _, m := range order {
		if m == nil {
			continue
		}
		if best == nil {
			best = m
			continue
		}
		if fewer, se := s.lead(m, best); fewer > se {
			best = m
		}
	}
	if best == nil { // the part has a risk alone
		return single(decomp.MI)
	}
	return best.candidate
}
