package calibrate

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
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

// limits are bounds that hold together.
type limits []limit

// limits returns the bounds that the objective asks for, of a recording's groups.
func (r *run) limits() limits {
	all := r.Objective.limits(r.Base)
	for i := range all {
		all[i].most = all[i].mostOf(r.sample)
	}
	return all
}

// limits returns the bounds that the objective asks for.
func (o *Objective) limits(p *policy.Policy) (all limits) {
	for _, l := range o.Limits {
		class := allClasses
		if l.Class != "" {
			class = slices.Index(p.Classes, l.Class)
		}
		all = append(all, limit{figure: l.Bounds, class: class, name: l.Class, target: l.Most})
	}
	return all
}

// riseOnly reports whether misses alone decide: they only rise along a curve, and p-values with
// them. A critical FNR can fall too.
func (all limits) riseOnly() bool {
	return !slices.ContainsFunc(all, func(l limit) bool { return l.figure == policy.CriticalFNR })
}

// counts reports whether an input of a sample counts for the limit.
func (l limit) counts(s *sample, i int) bool {
	return s.critical[i] && (l.class == allClasses || s.label[i] == l.class)
}

// casesIn returns the number of inputs of a part that count for the limit.
func (l limit) casesIn(s *sample, p part) int {
	n := 0
	for i, inside := range p.holds {
		n += index(inside && l.counts(s, i))
	}
	return n
}

// mostOf returns the largest number of inputs of a group that count for the limit, at least 1. It is
// taken as known beforehand: a certificate is of groups no larger.
func (l limit) mostOf(s *sample) int {
	most, n := 1, make(map[int]int)
	for i := range s.n {
		if l.counts(s, i) {
			g := s.group[i]
			n[g]++
			most = max(most, n[g])
		}
	}
	return most
}

// evidence holds what the inputs of a part show of a limit.
type evidence struct {
	limit
	clustered.Tally
	// pValue is the chance of so few misses if the share were above the target.
	pValue float64
}

// test tests the limit on the inputs of a part, of which a policy retains some.
func (l limit) test(s *sample, p part, retained []bool) evidence {
	e := evidence{limit: l, Tally: s.newTally()}
	e.Most = l.most
	for i, inside := range p.holds {
		if inside && l.counts(s, i) && (retained[i] || l.figure != policy.CriticalFNR) {
			e.Add(s.group[i], retained[i] && s.missed[i])
		}
	}
	e.pValue = e.PValue(l.target)
	return e
}

// casesOfGroup returns the mean number of cases in a group that has some.
func (e *evidence) casesOfGroup() float64 {
	if len(e.Groups) == 0 {
		return 1
	}
	return max(float64(e.Cases)/float64(len(e.Groups)), 1)
}

// attainable returns the smallest target that would be certified; 1 if none would.
func (e *evidence) attainable(alpha float64) float64 {
	const steps = 1000
	i := sort.Search(steps-1, func(i int) bool { return e.PValue(float64(i+1)/steps) <= alpha })
	return float64(i+1) / steps
}

// enough returns the least number of cases, at the same share of misses, that could certify; 0 if
// no number could.
func (e *evidence) enough(alpha float64) int {
	if !e.Grouped() || e.Cases == 0 {
		return smallestCases(shareOf(float64(e.Misses), float64(e.Cases)), e.target, alpha)
	}
	times := clustered.Enough(e.Groups, e.target, e.Most, alpha)
	if times*float64(e.Cases) > mostCases {
		return 0
	}
	return int(math.Ceil(times * float64(e.Cases)))
}

// certified returns the limit as a certificate has it.
func (e *evidence) certified() policy.CertifiedLimit {
	return policy.CertifiedLimit{
		Bounds: e.figure, Class: e.name, Target: e.target, Cases: e.Cases, Misses: e.Misses, PValue: e.pValue,
	}
}

// tested holds what the inputs of a part show of limits that hold together, in their order. Either
// all are grouped or none is.
type tested []evidence

// fails returns the limit that is farthest from passing at a level, or nil if all pass.
func (all tested) fails(alpha float64) *evidence {
	var worst *evidence
	for i := range all {
		if all[i].pValue > alpha && (worst == nil || all[i].pValue > worst.pValue) {
			worst = &all[i]
		}
	}
	return worst
}

// certificate returns the certificate of limits that passed.
func (all tested) certificate(confidence float64) *Certificate {
	first := all[0].certified()
	c := &Certificate{Certificate: policy.Certificate{
		Kind: policy.LearnThenTest, Bounds: first.Bounds, Class: first.Class, Target: first.Target, Confidence: confidence,
		Cases: first.Cases, Misses: first.Misses, PValue: first.PValue, Groups: all.groups(), Statement: all.statement(confidence),
	}}
	for i := range all[1:] {
		c.Further = append(c.Further, all[1+i].certified())
	}
	return c
}

// statement puts what is certified into a sentence.
func (all tested) statement(confidence float64) string {
	return all.boundsInWords(confidence) + ", " + all.drawn()
}

// boundsInWords says what is certified, but not of which inputs.
func (all tested) boundsInWords(confidence float64) string {
	var bounds []string
	for i := range all {
		e := &all[i]
		verb := "are retained and called safe"
		if e.figure == policy.CriticalFNR {
			verb = "are called safe"
		}
		bounds = append(bounds, fmt.Sprintf("at most %s of the %s %s (%d of %d were)", percent(e.target), e.population(), verb, e.Misses, e.Cases))
	}
	s := fmt.Sprintf("With %s confidence, ", percent(confidence))
	if len(all) > 1 {
		s = fmt.Sprintf("With %s confidence that all %d bounds hold (it is not split among them: each was tested at %[1]s, and all had to pass), ",
			percent(confidence), len(all))
	}
	return s + strings.Join(bounds, ", and ")
}

// drawn says of which inputs a certificate holds.
func (all tested) drawn() string {
	if !all[0].Grouped() {
		return "for inputs drawn as those of the recording were, " + policy.IfIndependent + "."
	}
	most := 0
	for i := range all {
		most = max(most, all[i].Most)
	}
	return fmt.Sprintf("for groups drawn as those of the recording were, of at most %d critical inputs each (%d groups with critical inputs certified).", most,
		all.groups())
}

// groups returns the number of groups that the limit with the most of them rests on; 0 if inputs
// are independent.
func (all tested) groups() int {
	most := 0
	for i := range all {
		most = max(most, len(all[i].Groups))
	}
	return most
}

// largerBounds says in words which bounds would have passed in place of those that failed; empty if
// none would.
func (all tested) largerBounds(alpha float64) string {
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
		larger = append(larger, fmt.Sprintf("a %s of at most %s of %s, instead of %s", e.figure.Words(), percent(a), e.inputs(), percent(e.target)))
	}
	return strings.Join(larger, " and ")
}

// shareOf returns n/all, or 0 if all is 0.
func shareOf(n, all float64) float64 {
	if all == 0 {
		return 0
	}
	return n / all
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

// percent returns a share in percent, with all that was asked for of it and four digits of any other.
func percent(share float64) string { return strconv.FormatFloat(100*share, 'g', 4, 64) + "%" }
