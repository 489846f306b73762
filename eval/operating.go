package eval

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/clustered"
	"github.com/ckd-project/ckd/policy"
)

// confidence of the exact intervals.
const confidence = 0.95

// leastPValue is the smallest p-value at which a bound of a certificate is not contradicted.
const leastPValue = 0.05

// operatingPoint returns the figures of the policy at its own thresholds.
func (e *evaluation) operatingPoint() *OperatingPoint {
	p := e.o.Policy
	var retained []int32
	byFallback := 0
	for i, d := range e.o.Decisions {
		if d.Action != policy.Defer {
			retained = append(retained, int32(i))
		}
		byFallback += index(d.Gate == policy.ByFallback)
	}
	point := &OperatingPoint{
		Model: p.Name, Hash: p.Hash, Scope: p.Scope, Observes: p.Observes(),
		At:         e.figuresAt(retention{whole: retained}),
		ByFallback: share(byFallback, e.t.Inputs),
		Differs:    []string{},
	}
	if p.Calibration != nil {
		point.Differs = e.differences()
	}
	missed, kept := make([]float64, e.t.Inputs), make([]bool, e.t.Inputs)
	for _, i := range retained {
		missed[i], kept[i] = float64(index(e.isMissed(i))), e.isCritical(int(i))
	}
	point.CriticalFNRInterval = e.interval(point.CriticalMissed, int(point.CriticalRetained), func(i int) bool { return kept[i] }, missed)
	if p.Calibration != nil && p.Calibration.Certificate != nil {
		point.Certificate = e.checkCertificate(p.Calibration.Certificate, retained)
	}
	return point
}

func (e *evaluation) isCritical(i int) bool { return e.outcomes[i]&isCritical != 0 }

func (e *evaluation) isMissed(i int32) bool { return e.outcomes[i]&isMissed != 0 }

// interval returns the 95% interval of k of n, nil of nothing: the exact one (Clopper-Pearson), or with groups that of
// the cases and the misses among them. missed has the chance of each input to be missed; counts that
// are not whole interpolate.
func (e *evaluation) interval(k float64, n int, isCase func(i int) bool, missed []float64) *[2]float64 {
	if n == 0 {
		return nil
	}
	if e.groups == nil {
		low, high := binomial.Interval(k, float64(n), confidence)
		return &[2]float64{low, high}
	}
	counted, most := e.groups.count(isCase, func(i int) float64 { return missed[i] })
	low, high := clustered.Interval(counted, most, confidence)
	return &[2]float64{low, high}
}

// checkCertificate holds a certificate against this recording, of which some inputs are retained.
func (e *evaluation) checkCertificate(c *policy.Certificate, retained []int32) *CertificateCheck {
	check := &CertificateCheck{Kind: string(c.Kind), Confidence: c.Confidence, Groups: c.Groups, Differs: e.differences()}
	var all []BoundCheck
	for _, l := range c.Limits() {
		bound := BoundCheck{Bounds: l.Bounds, Class: l.Class, Target: l.Target}
		isCase, missed := e.casesOf(l, retained)
		for i := range isCase {
			bound.Cases += index(isCase[i])
			bound.Misses += index(isCase[i] && missed[i])
		}
		if e.groups == nil {
			bound.judge(c.Confidence)
		} else {
			bound.judgeGroups(e.groups.count(func(i int) bool { return isCase[i] }, func(i int) float64 { return float64(index(missed[i])) }))
			bound.decide(c.Confidence)
		}
		all = append(all, bound)
	}
	check.BoundCheck, check.Further = all[0], all[1:]
	return check
}

// casesOf marks the inputs that a bound of a certificate counts, and the inputs that are retained and
// missed.
func (e *evaluation) casesOf(l policy.CertifiedLimit, retained []int32) (isCase, missed []bool) {
	isCase, missed = make([]bool, e.t.Inputs), make([]bool, e.t.Inputs)
	kept := make([]bool, e.t.Inputs)
	for _, i := range retained {
		kept[i], missed[i] = true, e.outcomes[i]&isMissed != 0
	}
	for i := range isCase {
		isCase[i] = e.isCritical(i) && (l.Class == "" || e.o.Policy.Classes[e.labels[i]] == l.Class) &&
			(kept[i] || l.Bounds == policy.CriticalMissRate)
	}
	return isCase, missed
}

// judge sets what follows from Target, Cases and Misses. The bound is shown with the given confidence.
func (b *BoundCheck) judge(confidence float64) {
	n, target := b.Cases, b.Target
	b.PValue = atLeast(b.Misses, n, target)
	b.PShown = binomial.Tail(b.Misses, n, target)
	b.PowerAtDouble = undefined
	if double := 2 * target; n > 0 && double < 1 {
		fewest := sort.Search(n+1, func(k int) bool { return atLeast(k, n, target) < leastPValue })
		b.PowerAtDouble = Figure(atLeast(fewest, n, double))
	}
	b.decide(confidence)
}

// judgeGroups sets the p-values by groups, of which none has more than most cases.
func (b *BoundCheck) judgeGroups(counted []clustered.Group, most int) {
	hits := make([]clustered.Group, len(counted))
	for i, g := range counted {
		hits[i] = clustered.Group{Cases: g.Cases, Misses: float64(g.Cases) - g.Misses}
	}
	b.PValue, b.PShown = clustered.Tail(hits, 1-b.Target, most), clustered.Tail(counted, b.Target, most)
	b.PowerAtDouble = undefined
}

// decide sets the verdict that follows from the p-values.
func (b *BoundCheck) decide(confidence float64) {
	const rounding = 1e-9 // 1-0.9 is a little less than 0.1
	b.Observed = per(b.Misses, b.Cases)
	switch {
	case b.Cases == 0:
	case b.PValue < leastPValue:
		b.Verdict = Contradicted
	case b.PShown <= 1-confidence+rounding:
		b.Verdict = Shown
	default:
		b.Verdict = NotContradicted
	}
}

// atLeast returns the chance of k misses or more among n inputs that are each missed with chance p.
func atLeast(k, n int, p float64) float64 { return binomial.Tail(n-k, n, 1-p) } // n-k hits or fewer

// differences says how this recording differs from the one that the policy was calibrated on, or
// that it is the same and therefore no evidence.
func (e *evaluation) differences() []string {
	all := []string{}
	p, t, was := e.o.Policy, e.t, e.o.Policy.Calibration.Recording
	if was.PassesSHA256 != "" && strings.EqualFold(was.PassesSHA256, e.o.PassesSHA256) {
		all = append(all, "this is the recording that the policy was calibrated on")
	}
	if kind := kindOf(t.Spec.Kind); string(p.Kind) != kind {
		all = append(all, fmt.Sprintf("its rows are read as %s, those of the policy are %s", kind, p.Kind))
	}
	if was.Passes > 0 && was.Passes != t.Passes {
		all = append(all, fmt.Sprintf("its inputs have %d passes, those that the policy was calibrated on had %d", t.Passes,
			was.Passes))
	}
	if critical := slices.Sorted(slices.Values(t.Spec.Critical)); !slices.Equal(critical, p.Critical) {
		all = append(all, fmt.Sprintf("its critical classes are %s, those of the policy %s", e.names(critical),
			e.names(p.Critical)))
	}
	return all
}
