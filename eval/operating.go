package eval

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy"
)

// confidence of the exact intervals.
const confidence = 0.95

// leastPValue is the smallest p-value at which a certificate still counts as held.
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
		point.Certificate = e.checkCertificate(retained)
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

// checkCertificate compares the policy's certificate with this recording. Of several bounds it tells
// of the one that this recording speaks most against.
func (e *evaluation) checkCertificate(retained []int32) *CertificateCheck {
	c := e.o.Policy.Calibration.Certificate
	var worst *CertificateCheck
	for _, l := range c.Limits() {
		misses, cases := e.countOf(l, retained)
		check := &CertificateCheck{
			Kind: string(c.Kind), Bounds: string(l.Bounds), Class: l.Class, Target: l.Target, Confidence: c.Confidence,
			Observed: per(misses, cases),
			// Seeing k misses or more is the same as seeing n-k hits or fewer.
			PValue: binomial.Tail(cases-misses, cases, 1-l.Target),
		}
		if cases > 0 {
			held := check.PValue >= leastPValue
			check.Held = &held
		}
		if worst == nil || check.PValue < worst.PValue {
			worst = check
		}
	}
	worst.Differs = e.differences()
	return worst
}

// countOf returns the misses and the cases of a limit, given which inputs are retained.
func (e *evaluation) countOf(l policy.CertifiedLimit, retained []int32) (misses, cases int) {
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
