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
		point.Certificate = e.checkCertificate(point)
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

// checkCertificate compares the policy's certificate with this recording.
func (e *evaluation) checkCertificate(point *OperatingPoint) *CertificateCheck {
	c := e.o.Policy.Calibration.Certificate
	check := &CertificateCheck{Kind: string(c.Kind), Target: c.Target, Confidence: c.Confidence, Differs: e.differences()}
	cases := point.CriticalRetained
	check.Observed = point.CriticalFNR
	if c.Limits()[0].Bounds == policy.CriticalMissRate {
		cases = e.report.Summary.Critical
		check.Observed = point.MissShare
	}
	// Seeing k misses or more is the same as seeing n-k hits or fewer.
	check.PValue = binomial.Tail(cases-point.CriticalMissed, cases, 1-c.Target)
	if cases > 0 {
		held := check.PValue >= leastPValue
		check.Held = &held
	}
	return check
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
