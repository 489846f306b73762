package calibrate

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/clustered"
	"github.com/ckd-project/ckd/policy"
)

// limit is a bound on the share of some critical inputs that is retained and called safe.
type limit struct {
	figure policy.Figure
	class  int    // the only true class that counts; allClasses for every critical one
	name   string // of the class
	target float64
	most   int // the largest number of such inputs in a group of the recording
}

// allClasses stands for all critical classes.
const allClasses = -1

// population says in words which inputs the limit is a share of.
func (l limit) population() string {
	if l.figure == policy.CriticalFNR {
		return "retained " + l.inputs()
	}
	return l.inputs()
}

func (l limit) inputs() string {
	if l.class == allClasses {
		return "critical inputs"
	}
	return "inputs of class " + l.name
}

// limits returns the bounds that the objective asks for, the pooled ones first.
func (r *run) limits() []limit {
	var all []limit
	add := func(figure policy.Figure, class int, target float64) {
		l := limit{figure: figure, class: class, target: target}
		if class != allClasses {
			l.name = r.Base.Classes[class]
		}
		l.most = r.mostOf(l)
		all = append(all, l)
	}
	if a := r.Objective.MaxCriticalMiss; a > 0 {
		add(policy.CriticalMissRate, allClasses, a)
	}
	if a := r.Objective.MaxCriticalFNR; a > 0 {
		add(policy.CriticalFNR, allClasses, a)
	}
	for _, c := range r.Objective.ClassLimits {
		add(c.Bounds, slices.Index(r.Base.Classes, c.Class), c.Most)
	}
	return all
}

// of reports whether an input counts for a limit.
func (s *sample) of(l limit, i int) bool {
	return s.critical[i] && (l.class == allClasses || s.label[i] == l.class)
}

// casesIn returns the number of inputs of a part that count for a limit.
func (s *sample) casesIn(p part, l limit) int {
	n := 0
	for i, in := range p.of {
		n += index(in && s.of(l, i))
	}
	return n
}

// mostOf returns the largest number of inputs of a group that count for a limit, at least 1. It is
// taken as known beforehand: a certificate is of groups no larger.
func (s *sample) mostOf(l limit) int {
	most, n := 1, make(map[int]int)
	for i := range s.n {
		if s.of(l, i) {
			g := s.groupOf(i)
			n[g]++
			most = max(most, n[g])
		}
	}
	return most
}

// evidence holds what the inputs of a part show of a limit.
type evidence struct {
	limit
	cases, misses int
	groups        []clustered.Group // nil if inputs are independent
	// pValue is the chance of so few misses if the share were above the target.
	pValue float64
}

// evidenceOf tests a limit on the inputs of a part, of which a policy retains some.
func (s *sample) evidenceOf(l limit, p part, retained []bool) evidence {
	e := evidence{limit: l}
	in := make(map[int]*clustered.Group)
	for i, inside := range p.of {
		if !inside || !s.of(l, i) || l.figure == policy.CriticalFNR && !retained[i] {
			continue
		}
		missed := index(retained[i] && s.missed[i])
		e.cases++
		e.misses += missed
		if s.group != nil {
			g := in[s.group[i]]
			if g == nil {
				g = &clustered.Group{}
				in[s.group[i]] = g
			}
			g.Cases++
			g.Misses += missed
		}
	}
	if s.group != nil {
		e.groups = []clustered.Group{}
		for _, g := range in {
			e.groups = append(e.groups, *g)
		}
	}
	e.pValue = e.chanceAt(l.target)
	return e
}

// chanceAt returns the p-value for another target.
func (e *evidence) chanceAt(target float64) float64 {
	if e.groups != nil {
		return clustered.Tail(e.groups, target, e.most)
	}
	return binomial.Tail(e.misses, e.cases, target)
}

// attainable returns the smallest target that would be certified; 1 if none would.
func (e *evidence) attainable(alpha float64) float64 {
	const steps = 1000
	i := sort.Search(steps-1, func(i int) bool { return e.chanceAt(float64(i+1)/steps) <= alpha })
	return float64(i+1) / steps
}

// enough returns the least number of cases, at the same share of misses, that could certify; 0 if
// no number could.
func (e *evidence) enough(alpha float64) int {
	if e.groups == nil || e.cases == 0 {
		return smallestCases(shareOf(float64(e.misses), float64(e.cases)), e.target, alpha)
	}
	times := clustered.Enough(e.groups, e.target, e.most, alpha)
	if times*float64(e.cases) > mostCases {
		return 0
	}
	return int(math.Ceil(times * float64(e.cases)))
}

