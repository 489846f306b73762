package eval

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ckd-project/ckd/internal/binomial"
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
		At:         e.at(retained),
		ByFallback: share(byFallback, e.t.Inputs),
		Differs:    []string{},
	}
	if p.Calibration != nil {
		point.Differs = e.differences()
	}
	all := e.report.Summary.Critical
	point.MissShare = per(point.CriticalMissed, all)
	point.CriticalFNRInterval = exactInterval(point.CriticalMissed, point.CriticalRetained)
	point.MissShareInterval = exactInterval(point.CriticalMissed, all)
	if p.Calibration != nil && p.Calibration.Certificate != nil {
		point.Certificate = e.checkCertificate(p.Calibration.Certificate, retained)
	}
	return point
}

// exactInterval returns the exact 95% interval (Clopper-Pearson) of k of n, nil of nothing.
func exactInterval(k, n int) *[2]float64 {
	if n == 0 {
		return nil
	}
	low, high := binomial.Interval(k, n, confidence)
	return &[2]float64{low, high}
}

// checkCertificate holds a certificate against this recording, of which some inputs are retained.
func (e *evaluation) checkCertificate(c *policy.Certificate, retained []int32) *CertificateCheck {
	check := &CertificateCheck{Kind: string(c.Kind), Confidence: c.Confidence, Groups: c.Groups, Differs: e.differences()}
	certain := c.Confidence
	if certain == 0 { // a bound on average has none
		certain = confidence
	}
	var all []BoundCheck
	for _, l := range c.Limits() {
		bound := BoundCheck{Bounds: l.Bounds, Class: l.Class, Target: l.Target}
		bound.Misses, bound.Cases = e.missesOf(l, retained)
		bound.judge(certain)
		all = append(all, bound)
	}
	check.BoundCheck, check.Further = all[0], all[1:]
	return check
}

// missesOf returns how many inputs a bound of a certificate counts, and how many of them are
// retained and called safe.
func (e *evaluation) missesOf(l policy.CertifiedLimit, retained []int32) (misses, cases int) {
	counts := func(i int) bool {
		return e.outcomes[i]&isCritical != 0 && (l.Class == "" || e.o.Policy.Classes[e.labels[i]] == l.Class)
	}
	for _, i := range retained {
		if counts(int(i)) {
			cases++
			misses += index(e.outcomes[i]&isMissed != 0)
		}
	}
	if l.Bounds == policy.CriticalMissRate {
		cases = 0
		for i := range e.outcomes {
			cases += index(counts(i))
		}
	}
	return misses, cases
}

// judge sets what follows from Target, Cases and Misses. The bound is shown with the given confidence.
func (b *BoundCheck) judge(confidence float64) {
	const rounding = 1e-9 // 1-0.9 is a little less than 0.1
	n, target := b.Cases, b.Target
	b.Observed = per(b.Misses, n)
	b.PValue = atLeast(b.Misses, n, target)
	b.PShown = binomial.Tail(b.Misses, n, target)
	b.PowerAtDouble = undefined
	if n == 0 {
		return
	}
	if double := 2 * target; double < 1 {
		fewest := sort.Search(n+1, func(k int) bool { return atLeast(k, n, target) < leastPValue })
		b.PowerAtDouble = Figure(atLeast(fewest, n, double))
	}
	switch {
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
		all = append(all, "this is the recording that the policy was calibrated on: it is no evidence")
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
