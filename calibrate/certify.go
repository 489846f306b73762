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
// About a third of the recording chooses the candidate, its path, the points on the path that are to
// be tested, and the point to start from. The rest tests the hypothesis "some limit is exceeded",
// point by point from there upward in coverage, and stops at the first point where it is not
// rejected. This fixed-sequence testing costs no correction. A point is rejected if the p-value of
// every limit is at most 1 - confidence: if some limit is exceeded, the p-value of that one is so low
// with a chance of at most 1 - confidence, whatever the others are (intersection-union test). So
// several limits cost no correction either. The p-value of one limit is exact: the chance of so few
// misses among so many inputs if each were missed with the chance of the limit; package clustered
// has it for groups.
type limitTest struct {
	*run
	limits             limits
	alpha              float64 // 1 - confidence
	chooses, certifies part
}

// forLimits chooses the candidate that promises the largest coverage at which all limits hold, and
// certifies it.
func (r *run) forLimits() (*choice, error) { return r.newLimitTest().certified() }

func (r *run) newLimitTest() *limitTest {
	l := &limitTest{run: r, limits: r.limits(), alpha: 1 - r.Objective.Confidence}
	l.chooses, l.certifies = r.split()
	return l
}

// certified returns the last point that passes; nil if nothing certifies, which the report then says.
func (l *limitTest) certified() (*choice, error) {
	l.total = 2
	l.report.ComparisonBasis = fmt.Sprintf("the %d inputs that were not used to set the rule; each rule stands at the largest coverage that it promised "+
		"on the others, this policy where it is certified", l.certifies.n)
	l.compareNone(l.certifies)
	var ranked []*ranking
	for _, scope := range bothScopes(l.Scope) {
		own, err := l.rank(scope)
		if err != nil {
			return nil, err
		}
		ranked = append(ranked, own)
	}
	own := ranked[0]
	l.report.Notes = append(l.report.Notes, own.notes...)
	points := l.points(own)
	if last := l.lastPassing(own, points); last >= 0 {
		at := &choice{own.search, own.chosen, points[last]}
		if at.selective(l.certifies).Retained > 0 {
			// Nothing deferred is the last hypothesis of the sequence.
			l.needless = last == len(points)-1 && l.testRetained(l.certifies.holds).fails(l.alpha) == nil
			l.describe(at)
			l.explain(own)
			return at, nil
		}
	}
	l.refuse(l.test(&choice{own.search, own.chosen, points[0]}))
	l.wouldCertify(ranked)
	l.explain(own)
	return nil, nil
}

// ranking holds the chosen candidate of a scope, with what it promises.
type ranking struct {
	*search
	chosen candidate
	promise
}

