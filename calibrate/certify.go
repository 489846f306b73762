package calibrate

import (
	"fmt"
	"math"
	"sort"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy"
)

// margin adds a share to the misses that a candidate predicts of itself, because it was chosen for
// having few.
const margin = 0.15

// limitTest bounds figures by Learn-then-Test (Angelopoulos et al. 2021).
//
// About a third of the recording chooses the candidate, its threshold curve, the points on the curve
// that are to be tested, and the point to start from. The rest tests the hypothesis "some limit is
// exceeded", point by point from there upward in coverage, and stops at the first point where it is
// not rejected. This fixed-sequence testing costs no correction. A point is rejected if the p-value
// of every limit is at most 1 - confidence: if some limit is exceeded, the p-value of that one is so
// low with a chance of at most 1 - confidence, whatever the others are (intersection-union test). So
// several limits cost no correction either. The p-value of one limit is exact: the chance of so few
// misses among so many inputs if each were missed with the chance of the limit; package clustered
// has it for groups.
type limitTest struct {
	certification
	alpha float64 // 1 - confidence
}

func newLimitTest(r *run, to *reporter) *limitTest {
	return &limitTest{newCertification(r, to), 1 - r.Objective.Confidence}
}

// choose returns the last point that passes; nil if nothing certifies, which the report then says.
func (l *limitTest) choose() (*choice, error) {
	l.run.steps.announce(2 * l.limits.searches())
	ranked, err := l.compareRanks(l.limits.curveFNR(), l.rank)
	if err != nil {
		return nil, err
	}
	own := &ranked[0]
	points := l.points(own)
	if last := l.lastPassing(own, points); last >= 0 {
		at := own.at(points[last])
		if at.selective(l.certifies).Retained > 0 {
			l.report(own, at, l.test(at).certificate(l.run.Objective.Confidence), "promises the largest certified coverage")
			return at, nil
		}
	}
	l.refuse(l.test(own.at(points[0])))
	l.wouldCertify(ranked)
	l.to.explainParts(own, l.certifies, "promises most")
	return nil, nil
}

// passes reports whether all limits pass at a point.
func (l *limitTest) passes(own *ranking, t thresholds) bool {
	return l.test(own.at(t)).fails(l.alpha) == nil
}

// lastPassing returns the last point before the first that fails; -1 if that is the first of all.
func (l *limitTest) lastPassing(own *ranking, points []thresholds) int {
	if l.limits.riseOnly() { // no point after a failure passes, so that the first failure can be searched for
		return sort.Search(len(points), func(c int) bool { return !l.passes(own, points[c]) }) - 1
	}
	for c := range points {
		if !l.passes(own, points[c]) {
			return c - 1
		}
	}
	return len(points) - 1
}

// points returns the points that are tested, in their order: every input of the part that chooses
// is a step where misses alone decide, else a grid from the point of the least predicted p-value.
func (l *limitTest) points(at *ranking) []thresholds {
	curve := at.curve(at.chosen)
	var points []thresholds
	if l.limits.riseOnly() {
		for step := range l.chooses.n + 1 {
			points = append(points, curve(float64(step)/float64(max(l.chooses.n, 1))))
		}
		return points
	}
	for _, coverage := range coverageGrid()[at.best.from:] {
		points = append(points, curve(coverage))
	}
	return points
}

// rank ranks each candidate by how far up the grid it is predicted to keep all limits, from the point
// of its least predicted p-value.
func (l *limitTest) rank(s *search) ([]rank, error) {
	predicted, err := l.predict(s)
	if err != nil {
		return nil, err
	}
	ranks := make([]rank, len(predicted))
	for i, p := range predicted {
		at := rank{last: -1}
		for c := range p {
			if p[c] < p[at.from] {
				at.from = c
			}
		}
		at.badness = p[at.from]
		for c := at.from; c < len(p) && p[c] <= l.alpha; c++ {
			at.last = c
		}
		if at.last >= 0 && l.limits.riseOnly() {
			at.badness = p[at.last]
		}
		ranks[i] = at
	}
	return ranks, nil
}

// predict returns the largest p-value of any limit to expect, as [candidate][point of the grid], of
// as many inputs as certify.
func (l *limitTest) predict(s *search) ([][]float64, error) {
	predicted := make([][]float64, len(s.candidates))
	for i := range predicted {
		predicted[i] = make([]float64, len(coverageGrid()))
	}
	var pooled [][]counts
	for _, limit := range l.limits {
		set, counted := s.soft, pooled
		if limit.class != allClasses {
			set, counted = s.softOf(limit), nil
		}
		if counted == nil {
			of := *s
			of.counted = set
			var err error
			if counted, err = of.estimate(l.run.ctx, coverageGrid(), l.run.Seed); err != nil {
				return nil, err
			}
			if limit.class == allClasses {
				pooled = counted
			}
		}
		total := set.heldOut(s.part)
		scale := float64(l.certifies.n) / float64(max(s.part.n, 1)*repeats) / s.casesOfGroup(limit)
		for i := range counted {
			for c, at := range counted[i] {
				cases := total
				if limit.figure == policy.CriticalFNR {
					cases = at.critical
				}
				predicted[i][c] = max(predicted[i][c], binomial.Tail(at.missed*scale*(1+margin), cases*scale, limit.target))
			}
		}
	}
	return predicted, nil
}

