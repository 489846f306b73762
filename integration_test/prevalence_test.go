package integration_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/ckd-project/ckd/internal/pagestate"
)

// TestSuggestedPrevalence calibrates a policy for another share of critical inputs than the recording
// has: the daemon that serves the recording suggests that of the recording, in /metrics and on the page,
// and begins anew with another policy.
func TestSuggestedPrevalence(t *testing.T) {
	t.Parallel()
	const critical, inputs = 471, 2126
	folder := t.TempDir()
	calibrate := func(prevalence string) string {
		out := filepath.Join(folder, prevalence+".yaml")
		mustRun(t, "calibrate", "--passes", recording("ctg-mcdropout", ".passes.npy"), "--labels", recording("ctg-mcdropout", ".labels.npy"),
			"--classes", "normal,suspect,pathologic", "--critical", "suspect,pathologic", "--name", "ctg", "--coverage", "0.8", "--prevalence", prevalence, "--out", out)
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rare, usual := calibrate("0.05"), calibrate("0.2")
	policy := filepath.Join(folder, "policy.yaml")
	if err := os.WriteFile(policy, []byte(rare), 0o600); err != nil {
		t.Fatal(err)
	}
	d := serve(t, "--policy", policy)
	suggested := func() *pagestate.Suggested {
		t.Helper()
		var state pagestate.State
		_, text, _ := d.Get("/triage/state?model=ctg")
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			t.Fatal(err)
		}
		return state.Model.Suggested
	}
	if got := suggested(); got != nil || d.Metrics().Count("ckd_prevalence_suggested") != 0 {
		t.Errorf("before any input: %+v", got)
	}
	replay := func() {
		mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "ctg", "--quiet", "--passes", recording("ctg-mcdropout", ".passes.npy"))
	}
	replay()
	low, estimate, high := d.gauge("ckd_prevalence_suggested", "bound", "low"), d.gauge("ckd_prevalence_suggested", "bound", "estimate"), d.gauge("ckd_prevalence_suggested", "bound", "high")
	const truth = float64(critical) / inputs
	if math.Abs(estimate/truth-1) > 0.1 || !(0.05 < low && low < truth && truth < high) {
		t.Errorf("it suggests %v (%v to %v), expected about %v", estimate, low, high, truth)
	}
	eventually(t, "the page has it", func() bool {
		got := suggested()
		return got != nil && got.Value == estimate && got.Low == low && got.High == high && got.Inputs >= inputs
	})
	d.replacePolicy(policy, usual)
	eventually(t, "it begins anew with another policy", func() bool { return d.Metrics().Count("ckd_prevalence_suggested") == 0 })
	replay()
	if got := d.gauge("ckd_prevalence_suggested", "bound", "estimate"); math.Abs(got/truth-1) > 0.1 {
		t.Errorf("under another policy it suggests %v, expected about %v", got, truth)
	}
}