// promise says how far up the grid of coverages a candidate is predicted to keep all limits (-1 for
// nowhere), from the point of its least predicted p-value.
type promise struct {
	last, from int
	pValue     float64 // at from
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

// rank chooses the candidate of a scope that promises most, the first of equals, and adds all to
// the comparison, each at the coverage that it promises.
func (l *limitTest) rank(scope policy.Scope) (*ranking, error) {
	s, err := l.search(l.chooses, scope)
	if err != nil {
		return nil, err
	}
	var best *ranking
	rows := []Row{{}}
	l.total += len(s.candidates)
	for _, rule := range s.candidates {
		l.step()
		at := l.predict(s, rule)
		row := l.row(rule.String(), scope, l.certifies, make([]bool, s.n))
		row.Nothing = at.last < 0
		if !row.Nothing {
			row = l.rowOf(rule.String(), s.choiceAt(rule, coverageGrid()[at.last]))
		}
		rows = append(rows, row)
		if rule.keepsCalls() && !l.keepsCalls(scope) {
			continue
		}
		if best == nil || at.last > best.last || at.last == best.last && at.pValue < best.pValue {
			best, rows[0] = &ranking{s, rule, at}, row
		}
	}
	if best == nil { // the part has a risk alone
		best = &ranking{s, s.candidates[0], promise{last: -1}}
		rows[0] = rows[1]
	}
	rows[0].Rule, rows[0].Calibrated = calibratedRule, true
	l.compare(rows...)
	return best, nil
}

// rowOf returns the row of a choice, counted on the part that certifies.
func (l *limitTest) rowOf(name string, at *choice) Row {
	row := l.row(name, at.scope, l.certifies, at.retained(l.certifies))
	row.KeepsCalls = at.rule.keepsCalls()
	return row
}

// predict returns what a candidate promises: p-values to expect of as many inputs as certify, from
// the inputs that choose. In predictions a group counts as one input: its inputs may all be missed
// together.
func (l *limitTest) predict(s *search, rule candidate) promise {
	way, predicted := s.path(s.part, s.scope, rule), make([]float64, len(coverageGrid()))
	for c, coverage := range coverageGrid() {
		retained := (&choice{s, rule, way.thresholds(coverage)}).retained(s.part)
		for _, limit := range l.limits {
			e := limit.test(s.sample, s.part, retained)
			scale := float64(l.certifies.n) / float64(max(s.part.n, 1)) / e.casesOfGroup()
			predicted[c] = max(predicted[c], binomial.Tail(float64(e.Misses)*scale*(1+margin), float64(e.Cases)*scale, limit.target))
		}
	}
	at := promise{last: -1}
	for c := range predicted {
		if predicted[c] < predicted[at.from] {
			at.from = c
		}
	}
	at.pValue = predicted[at.from]
	for c := at.from; c < len(predicted) && predicted[c] <= l.alpha; c++ {
		at.last = c
	}
	return at
}

// test tests the limits on what a choice retains of the part that certifies.
func (l *limitTest) test(at *choice) tested { return l.testRetained(at.retained(l.certifies)) }

func (l *limitTest) testRetained(retained []bool) tested {
	all := make(tested, len(l.limits))
	for i, limit := range l.limits {
		all[i] = limit.test(l.sample, l.certifies, retained)
	}
	return all
}

// passes reports whether all limits pass at a point.
func (l *limitTest) passes(own *ranking, t thresholds) bool {
	return l.test(&choice{own.search, own.chosen, t}).fails(l.alpha) == nil
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
func (l *limitTest) points(own *ranking) (points []thresholds) {
	way := own.path(own.part, own.scope, own.chosen)
	if l.limits.riseOnly() {
		for step := range l.chooses.n + 1 {
			points = append(points, way.thresholds(float64(step)/float64(max(l.chooses.n, 1))))
		}
		return points
	}
	for _, coverage := range coverageGrid()[own.from:] {
		points = append(points, way.thresholds(coverage))
	}
	return points
}

// describe reports a choice that certifies. The comparison shows the calibrated rule at that point
// too: else the report would tell two coverages of one rule.
func (l *limitTest) describe(at *choice) {
	for i := range l.report.Comparison {
		if row := &l.report.Comparison[i]; row.Scope == at.scope && row.Calibrated {
			*row = l.rowOf(calibratedRule, at)
			row.Calibrated = true
		}
	}
	got, guarded := at.selective(l.certifies), 0
	for i, inside := range l.certifies.holds {
		guarded += index(inside && at.rule.guarded && at.unfamiliar(i))
	}
	l.expectCoverage(l.certifies, at.retained(l.certifies))
	l.report.Certificate = l.test(at).certificate(l.Objective.Confidence)
	l.noteDeferringAll(got)
	l.noteServed(l.certifies, got)
	l.noteGuard(guarded, l.certifies.n)
	l.choose(at)
	l.judge(at, l.certifies, at.retained(l.certifies))
	l.traceBoth(at, l.certifies)
}

// explain says why one part of the recording chose a candidate.
func (l *limitTest) explain(own *ranking) {
	r := l.run
	r.report.why("Of the %d rules compared, %s promises the largest certified coverage on %d inputs (%d critical).",
		len(own.candidates), own.chosen.inWords(), own.part.n, own.part.count(r.critical))
	r.report.why("The other %d inputs (%d critical) were used for nothing but the point on its path; the expected coverage is of them.",
		l.certifies.n, l.certifies.count(r.critical))
	if r.report.Certificate != nil {
		r.report.why(oneAttempt)
	}
	r.explainScope()
}

// refuse says how far off the limits were at the point that should be safest.
func (l *limitTest) refuse(all tested) {
	worst := all.fails(l.alpha)
	if worst == nil { // only deferring everything passes
		worst = &all[0]
		l.report.Refusal = &Refusal{Cases: worst.Cases, Misses: worst.Misses, PValue: worst.pValue, SmallestCases: worst.enough(l.alpha),
			Reason: "only a policy that defers every input keeps to that"}
		return
	}
	f := shareOf(float64(worst.Misses), float64(worst.Cases))
	refusal := &Refusal{Cases: worst.Cases, Misses: worst.Misses, PValue: worst.pValue, SmallestCases: worst.enough(l.alpha)}
	figure := worst.figure.Words()
	interval := worst.Interval()
	refusal.Reason = fmt.Sprintf("where the rule should be safest it misses %d of %d %s (%s, 95%%: %.1f to %.1f); with a true %s of %s the chance of so few "+
		"is %s, expected at most %s", worst.Misses, worst.Cases, worst.population(), percent(f), 100*interval[0], 100*interval[1], figure, percent(worst.target),
		percent(worst.pValue), percent(l.alpha))
	switch {
	case worst.Cases == 0:
		verb := "are among those that certify"
		if worst.figure == policy.CriticalFNR {
			verb = "are retained where the rule should be safest"
		}
		refusal.Reason = fmt.Sprintf("no %s %s; without a miss, %d %s could certify", worst.inputs(), verb, refusal.SmallestCases, worst.population())
	case f >= worst.target:
		refusal.Reason += fmt.Sprintf("; no number of inputs certifies a share of %s as at most %s", percent(f), percent(worst.target))
	case refusal.SmallestCases == 0:
		refusal.Reason += fmt.Sprintf("; at that share more than %d %s would be needed", mostCases, worst.population())
	default:
		factor := float64(refusal.SmallestCases) / float64(worst.Cases)
		refusal.SmallestInputs = int(math.Ceil(factor * float64(l.n)))
		refusal.Reason += fmt.Sprintf("; at that share %d %s could certify, about %.0f %s or %d labelled inputs in the whole recording",
			refusal.SmallestCases, worst.population(), math.Ceil(factor*float64(worst.casesIn(l.sample, l.all()))), worst.inputs(),
			refusal.SmallestInputs)
	}
	if larger := all.largerBounds(l.alpha); larger != "" {
		refusal.Would = append(refusal.Would, larger)
	}
	l.report.Refusal = refusal
}

// wouldCertify adds to a refusal what would pass the test elsewhere: at another point of the curve
// or in the other scope. The certifying part has then been searched, so that it can only be a hint
// for fresh data.
func (l *limitTest) wouldCertify(ranked []*ranking) {
	would := &l.report.Refusal.Would
	for _, own := range ranked {
		way := own.path(own.part, own.scope, own.chosen)
		for c := len(coverageGrid()) - 1; c >= 0; c-- {
			point := &choice{own.search, own.chosen, way.thresholds(coverageGrid()[c])}
			got, all := point.selective(l.certifies), l.test(point)
			if got.Retained == 0 || all.fails(l.alpha) != nil {
				continue
			}
			*would = append(*would, fmt.Sprintf("%s retained, of %s, by %s: it misses %d of %d %s", percent(got.Coverage()), own.scope.Words(),
				own.chosen.inWords(), all[0].Misses, all[0].Cases, all[0].population()))
			break
		}
	}
}