// casesOfGroup returns the mean number of inputs of a group that count for a limit, in the part that
// chooses. In predictions a group counts as one input: its inputs may all be missed together.
func (s *search) casesOfGroup(l limit) float64 {
	if s.group == nil {
		return 1
	}
	cases, groups := 0, make(map[int]bool)
	for i, in := range s.part.of {
		if in && l.counts(s.sample, i) {
			cases++
			groups[s.group[i]] = true
		}
	}
	return max(float64(cases)/float64(max(len(groups), 1)), 1)
}

// softOf returns the share of the soft labels that is of one class. What a model adds to a label is
// of the class in proportion to the class's share of the missed inputs.
func (s *search) softOf(l limit) *labels {
	ofClass := 0
	for i, in := range s.part.of {
		ofClass += index(in && s.missed[i] && s.label[i] == l.class)
	}
	share := shareOf(float64(ofClass), float64(s.part.count(s.missed)))
	of := &labels{make([]float64, s.n), make([]float64, s.n)}
	for i := range s.n {
		switch {
		case l.counts(s.sample, i):
			of.critical[i], of.missed[i] = s.soft.critical[i], s.soft.missed[i]
		case !s.critical[i]:
			of.critical[i], of.missed[i] = share*s.soft.critical[i], share*s.soft.missed[i]
		}
	}
	return of
}

// refuse says how far off the limits were at the point that should be safest.
func (l *limitTest) refuse(all tested) {
	worst := all.fails(l.alpha)
	if worst == nil { // only deferring everything passes
		worst = &all[0]
		l.to.Refusal = &Refusal{Cases: worst.cases, Misses: worst.misses, PValue: worst.pValue, SmallestCases: worst.enough(l.alpha),
			Reason: "only a policy that defers every input keeps to that"}
		return
	}
	f := shareOf(float64(worst.misses), float64(worst.cases))
	refusal := &Refusal{Cases: worst.cases, Misses: worst.misses, PValue: worst.pValue, SmallestCases: worst.enough(l.alpha)}
	figure := figureWords[worst.figure]
	low, high := worst.interval()
	refusal.Reason = fmt.Sprintf("where the rule should be safest it misses %d of %d %s (%.3g, 95%% interval %.3g to %.3g), which a %s of %v would "+
		"bring about with chance %.3g, and at most %.3g is allowed", worst.misses, worst.cases, worst.population(), f, low, high, figure, worst.target,
		worst.pValue, l.alpha)
	switch {
	case worst.cases == 0:
		verb := "are among those that certify"
		if worst.figure == policy.CriticalFNR {
			verb = "are retained where the rule should be safest"
		}
		refusal.Reason = fmt.Sprintf("no %s %s; without a miss, %d %s could certify", worst.inputs(), verb, refusal.SmallestCases, worst.population())
	case f >= worst.target:
		refusal.Reason += fmt.Sprintf("; a share of %.3g cannot be certified as at most %v by any number of inputs", f, worst.target)
	case refusal.SmallestCases == 0:
		refusal.Reason += fmt.Sprintf("; at that share more than %d %s would be needed", mostCases, worst.population())
	default:
		factor := float64(refusal.SmallestCases) / float64(worst.cases)
		refusal.SmallestInputs = int(math.Ceil(factor * float64(l.run.n)))
		refusal.Reason += fmt.Sprintf("; at that share %d %s could certify, about %.0f %s or %d labelled inputs in the whole recording",
			refusal.SmallestCases, worst.population(), math.Ceil(factor*float64(worst.casesIn(l.run.sample, l.run.all()))), worst.inputs(),
			refusal.SmallestInputs)
	}
	if larger := all.largerBounds(l.alpha); larger != "" {
		refusal.Would = append(refusal.Would, larger)
	}
	l.to.Refusal = refusal
}

// wouldCertify adds to a refusal what would pass the test elsewhere: at another point of the curve
// or in the other scope. The certifying part has then been searched, so that it can only be a hint
// for fresh data.
func (l *limitTest) wouldCertify(ranked []ranking) {
	would := &l.to.Refusal.Would
	for i := range ranked {
		at := &ranked[i]
		curve := at.curve(at.chosen)
		for c := len(coverageGrid()) - 1; c >= 0; c-- {
			point := at.at(curve(coverageGrid()[c]))
			got, all := point.selective(l.certifies), l.test(point)
			if got.Retained == 0 || all.fails(l.alpha) != nil {
				continue
			}
			*would = append(*would, fmt.Sprintf("coverage %.2g in scope %s, by %s: it misses %d of %d %s", got.Coverage(), at.scope,
				at.chosen.inWords(), all[0].misses, all[0].cases, all[0].population()))
			break
		}
	}
}
