package main

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/policy"
)

// TestCalibrateWritesAPolicy checks that the file of --out holds what the report says, and that the
// daemon's code decides by it accordingly.
func TestCalibrateWritesAPolicy(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"all", "predicted-safe"} {
		t.Run(scope, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policy.yaml")
			report := readReport(t, runOK(t, calibrating("mcdropout", "--reviews-per-1000", "200", "--scope", scope, "--name", "fetal-health", "--format", "json", "--out", path)...))
			p := readPolicy(t, path)
			if p.Hash != report["policy_hash"] || p.Name != "fetal-health" || string(p.Scope) != scope {
				t.Errorf("policy %s %s %s", p.Name, p.Scope, p.Hash)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != report["policy"] {
				t.Errorf("the report has another policy text (%v)", err)
			}
			if got, want := p.Primary.Threshold, valueAt(t, report, "chosen", "primary", "threshold"); got != want {
				t.Errorf("primary threshold %v, the report has %v", got, want)
			}
			c := p.Calibration
			if c == nil || c.Software != software() || c.Objective != "coverage 0.8" || c.Recording.Passes != 30 ||
				c.Recording.Inputs != 2126 || c.Recording.CriticalInputs != 471 || c.Certificate != nil ||
				c.Recording.PassesSHA256 != valueAt(t, report, "passes_file", "sha256") || c.Recording.PassesFile != "ctg-mcdropout.passes.npy" {
				t.Errorf("calibration %+v", c)
			}
			evaluated := readReport(t, runOK(t, labelled("mcdropout", "--policy", path, "--bootstrap", "0", "--format", "json")...))
			coverage := valueAt(t, evaluated, "policy", "coverage").(float64)
			// All inputs set the thresholds, and each side of the gate may retain one input too
			// many.
			if math.Abs(coverage-0.8) > 2./2126 {
				t.Errorf("the policy retains %v of the recording that it was calibrated on, expected 0.8", coverage)
			}
			wantFragments(t, strings.Join(strings.Fields(runOK(t, "check", path)), " "), "2,126 inputs (471 critical) of 30 passes", "coverage 0.8", p.Hash)
		})
	}
}

// TestCalibrateByCost checks that a ratio of costs is an objective: the policy has its threshold.
func TestCalibrateByCost(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	runOK(t, calibrating("mcdropout", "--cost-ratio", "50", "--scope", "predicted-safe", "--out", path)...)
	if p := readPolicy(t, path); p.Primary.Score != policy.RiskScore || p.Primary.Threshold != 0.02 || p.Calibration.Objective != "cost-ratio 50" {
		t.Errorf("primary %+v, calibration %+v", p.Primary, p.Calibration)
	}
}

// TestCalibrateWithoutOut checks that without --out the policy goes to standard output.
func TestCalibrateWithoutOut(t *testing.T) {
	t.Parallel()
	out, report, code := runCommand(t, calibrating("ensemble", "--coverage", "0.9")...)
	if code != exitOK {
		t.Fatal(report)
	}
	if name := outcometest.Policy(t, out).Name; name != "ctg-ensemble" {
		t.Errorf("model %s", name)
	}
	wantFragment(t, report, "this policy")
}

