package calibrate

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy"
)

// margin adds a share to the misses that a candidate predicts of itself, because it was chosen for
// having few.
const margin = 0.15

// forLimits bounds figures by Learn-then-Test (Angelopoulos et al. 2021).
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
func (r *run) forLimits() error {
	alpha := 1 - r.Objective.Confidence
	limits := r.limits()
	chooses, certifies := r.split()
	r.steps(2 * r.searchesFor(limits))
	ranked, err := r.compareRanks(chooses, certifies, curveCost(limits), func(s *search) ([]rank, error) {
		return r.rankByLimits(s, limits, certifies)
	})
	if err != nil {
		return err
	}
	own := &ranked[0]
	test := func(at *ranking, t thresholds) (eval.Selective, []evidence) {
		return r.test(at, limits, certifies, t)
	}
	points := r.pointsOf(own, limits, chooses)
	last := -1
	if risesOnly(limits) { // no point after a failure passes, so that the last one that passes can be searched for
		last = sort.Search(len(points), func(c int) bool {
			_, all := test(own, points[c])
			return fails(all, alpha) != nil
		}) - 1
	} else {
		for c := range points {
			if _, all := test(own, points[c]); fails(all, alpha) != nil {
				break
			}
			last = c
		}
	}
	var got eval.Selective
	var all []evidence
	if last >= 0 {
		got, all = test(own, points[last])
	}
	if got.Retained == 0 {
		_, all = test(own, points[0])
		r.refuse(all, alpha)
		r.wouldCertify(ranked, limits, certifies, alpha)
		r.explainParts(own.chosen, len(own.candidates), chooses, certifies, "promises most")
		return nil
	}
	r.expectAt(own, certifies, points[last])
	r.result.Certificate = r.certificate(all)
	r.noteDeferringAll(got)
	r.choose(own.search, own.chosen, points[last])
	r.explainParts(own.chosen, len(own.candidates), chooses, certifies, "promises the largest certified coverage")
	return nil
}

// expectAt reports the coverage of a part at the chosen point. The comparison shows the calibrated
// rule at that point too: else the report would tell two coverages of one rule.
func (r *run) expectAt(at *ranking, p part, t thresholds) {
	got, _ := r.test(at, nil, p, t)
	for i := range r.result.Comparison {
		if row := &r.result.Comparison[i]; row.Calibrated && row.Scope == at.scope {
			*row = r.row(row.Rule, row.Scope, got, r.criticalIn(p))
			row.Calibrated = true
		}
	}
	r.result.expectCoverage(got)
	r.result.Expected.CoverageInterval = r.interval(p, p.of, r.retainedAt(at, p, t))
}

// certificate returns the certificate of limits that passed.
func (r *run) certificate(all []evidence) *Certificate {
	first := all[0].certified()
	c := &Certificate{
		Kind: policy.LearnThenTest, Bounds: first.Bounds, Class: first.Class, Target: first.Target, Confidence: r.Objective.Confidence,
		Cases: first.Cases, Misses: first.Misses, PValue: first.PValue, Statement: r.stateLimits(all, r.Objective.Confidence),
	}
	if r.group != nil {
		c.Groups = certifyingGroups(all)
	}
	for i := range all[1:] {
		c.Further = append(c.Further, CertifiedLimit(all[1+i].certified()))
	}
	return c
}

// noteDeferringAll notes if the critical miss rate is kept by deferring nearly all that could be
// missed.
func (r *run) noteDeferringAll(got eval.Selective) {
	without := float64(r.result.Missed) / float64(r.result.Critical)
	if r.Objective.MaxCriticalFNR == 0 && got.Critical > 0 && float64(got.Missed)/float64(got.Critical) > without {
		r.result.note("of the critical inputs that are retained a share of %.3g is called safe, more than the %.3g without deferral: "+
			"the promise is kept by deferring nearly all others. Compare --max-critical-fnr, and scope %s",
			float64(got.Missed)/float64(got.Critical), without, policy.PredictedSafe)
	}
}

// curveCost returns the critical FNR at which threshold curves weigh costs: the smallest target of
// one, 0 where only miss rates are bounded, which no correct call lowers.
func curveCost(limits []limit) float64 {
	f := 0.0
	for _, l := range limits {
		if l.figure == policy.CriticalFNR && (f == 0 || l.target < f) {
			f = l.target
		}
	}
	return f
}