// certified returns the limit as a certificate has it.
func (e *evidence) certified() policy.CertifiedLimit {
	return policy.CertifiedLimit{
		Bounds: e.figure, Class: e.name, Target: e.target, Cases: e.cases, Misses: e.misses, PValue: e.pValue,
	}
}

// fails returns the limit that is farthest from passing at a level, or nil if all pass.
func fails(all []evidence, alpha float64) *evidence {
	var worst *evidence
	for i := range all {
		if all[i].pValue > alpha && (worst == nil || all[i].pValue > worst.pValue) {
			worst = &all[i]
		}
	}
	return worst
}

// retainedAt marks the inputs of a part that the candidate of a ranking retains at some thresholds.
func (r *run) retainedAt(at *ranking, p part, t thresholds) []bool {
	retained := make([]bool, r.n)
	for i, in := range p.of {
		retained[i] = in && at.final.retains(i, at.scope, at.chosen, t)
	}
	return retained
}

// stateLimits puts what is certified into a sentence.
func (r *run) stateLimits(all []evidence, confidence float64) string {
	var bounds []string
	for i := range all {
		e := &all[i]
		verb := "are retained and called safe"
		if e.figure == policy.CriticalFNR {
			verb = "are called safe"
		}
		bounds = append(bounds, fmt.Sprintf("at most %v of the %s %s (%d of %d were)", e.target, e.population(), verb, e.misses, e.cases))
	}
	s := fmt.Sprintf("With confidence %v, ", confidence)
	if len(all) > 1 {
		s = fmt.Sprintf("With confidence %v that all %d bounds hold (it is not split among them: each was tested at %v, and all had to pass), ",
			confidence, len(all), confidence)
	}
	return s + strings.Join(bounds, ", and ") + ", " + r.drawn(all)
}

// drawn says of which inputs a certificate holds.
func (r *run) drawn(all []evidence) string {
	if r.group == nil {
		return "for inputs drawn as those of the recording were, " + policy.IfIndependent + "."
	}
	most := 0
	for i := range all {
		most = max(most, all[i].most)
	}
	return fmt.Sprintf("for groups drawn as those of the recording were, of at most %d critical inputs each (%d groups with critical inputs certified).", most,
		certifyingGroups(all))
}

// certifyingGroups returns the number of groups that the limit with the most of them rests on.
func certifyingGroups(all []evidence) int {
	most := 0
	for i := range all {
		most = max(most, len(all[i].groups))
	}
	return most
}

// expectByGroup replaces the intervals of what is expected by those of groups, where there are groups.
func (r *run) expectByGroup(retained []bool) {
	if r.group == nil {
		return
	}
	e, all := r.result.Expected, r.all()
	e.CoverageInterval = r.interval(all, all.of, retained)
	missed, kept := make([]bool, r.n), make([]bool, r.n)
	for i := range r.n {
		missed[i], kept[i] = retained[i] && r.missed[i], retained[i] && r.critical[i]
	}
	for _, share := range []struct {
		of       *[2]float64
		counting []bool
	}{{e.CriticalMissRateInterval, r.critical}, {e.CriticalFNRInterval, kept}} {
		if share.of != nil {
			*share.of = r.interval(all, share.counting, missed)
		}
	}
}

// interval returns the 95% interval of a share of some inputs of a part: of those that count, how many
// are hits. Both are marks by input. Inputs of one group count together.
func (s *sample) interval(p part, counts, hits []bool) [2]float64 {
	n, k, most := 0, 0, 1
	in := make(map[int]clustered.Group)
	for i, inside := range p.of {
		if !inside || !counts[i] {
			continue
		}
		n++
		k += index(hits[i])
		g := in[s.groupOf(i)]
		g.Cases++
		g.Misses += index(hits[i])
		in[s.groupOf(i)] = g
		most = max(most, g.Cases)
	}
	if s.group == nil {
		return exactInterval(k, n)
	}
	groups := make([]clustered.Group, 0, len(in))
	for _, g := range in {
		groups = append(groups, g)
	}
	low, high := clustered.Interval(groups, most, 0.95)
	return [2]float64{low, high}
}
