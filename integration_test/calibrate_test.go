package integration_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// TestCalibratedPolicyServes: what calibrate writes, serve loads and decides by,
// and it notices traffic that the policy was not calibrated for.
func TestCalibratedPolicyServes(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	mustRun(t, "calibrate", "--passes", recording("ctg-lowrank", ".passes.npy"), "--labels", recording("ctg-lowrank", ".labels.npy"),
		"--classes", "normal,suspect,pathologic", "--critical", "suspect,pathologic", "--name", "heart",
		"--posterior", "low-rank", "--max-critical-fnr", "0.15", "--confidence", "0.9", "--out", policy)
	d := serve(t, "--policy", policy)
	replay := func(name string, flags ...string) (retained int) {
		t.Helper()
		args := append([]string{"replay", "--addr", d.GRPC[0], "--model", "heart", "--passes", recording(name, ".passes.npy")}, flags...)
		for _, line := range lines(t, mustRun(t, args...).Stdout) {
			decision, _ := line.(map[string]any)["decision"].(map[string]any)
			if decision["action"] == "retain" {
				retained++
			}
		}
		return retained
	}
	mismatches := func(what string) float64 {
		return d.gauge("ckd_calibration_mismatches_total", "model", "heart", "what", what)
	}

	retained := replay("ctg-lowrank", "--posterior", "low-rank")
	if coverage, expected := float64(retained)/2126, d.gauge("ckd_policy_expected_coverage", "model", "heart"); math.Abs(coverage-expected) > 0.03 {
		t.Errorf("coverage %v, the policy expects %v", coverage, expected)
	}
	if passes, posterior := mismatches("passes"), mismatches("posterior"); passes != 0 || posterior != 0 {
		t.Errorf("%v and %v mismatches of what the policy was calibrated on", passes, posterior)
	}
	// Another posterior with as many passes, then five passes of an ensemble whose posterior is not stated.
	replay("ctg-mcdropout", "--posterior", "mc-dropout")
	replay("ctg-ensemble")
	if passes, posterior := mismatches("passes"), mismatches("posterior"); passes != 2126 || posterior != 2126 {
		t.Errorf("%v mismatches of passes, %v of posterior, expected 2126 of each", passes, posterior)
	}
	d.Stop()
	if n := strings.Count(d.Log(), "calibrated"); n < 2 || n > 8 {
		t.Errorf("%d log lines on %d mismatches:\n%s", n, 2*2126, d.Log())
	}
}