// risesOnly reports whether misses alone decide: they only rise along a curve, and p-values with
// them. A critical FNR can fall too.
func risesOnly(limits []limit) bool { return curveCost(limits) == 0 }

// pointsOf returns the points that are tested, in their order: every input of the part that chooses
// is a step where misses alone decide, else a grid from the point of the least predicted p-value.
func (r *run) pointsOf(at *ranking, limits []limit, chooses part) []thresholds {
	curve := at.curve(at.chosen)
	var points []thresholds
	if risesOnly(limits) {
		for step := range chooses.n + 1 {
			points = append(points, curve(float64(step)/float64(max(chooses.n, 1))))
		}
		return points
	}
	for _, coverage := range coverageGrid()[at.best.from:] {
		points = append(points, curve(coverage))
	}
	return points
}

// test counts what a candidate retains of a part at some thresholds, and tests the limits on it.
func (r *run) test(at *ranking, limits []limit, p part, t thresholds) (eval.Selective, []evidence) {
	got, retained := eval.Selective{Inputs: p.n}, r.retainedAt(at, p, t)
	for i, kept := range retained {
		if kept {
			r.add(&got, i)
		}
	}
	all := make([]evidence, len(limits))
	for i, l := range limits {
		all[i] = r.evidenceOf(l, p, retained)
	}
	return got, all
}

// rankByLimits ranks each candidate by how far up the grid it is predicted to keep all limits, from
// the point of its least predicted p-value. Predictions are of as many inputs as certify.
func (r *run) rankByLimits(s *search, limits []limit, certifies part) ([]rank, error) {
	predicted := make([][]float64, len(s.candidates))
	for i := range predicted {
		predicted[i] = make([]float64, len(coverageGrid()))
	}
	var pooled [][]counts
	for _, l := range limits {
		set, counted := s.soft, pooled
		if l.class != allClasses {
			set, counted = s.softOf(l), nil
		}
		if counted == nil {
			of := *s
			of.counted = set
			var err error
			if counted, err = of.estimate(r.ctx, coverageGrid(), r.Seed); err != nil {
				return nil, err
			}
			if l.class == allClasses {
				pooled = counted
			}
		}
		total := 0.0
		for i, in := range s.part.of {
			if in {
				total += repeats * set.critical[i]
			}
		}
		scale := float64(certifies.n) / float64(max(s.part.n, 1)*repeats) / s.casesOfGroup(l)
		for i := range counted {
			for c, at := range counted[i] {
				cases := total
				if l.figure == policy.CriticalFNR {
					cases = at.critical
				}
				predicted[i][c] = max(predicted[i][c], binomial.Tail(at.missed*scale*(1+margin), cases*scale, l.target))
			}
		}
	}
	alpha := 1 - r.Objective.Confidence
	ranks := make([]rank, len(predicted))
	for i, p := range predicted {
		at := rank{last: -1}
		for c := range p {
			if p[c] < p[at.from] {
				at.from = c
			}
		}
		at.badness = p[at.from]
		for c := at.from; c < len(p) && p[c] <= alpha; c++ {
			at.last = c
		}
		if at.last >= 0 && risesOnly(limits) {
			at.badness = p[at.last]
		}
		ranks[i] = at
	}
	return ranks, nil
}

// searchesFor returns the number of searches that ranking by the limits takes.
func (r *run) searchesFor(limits []limit) int {
	n, pooled := 0, false
	for _, l := range limits {
		if l.class == allClasses {
			pooled = true
		} else {
			n++
		}
	}
	return n + index(pooled)
}

// casesOfGroup returns the mean number of inputs of a group that count for a limit, in the part that
// chooses. In predictions a group counts as one input: its inputs may all be missed together.
func (s *search) casesOfGroup(l limit) float64 {
	if s.group == nil {
		return 1
	}
	cases, groups := 0, make(map[int]bool)
	for i, in := range s.part.of {
		if in && s.of(l, i) {
			cases++
			groups[s.group[i]] = true
		}
	}
	return max(float64(cases)/float64(max(len(groups), 1)), 1)
}

// softOf returns the share of the soft labels that is of one class. What a model adds to a label is
// of the class in proportion to the class's share of the missed inputs.
func (s *search) softOf(l limit) *labels {
	ofClass, missed := 0, 0
	for i, in := range s.part.of {
		if in && s.missed[i] {
			missed++
			ofClass += index(s.label[i] == l.class)
		}
	}
	share := shareOf(float64(ofClass), float64(missed))
	of := &labels{make([]float64, s.n), make([]float64, s.n)}
	for i := range s.n {
		switch {
		case s.of(l, i):
			of.critical[i], of.missed[i] = s.soft.critical[i], s.soft.missed[i]
		case !s.critical[i]:
			of.critical[i], of.missed[i] = share*s.soft.critical[i], share*s.soft.missed[i]
		}
	}
	return of
}