// TestCalibrateCertifies checks that calibrate certifies, and that a second attempt on the same
// data does not.
func TestCalibrateCertifies(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	certify := func(target string) string {
		return runOK(t, calibrating("ensemble", "--max-critical-fnr", target, "--confidence", "0.9", "--out", path)...)
	}
	wantFragment(t, certify("0.15"), "With 90% confidence, at most 15% of")
	first := readPolicy(t, path)
	c := first.Calibration.Certificate
	if c == nil || c.Kind != policy.LearnThenTest || c.Target != 0.15 || c.Confidence != 0.9 || c.Cases == 0 || c.PValue > 0.1 {
		t.Fatalf("certificate %+v", c)
	}
	certify("0.15") // repeating the command is no second attempt
	if again := readPolicy(t, path); again.Calibration.Certificate == nil || again.Hash != first.Hash {
		t.Error("the same command found something else")
	}
	for _, again := range []string{"0.2", "0.14", "0.15"} { // void, however often one tries
		wantFragment(t, certify(again), "Void: ")
		if second := readPolicy(t, path); second.Calibration.Certificate != nil || second.Calibration.EarlierAttempt == "" {
			t.Errorf("a further attempt certifies: %+v", second.Calibration)
		}
	}
	// Nor does another attempt whose policy goes elsewhere: the policy that it completes tells.
	other := filepath.Join(t.TempDir(), "other.yaml")
	wantFragment(t, runOK(t, calibrating("ensemble", "--policy", writeFile(t, "first.yaml", string(first.Marshal())), "--max-critical-fnr", "0.2",
		"--confidence", "0.9", "--out", other)...), "Void: ")
	// If nothing certifies, the policy that is there already stays.
	if _, _, code := runCommand(t, calibrating("ensemble", "--max-critical-fnr", "0.001", "--out", other)...); code != exitUncertified {
		t.Errorf("exit code %d", code)
	}
}

