package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// expectedShares are upper limits of 9% for the critical miss rate and 40% for that of class c.
const expectedShares = "expected_critical_miss_rate: {value: 0.05, low: 0.02, high: 0.09}, " +
	"expected_class_miss_rate: [{class: c, value: 0.2, low: 0.1, high: 0.4}]"

func withCalibration(calibration string) string {
	return auditedText + "    calibrated: " + calibration + "\n"
}

// TestLines checks which lines a policy has, and where they come from: what is stated, else what was
// certified, else the upper end of what was expected, and never a mean or a point.
func TestLines(t *testing.T) {
	const (
		certificate = "certificate: {kind: learn-then-test, bounds: "
		another     = "policy_hash: 0000000000000000000000000000000000000000000000000000000000000000"
		ann         = "by: ann, on: 2026-11-03"
	)
	expected := func(figure Figure, class string, above float64) Line {
		return Line{Bounds: figure, Class: class, Above: above, From: ExpectedLine}
	}
	certified := func(figure Figure, class string, above float64) Line {
		return Line{Bounds: figure, Class: class, Above: above, From: CertifiedLine}
	}
	stated := func(figure Figure, class string, above float64) Line {
		return Line{figure, class, above, StatedLine, "ann", "2026-11-03"}
	}
	rate, class := expected(CriticalMissRate, "", 0.09), expected(CriticalMissRate, "c", 0.4)
	for _, c := range []struct {
		name, calibration string
		want              []Line
	}{
		{"nothing expected", "{seed: 1}", nil},
		{"expected", "{" + expectedShares + "}", []Line{rate, class}},
		{"expected without intervals", "{expected_critical_miss_rate: {value: 0.05, low: 0, high: 1}}", nil},
		{"certified FNR", "{" + expectedShares + ", " + certificate + "critical-fnr, target: 0.1, confidence: 0.9}}",
			[]Line{rate, class, certified(CriticalFNR, "", 0.1)}},
		{"certified miss rate", "{" + expectedShares + ", " + certificate + "critical-miss-rate, target: 0.1, confidence: 0.9}}",
			[]Line{certified(CriticalMissRate, "", 0.1), class}},
		{"certified of a class", "{" + expectedShares + ", " + certificate + "critical-fnr, class: c, target: 0.2, confidence: 0.9, " +
			"further: [{bounds: critical-miss-rate, target: 0.07}, {bounds: critical-miss-rate, class: c, target: 0.1}]}}",
			[]Line{certified(CriticalMissRate, "", 0.07), certified(CriticalMissRate, "c", 0.1), certified(CriticalFNR, "c", 0.2)}},
		{"stated, which leaves the others", "{" + expectedShares + ", lines: {critical_miss_rate: 0.08, " + ann + "}}",
			[]Line{stated(CriticalMissRate, "", 0.08), class}},
		{"stated of a class, beside a certificate", "{" + certificate + "critical-fnr, target: 0.1, confidence: 0.9}, " +
			"lines: {critical_miss_rate: 0.01, classes: [{class: c, critical_miss_rate: 0.9}], " + ann + "}}",
			[]Line{stated(CriticalMissRate, "", 0.01), stated(CriticalMissRate, "c", 0.9), certified(CriticalFNR, "", 0.1)}},
		{"changed since", "{" + expectedShares + ", " + another + "}", nil},
		{"changed since, but stated", "{" + expectedShares + ", lines: {critical_miss_rate: 0.3, " + ann + "}, " + another + "}",
			[]Line{stated(CriticalMissRate, "", 0.3)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := parseOne(t, withCalibration(c.calibration))
			if diff := cmp.Diff(c.want, p.LinesInForce()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if lines := parseOne(t, auditedText).LinesInForce(); lines != nil {
		t.Errorf("%v without a calibration", lines)
	}
}

// TestLineOrigin checks the words for each origin, and that ckd check says them.
func TestLineOrigin(t *testing.T) {
	p := parseOne(t, withCalibration("{"+expectedShares+", certificate: {kind: learn-then-test, bounds: critical-fnr, target: 0.1, "+
		"confidence: 0.9}, lines: {critical_miss_rate: 0.08, by: Ann Lee, on: 2026-11-03}}"))
	const want = "The alarm sounds when outcomes show more than this: critical miss rate 8% (stated by Ann Lee on 2026-11-03), " +
		"critical miss rate of c 40% (expected at most) and critical FNR 10% (certified)."
	if explained := strings.Join(p.Explain(), "\n"); !strings.Contains(explained, want) {
		t.Errorf("%s\nexpected %s", explained, want)
	}
}

// TestHashCoversLines checks that the hash fixes the lines in force, stated and derived, and that a
// lowered line makes no other policy of it: its calibration stands.
func TestHashCoversLines(t *testing.T) {
	plain := parseOne(t, auditedText)
	seen := map[string]string{plain.Hash: "no line"}
	for _, lines := range []string{
		"", "lines: {critical_miss_rate: 0.08, by: ann, on: 2026-11-03}", "lines: {critical_miss_rate: 0.08000000000000002, by: ann, on: 2026-11-03}",
		"lines: {classes: [{class: c, critical_miss_rate: 0.08}], by: ann, on: 2026-11-03}",
		"certificate: {kind: learn-then-test, bounds: critical-fnr, target: 0.1, confidence: 0.9}",
	} {
		p := parseOne(t, withCalibration(fmt.Sprintf("{policy_hash: %s, %s, %s}", plain.Hash, expectedShares, lines)))
		if other, taken := seen[p.Hash]; taken {
			t.Errorf("%q and %q have one hash", lines, other)
		}
		seen[p.Hash] = lines
		if p.HashWithoutLines() != plain.Hash || p.ChangedSinceCalibration() {
			t.Errorf("%q: another policy than the one that was calibrated", lines)
		}
	}
	restated := parseOne(t, withCalibration(fmt.Sprintf("{policy_hash: %s, %s, lines: {critical_miss_rate: 0.08, by: bob, on: 2026-11-04}}", plain.Hash, expectedShares)))
	if seen[restated.Hash] == "" {
		t.Error("who states a line is in the hash")
	}
}