// refuse says how far off the limits were at the point that should be safest.
func (r *run) refuse(all []evidence, alpha float64) {
	worst := fails(all, alpha)
	if worst == nil { // only deferring everything passes
		worst = &all[0]
		r.result.Refusal = &Refusal{Cases: worst.cases, Misses: worst.misses, PValue: worst.pValue, SmallestCases: worst.enough(alpha),
			Reason: "only a policy that defers every input keeps to that"}
		return
	}
	f := shareOf(float64(worst.misses), float64(worst.cases))
	refusal := &Refusal{Cases: worst.cases, Misses: worst.misses, PValue: worst.pValue, SmallestCases: worst.enough(alpha)}
	figure := figureWords[worst.figure]
	refusal.Reason = fmt.Sprintf("where the rule should be safest it misses %d of %d %s (%.3g), which a %s of %v would bring about "+
		"with chance %.3g, and at most %.3g is allowed", worst.misses, worst.cases, worst.population(), f, figure, worst.target,
		worst.pValue, alpha)
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
		refusal.SmallestInputs = int(math.Ceil(factor * float64(r.n)))
		refusal.Reason += fmt.Sprintf("; at that share %d %s could certify, about %.0f %s or %d labelled inputs in the whole recording",
			refusal.SmallestCases, worst.population(), math.Ceil(factor*float64(r.casesIn(r.all(), worst.limit))), worst.inputs(),
			refusal.SmallestInputs)
	}
	if larger := largerBounds(all, alpha); larger != "" {
		refusal.Would = append(refusal.Would, larger)
	}
	r.result.Refusal = refusal
}

// figureWords name figures in sentences.
var figureWords = map[policy.Figure]string{policy.CriticalFNR: "critical FNR", policy.CriticalMissRate: "critical miss rate"}

// largerBounds says in words which bounds would have passed in place of those that failed; empty if
// none would.
func largerBounds(all []evidence, alpha float64) string {
	var larger []string
	for i := range all {
		e := &all[i]
		if e.pValue <= alpha {
			continue
		}
		a := e.attainable(alpha)
		if a >= 1 {
			return ""
		}
		larger = append(larger, fmt.Sprintf("a %s of at most %v of %s, instead of %v", figureWords[e.figure], a, e.inputs(), e.target))
	}
	return strings.Join(larger, " and ")
}

// wouldCertify adds to a refusal what would pass the test elsewhere: at another point of the curve
// or in the other scope. The certifying part has then been searched, so that it can only be a hint
// for fresh data.
func (r *run) wouldCertify(ranked []ranking, limits []limit, certifies part, alpha float64) {
	would := &r.result.Refusal.Would
	for i := range ranked {
		at := &ranked[i]
		curve := at.curve(at.chosen)
		for c := len(coverageGrid()) - 1; c >= 0; c-- {
			got, all := r.test(at, limits, certifies, curve(coverageGrid()[c]))
			if got.Retained == 0 || fails(all, alpha) != nil {
				continue
			}
			*would = append(*would, fmt.Sprintf("coverage %.2g in scope %s, by %s: it misses %d of %d %s", got.Coverage(), at.scope,
				at.chosen.inWords(), all[0].misses, all[0].cases, all[0].population()))
			break
		}
	}
}

// mostCases is more critical inputs than any recording has.
const mostCases = 1_000_000

// smallestCases returns the least n with P(X <= floor(f n)) <= alpha, where X counts n events of
// chance a. It returns 0 if f >= a, or if n would be above mostCases.
func smallestCases(f, a, alpha float64) int {
	if f >= a {
		return 0
	}
	misses := func(n int) int { return int(math.Floor(f*float64(n) + 1e-9)) }
	// The chance falls with n as long as the misses stay the same, and jumps up when they rise.
	for n := 1; n <= mostCases; {
		last := n + sort.Search(mostCases-n, func(i int) bool { return misses(n+1+i) > misses(n) })
		enough := func(i int) bool { return binomial.Tail(misses(n), n+i, a) <= alpha }
		if enough(last - n) {
			return n + sort.Search(last-n, enough)
		}
		n = last + 1
	}
	return 0
}