// TestCalibrateRefuses checks that a refusal has its own exit code and leaves an older policy as it
// is.
func TestCalibrateRefuses(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "policy.yaml", "models: [{name: ctg-lowrank, classes: [a, b], gate: never, primary: {score: mi}}]")
	before, _ := os.ReadFile(path)
	for _, flags := range [][]string{
		{"--max-critical-fnr", "0.01", "--confidence", "0.99"},
		{"--max-critical-miss", "0.001"},
	} {
		out, stderr, code := runCommand(t, calibrating("lowrank", append(flags, "--out", path, "--format", "json")...)...)
		if code != exitUncertified {
			t.Errorf("%v: exit code %d, expected %d: %s", flags, code, exitUncertified, stderr)
		}
		report := readReport(t, out)
		share := valueAt(t, report, "refusal", "misses").(float64) / valueAt(t, report, "refusal", "cases").(float64)
		smallest := valueAt(t, report, "refusal", "smallest_cases").(float64)
		if share < 0.001 && smallest < 400 || share > 0.01 && smallest != 0 { // ln 0.01 / ln 0.99 = 458
			t.Errorf("%v: %v", flags, report["refusal"])
		}
		if report["chosen"] != nil || report["policy"] != "" || valueAt(t, report, "refusal", "reason") == "" {
			t.Errorf("%v: %v", flags, report)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%v: the older policy was changed", flags)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestCalibrateCompletesAPolicy keeps what calibration does not choose.
func TestCalibrateCompletesAPolicy(t *testing.T) {
	t.Parallel()
	base := writeFile(t, "base.yaml", `models:
  - name: heart
    version: "7"
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    variance: population
    passes: {fewest: 10}
    reliability_threshold: 0.5
    pair_weights: [{safe: normal, critical: pathologic, weight: 3}]
`)
	out := runOK(t, "calibrate", "--passes", recordings+"ctg-lowrank.passes.npy", "--labels",
		recordings+"ctg-lowrank.labels.npy", "--policy", base, "--coverage", "0.8")
	p := outcometest.Policy(t, out)
	if p.Name != "heart" || p.Version != "7" || p.Variance != policy.Population || p.FewestPasses != 30 || p.ExpectedPasses != 30 ||
		p.ReliabilityThreshold != 0.5 || len(p.PairWeights) != 1 || p.Saturated != policy.HandleDefer {
		t.Errorf("%s", out)
	}
}

func TestCalibrateErrors(t *testing.T) {
	t.Parallel()
	passes := writeNpy(t, "<f8", []int{2, 4, 2}, []float64{.9, .1, .8, .2, .3, .7, .6, .4, .7, .3, .9, .1, .2, .8, .5, .5})
	several := writeFile(t, "several.yaml", "models: [{name: a, classes: [x, y], gate: never, primary: {score: mi}}, "+
		"{name: b, classes: [x, y], gate: never, primary: {score: mi}}]")
	tooFew := writeFile(t, "p.yaml", "models: [{name: a, classes: [x, y], critical: [y], passes: {fewest: 9}}]")
	labels := handLabels(t, 0, 0, 1, 1)
	unlabelled := "--passes " + passes + " --coverage 0.5 --labels "
	hand := unlabelled + labels
	lowrank := strings.Join(calibrating("lowrank")[1:], " ")
	expectRefusals(t, "calibrate", []refusal{
		{lowrank, "exactly one objective", exitUsage},
		{lowrank + " --coverage 0.8 --max-critical-miss 0.1", "exactly one objective", exitUsage},
		{lowrank + " --coverage 1.2", "--coverage 1.2: expected a number from 0 to 1", exitUsage},
		{lowrank + " --reviews-per-1000 0.2", "did you mean 200?", exitUsage},
		{lowrank + " --reviews-per-1000 1000", "a coverage of 0 defers everything", exitUsage},
		{lowrank + " --cost-ratio 50", "expected --critical-calls acted-on", exitUsage},
		{lowrank + " --reviews-per-1000 100 --critical-calls reviewed", "called critical, expected a budget above that", exitFault},
		{lowrank + " --max-critical-miss 0", "--max-critical-miss 0: expected a number from 0 to 1, not the ends", exitUsage},
		{lowrank + " --max-critical-miss 0.1 --max-critical-miss 0.2", "given twice", exitUsage},
		{lowrank + " --max-critical-miss nobody=0.1", "no such class", exitFault},
		{lowrank + " --coverage 0.8 --groups " + handLabels(t, make([]int64, 2126)...), "all 2126 inputs are of one group, expected at least 2", exitFault},
		{lowrank + " --coverage 0.8 --confidence 0.9", "--confidence needs --max-critical-miss", exitUsage},
		{hand + " --name x --policy " + several, "--name x is not in", exitUsage},
		{hand + " --policy " + several, "has 2 models, expected --name with one of: a, b", exitUsage},
		{hand, "expected --critical", exitUsage},
		{"--critical 1 --passes " + passes + " --coverage 0.5", "missing flags: --labels=FILE", exitUsage},
		{unlabelled + handLabels(t, 0, 0, 0, 0) + " --critical 1", "no input has a critical class", exitFault},
		{unlabelled + handLabels(t, 0, 1, 1) + " --critical 1", "3 labels, expected 4", exitFault},
		{unlabelled + handLabels(t, 0, 0, 1, 2) + " --critical 1", "label 3 is 2, expected 0 to 1", exitFault},
		{hand + " --critical 1 --name c --out " + several, "holds the policy of model a", exitUsage},
		{hand + " --critical 1 --out " + writeFile(t, "notes.txt", "my notes"), "is there and no policy", exitUsage},
		{hand + " --critical 1 --out " + labels, "is what is read", exitUsage},
		{hand + " --policy " + tooFew, "2 passes, but the policy accepts no fewer than 9", exitFault},
	})
}

func TestNameFrom(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/a/fetal-health.passes.npy": "fetal-health",
		"mc predictions (1).npy":     "mc-predictions-1",
		"Ä.npy":                      "model",
		"x.npz:passes":               "x",
	} {
		if got := nameFrom(path); got != want {
			t.Errorf("%s: %s, expected %s", path, got, want)
		}
	}
}

// TestCalibrateBounds asks for bounds on classes, by groups, of passes whose labels tell which axis is
// the inputs.
func TestCalibrateBounds(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	groups := make([]int64, 2126)
	for i := range groups {
		groups[i] = int64(i / 2)
	}
	patients := handLabels(t, groups...)
	out, stderr, code := runCommand(t, "calibrate", "--passes", writePasses(t, "<f4", readPasses(t, "ctg-ensemble"), record.NSK, 2126),
		"--labels", recordings+"ctg-ensemble.labels.npy", "--classes", "normal,suspect,pathologic", "--critical", "suspect,pathologic",
		"--confidence", "0.9", "--format", "json", "--max-critical-miss", "0.15", "--max-critical-miss", "pathologic=0.12",
		"--max-critical-fnr", "suspect=0.4", "--groups", patients)
	if code != exitOK {
		t.Fatalf("%d: %s", code, stderr)
	}
	wantFragment(t, stderr, "read as 5 passes of 2126 inputs over 3 classes (float32, layout nsk)\n")
	report := readReport(t, out)
	if report["objective"] != "max-critical-miss 0.15, max-critical-miss pathologic=0.12, max-critical-fnr suspect=0.4 at confidence 0.9" {
		t.Errorf("objective %v", report["objective"])
	}
	c := valueAt(t, report, "certificate").(map[string]any)
	if c["bounds"] != "critical-miss-rate" || c["groups"].(float64) < 100 || len(c["further"].([]any)) != 2 || c["void"] != nil {
		t.Errorf("certificate %v", c)
	}
	if strings.Contains(c["statement"].(string), "if inputs are independent") || valueAt(t, report, "groups_file", "name") != patients {
		t.Errorf("statement %v", c["statement"])
	}
}

// TestSquareRecording checks that of two axes as long as the labels the first is taken for passes, and
// that this is said.
func TestSquareRecording(t *testing.T) {
	t.Parallel()
	square := writeNpy(t, "<f8", []int{4, 4, 2}, slices.Concat(slices.Repeat([]float64{.9, .1}, 8), slices.Repeat([]float64{.2, .8}, 8)))
	_, stderr, _ := runCommand(t, "calibrate", "--passes", square, "--labels", handLabels(t, 0, 0, 1, 1), "--critical", "1", "--coverage", "0.5")
	wantFragment(t, stderr, "read as 4 passes of 4 inputs over 2 classes (float64, layout snk); both axes are as long, and [passes, inputs, classes] is assumed")
}

// TestCalibrateFlags counts the flags of each command that makes policies.
func TestCalibrateFlags(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"calibrate", "calibrate early-stop", "calibrate outcomes"} {
		help := runOK(t, append(strings.Fields(command), "--help")...)
		flags := regexp.MustCompile(`(?m)^ +(-[a-z], )?--[a-z]`).FindAllString(help, -1)
		if len(flags) > 22 || !strings.Contains(help, "--passes=") && !strings.Contains(help, "--ledger=") {
			t.Errorf("ckd %s has %d flags, expected at most 22:\n%s", command, len(flags), help)
		}
	}
}

