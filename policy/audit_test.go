package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const auditedText = `models:
  - name: m
    classes: [a, b, c]
    critical: [c]
    passes: {expected: 30}
    primary: {threshold: 0.1}
    fallback: {threshold: 0.1}
`

// TestAuditIsNotInTheHash checks that a policy keeps its hash, and so its certificate and its
// early-stopping rule, whatever is audited.
func TestAuditIsNotInTheHash(t *testing.T) {
	plain := parseOne(t, auditedText)
	calibrated := auditedText + fmt.Sprintf(`    calibrated:
      policy_hash: %q
      expected_critical_miss_rate: {value: 0.05, low: 0.02, high: 0.09}
      certificate: {kind: learn-then-test, bounds: critical-fnr, target: 0.1, confidence: 0.9}
`, plain.Hash)
	before := parseOne(t, calibrated)
	for _, block := range []string{
		"{rate: 0.02}", "{rate: 1, m: 1, predicted-critical: free, cap: 9, due: 3d, on_breach: defer, surge: 10, slices: [{name: s, values: [x]}]}",
	} {
		p := parseOne(t, calibrated+"    audit: "+block+"\n")
		if p.Hash != before.Hash || p.ChangedSinceCalibration() {
			t.Errorf("%s: hash %s, expected %s", block, p.Hash, before.Hash)
		}
		if diff := cmp.Diff(before.Calibration, p.Calibration); diff != "" || LineOf(p.LinesInForce(), CriticalFNR, "").Above != 0.1 {
			t.Errorf("%s: line %v, calibration (-before +after):\n%s", block, LineOf(p.LinesInForce(), CriticalFNR, "").Above, diff)
		}
		if explained := strings.Join(p.Explain(), " "); !strings.Contains(explained, "Certified") || strings.Contains(explained, "was changed") {
			t.Errorf("%s: %s", block, explained)
		}
	}
}

func TestPeriod(t *testing.T) {
	for text, want := range map[string]Period{
		"14d": 14 * day, "36h": 36 * hour, "90s": 90, "90m": 90 * minute, "1s": 1, "10000d": 10_000 * day,
	} {
		if got := parseOne(t, auditedText+"    audit: {rate: 0.1, due: "+text+"}\n").Audit.Due; got != want || got.String() != text {
			t.Errorf("%s is read as %d seconds, %v", text, got, got)
		}
	}
	for _, text := range []string{"14", "d", "-1d", "+1d", "1.5d", "1d12h", "10001d", "1w", "1D", "99999999999999999999s", "0x1d"} {
		_, err := Parse(File{"p.yaml", []byte(auditedText + "    audit: {rate: 0.1, due: " + text + "}\n")})
		if err == nil || !strings.Contains(err.Error(), "p.yaml:8:29: model \"m\": audit.due: expected a whole number and d, h, m or s") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if p := parseOne(t, auditedText+"    audit: {rate: 0.1}\n").Audit; p.Due != DefaultDue || p.M != DefaultAuditM || p.RunLength != 2e6 || p.ReaderSensitivity != 1 {
		t.Errorf("%+v", p)
	}
}

func TestAuditWarnings(t *testing.T) {
	const calibration = "    calibrated: {expected_critical_miss_rate: {value: 0.05, low: 0.02, high: 0.09}}\n"
	risk := strings.TrimSuffix(calibration, "}\n") + ", risk: {called_safe: {intercept: 1, slope: 1}, " +
		"called_critical: {intercept: 1, slope: 1}, quantiles: " + probabilities(0.25) + ", prevalence: 0.5}}\n"
	for _, c := range []struct {
		name, text, want string
	}{
		{"nothing", auditedText + calibration + "    audit: {rate: 0.02}\n", ""},
		{"no line", auditedText + "    audit: {rate: 0.02}\n", "audit: no alarm is ever raised"},
		{"nothing critical", "models: [{name: m, classes: [a, b], gate: never, primary: {score: mi, threshold: 1}, audit: {rate: 0.02}}]", "audit: no class is critical"},
		{"a surge without use", auditedText + calibration + "    audit: {rate: 0.1, surge: 9}\n", "audit.surge: has no effect"},
		{"m without a risk", auditedText + calibration + "    audit: {rate: 0.1, m: 0.3}\n", "audit.m: has no effect: the policy has no risk"},
		{"m without a mean", auditedText + risk + "    audit: {rate: 0.1}\n", "audit.m: has no effect: audits follow the risk only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, w := range parseOne(t, c.text).Warnings() {
				if strings.HasPrefix(w, "audit") {
					got = append(got, w)
				}
			}
			if all := strings.Join(got, "\n"); len(got) > 1 || (c.want == "") != (all == "") || !strings.HasPrefix(all, c.want) {
				t.Errorf("%q, expected %q", got, c.want)
			}
		})
	}
}
