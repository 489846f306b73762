package calibrate

import (
	"fmt"
	"strings"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// judge compares a choice with as many reviews drawn at random among the inputs that it may defer.
// retained marks what it retains of a part that did not choose it.
func (r *run) judge(c *choice, p part, retained []bool) {
	keeps := r.Scope == policy.PredictedSafe || r.countsReviews || c.rule.keepsCalls()
	missed, eligible, deferred := make([]bool, r.n), make([]bool, r.n), make([]bool, r.n)
	for i, inside := range p.holds {
		missed[i] = inside && r.missed[i]
		eligible[i] = inside && !(keeps && r.predictedCritical[i])
		deferred[i] = inside && !retained[i]
	}
	for _, k := range r.table.Spec.Critical {
		of, lost := make([]bool, r.n), make([]bool, r.n)
		for i, inside := range p.holds {
			of[i] = inside && r.label[i] == k
			lost[i] = of[i] && retained[i] && r.missed[i]
		}
		class := ClassMisses{Class: r.Base.Classes[k], Inputs: p.count(of), Missed: p.count(lost)}
		class.CriticalMissRate, class.CriticalMissRateInterval = r.share(p, of, lost)
		r.report.CriticalClasses = append(r.report.CriticalClasses, class)
	}
	var groups []int
	if r.grouped {
		groups = r.group
	}
	r.report.judge(eval.GainOf(missed, eligible, deferred, groups), p.count(r.critical), r.needless)
}

// judge takes a gain, and says what it lacks. critical counts the critical inputs it was measured on,
// and needless says that bounds hold where nothing is deferred.
func (r *Report) judge(g eval.Gain, critical int, needless bool) {
	r.Gain = &g
	const cannot = "This recording cannot support a policy: "
	switch c := r.Certificate; {
	case c != nil && (needless || g.Deferred == 0 || g.Without == 0):
		r.Unsupported = fmt.Sprintf("No policy is needed: the model alone misses %d of %d critical inputs, so that %s is certified without any review.",
			g.Without, critical, inPercent(c))
	case g.Supports:
	case g.Without == 0:
		r.Unsupported = cannot + fmt.Sprintf("without review none of its %d critical inputs is missed, so that no rule can show a gain.", critical)
	case g.Deferred == 0:
		r.Unsupported = cannot + fmt.Sprintf("the rule sends nothing to a person, and misses the same %d of %d critical inputs as the model alone.",
			g.Missed, critical)
	default:
		r.Unsupported = cannot + fmt.Sprintf("its rule misses %d of %d critical inputs instead of %d, by reviewing %d of %d inputs; "+
			"as many reviews drawn at random would do as well with a chance of %s (at most %s is wanted).",
			g.Missed, critical, g.Without, g.Deferred, g.Eligible, percent(g.P), percent(eval.GainLevel))
	}
}

// inPercent returns the bounds of a certificate: "a critical miss rate of at most 10%".
func inPercent(c *Certificate) string {
	var all []string
	for _, l := range c.Limits() {
		class := ""
		if l.Class != "" {
			class = " of " + l.Class
		}
		all = append(all, fmt.Sprintf("a %s%s of at most %s", l.Bounds.Words(), class, percent(l.Target)))
	}
	return strings.Join(all, " and ")
}

// withhold takes back what was chosen where the recording does not support it, unless that is forced,
// and reports whether it did.
func (r *Report) withhold(force bool) bool {
	switch {
	case r.Unsupported == "":
		return false
	case force:
		r.warn("%s The policy is written because that was forced.", r.Unsupported)
		return false
	}
	r.Refusal = &Refusal{Reason: r.Unsupported}
	r.Chosen, r.Expected, r.Certificate, r.Risk, r.Costs, r.CriticalClasses = nil, nil, nil, nil, nil, nil
	return true
}

// Curve holds what is missed against what is deferred, on inputs that chose nothing.
type Curve struct {
	Inputs   int          `json:"inputs"`
	Critical int          `json:"critical"`
	Policy   []CurvePoint `json:"policy"`             // the chosen rule at other thresholds
	MI       []CurvePoint `json:"mutual_information"` // the same of mutual information
}

// CurvePoint counts inputs.
type CurvePoint struct {
	Deferred int `json:"deferred"`
	Missed   int `json:"missed"`
}

// trace adds to the report's curve what a rule does with a part, at every coverage.
func (s *search) trace(points *[]CurvePoint, rule candidate, out part) {
	grid := coverageGrid()
	if *points == nil {
		*points = make([]CurvePoint, len(grid))
	}
	way := s.path(s.part, s.scope, rule)
	for at, coverage := range grid {
		c := &choice{s, rule, way.thresholds(coverage)}
		got := c.selective(out)
		(*points)[at].Deferred += got.Inputs - got.Retained
		(*points)[at].Missed += got.Missed
	}
}

// traceBoth adds a choice and mutual information.
func (r *run) traceBoth(c *choice, out part) {
	if r.report.Curve == nil {
		r.report.Curve = &Curve{}
	}
	curve := r.report.Curve
	curve.Inputs += out.n
	curve.Critical += out.count(r.critical)
	c.trace(&curve.Policy, c.rule, out)
	c.trace(&curve.MI, single(decomp.MI), out)
}