// TestCalibrateListsLabelsToReread expects missed inputs by their place in the file, those of least risk
// first. Nobody had found the mislabelled inputs that halved a coverage.
func TestCalibrateListsLabelsToReread(t *testing.T) {
	t.Parallel()
	passes, truth := readPasses(t, recordings+"ctg-ensemble.passes.npy"), readTruth(t, "ctg-ensemble")
	classes := []string{"normal", "suspect", "pathologic"}
	report := readReport(t, runOK(t, calibrating("ensemble", "--coverage", "0.8", "--format", "json")...))
	list := valueAt(t, report, "reread").([]any)
	if float64(len(list)) != valueAt(t, report, "missed") {
		t.Fatalf("%d inputs, expected the %v missed", len(list), report["missed"])
	}
	before := 0.0
	for _, one := range list {
		i := int(valueAt(t, one, "input").(float64))
		mean := make([]float64, passes.K)
		for s := range passes.S {
			for k, v := range passes.Row(nil, s, i) {
				mean[k] += v
			}
		}
		risk := valueAt(t, one, "risk").(float64)
		if label := classes[truth[i]]; valueAt(t, one, "label") != label || label == "normal" || valueAt(t, one, "predicted") != "normal" ||
			mean[0] != slices.Max(mean) || risk < before {
			t.Errorf("%v of label %s, mean %v, after a risk of %v", one, label, mean, before)
		}
		before = risk
	}
}
