package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/outcome/plan"
)

// TestOutcomesPlan calibrates a policy, and plans audits for it on another recording of the model.
func TestOutcomesPlan(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	calibration := runOK(t, calibrating("mcdropout", "--max-critical-fnr", "0.18", "--confidence", "0.9", "--out", path)...)
	lead, _, _ := strings.Cut(calibration, ":")
	wantFragments(t, strings.Join(strings.Fields(lead), " "), "at most 18%", "90%")
	args := []string{"outcomes", "plan", "--policy", path, "--passes", recordings + "ctg-lowrank.passes.npy", "--labels", recordings + "ctg-lowrank.labels.npy",
		"--inputs-per-day", "2000"}
	if screen := runOK(t, args...); !strings.Contains(strings.Join(strings.Fields(screen), " "), "(twice the line of 18.0%), that finds out after ") || strings.Count(screen, "\n") > 40 {
		t.Errorf("the screen is\n%s", screen)
	}
	table := runOK(t, append(args, "--full")...)
	for _, want := range []string{"Audit rates", "Until the alarm", "said to hold", "The line of the critical FNR is 18.0%", "10.0%"} {
		if !strings.Contains(table, want) {
			t.Errorf("expected %q in\n%s", want, table)
		}
	}
	var found plan.Plan
	if err := json.Unmarshal([]byte(runOK(t, append(args, "--format", "json")...)), &found); err != nil {
		t.Fatal(err)
	}
	if len(found.Rates) != len(plan.DefaultRates()) || *found.Line != 0.18 || found.InputsPerDay != 2000 || found.Rates[0].Width == nil {
		t.Errorf("%+v", found)
	}
}

func TestOutcomesPlanErrors(t *testing.T) {
	t.Parallel()
	passes := "--passes " + recordings + "ctg-lowrank.passes.npy" + " --labels " + recordings + "ctg-lowrank.labels.npy"
	expectRefusals(t, "outcomes plan", []refusal{
		{passes + " --inputs-per-day 9", "expected --policy", exitUsage},
		{passes + " --policy p.yaml --inputs-per-day 0", "--inputs-per-day 0: expected a number above 0", exitUsage},
	})
}
