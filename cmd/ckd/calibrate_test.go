package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/policy"
)

// calibrating are the flags to calibrate on a recording of the fetal heart
// classifiers.
func calibrating(name string, more ...string) []string {
	args := labelled(name, more...)
	args[0] = "calibrate"
	return args
}

func readPolicy(t *testing.T, path string) *policy.Policy {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Parse(policy.File{Name: path, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return set.All()[0]
}

// TestCalibrateWritesAPolicy: what --out holds is what the report tells, and the
// daemon's code decides by it as it says.
func TestCalibrateWritesAPolicy(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"all", "predicted-safe"} {
		t.Run(scope, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policy.yaml")
			report := readReport(t, runOK(t, calibrating("mcdropout", "--reviews-per-1000", "200", "--scope", scope, "--posterior",
				"mc-dropout", "--name", "fetal-health", "--format", "json", "--out", path)...))
			p := readPolicy(t, path)
			if p.Hash != report["policy_hash"] || p.Name != "fetal-health" || string(p.Scope) != scope {
				t.Errorf("policy %s %s %s", p.Name, p.Scope, p.Hash)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != report["policy"] {
				t.Errorf("the report has another policy text (%v)", err)
			}
			if got, want := p.Primary.Threshold, at(t, report, "chosen", "primary", "threshold"); got != want {
				t.Errorf("primary threshold %v, the report has %v", got, want)
			}
			c := p.Calibration
			if c == nil || c.Posterior != "mc-dropout" || c.Objective != "coverage 0.8" || c.Recording.Passes != 30 ||
				c.Recording.Inputs != 2126 || c.Recording.CriticalInputs != 471 || c.Certificate != nil ||
				c.Recording.PassesSHA256 != at(t, report, "passes_file", "sha256") || c.Recording.PassesFile != "ctg-mcdropout.passes.npy" {
				t.Errorf("calibration %+v", c)
			}
			evaluated := readReport(t, runOK(t, labelled("mcdropout", "--policy", path, "--bootstrap", "0", "--format", "json")...))
			coverage := at(t, evaluated, "policy", "coverage").(float64)
			// All inputs set the thresholds: each side of the gate retains one more at most.
			if math.Abs(coverage-0.8) > 2./2126 {
				t.Errorf("the policy retains %v of the recording that it was calibrated on, expected 0.8", coverage)
			}
			if out := runOK(t, "check", path); !strings.Contains(out, "calibrated by") || strings.Contains(out, "warning") {
				t.Errorf("check: %s", out)
			}
		})
	}
}

// TestCalibrateWithoutOut: the policy is the standard output, to be redirected.
func TestCalibrateWithoutOut(t *testing.T) {
	t.Parallel()
	out, report, code := runCommand(t, calibrating("ensemble", "--coverage", "0.9")...)
	if code != exitOK {
		t.Fatal(report)
	}
	set, err := policy.Parse(policy.File{Name: "stdout", Data: []byte(out)})
	if err != nil {
		t.Fatal(err)
	}
	if name := set.All()[0].Name; name != "ctg-ensemble" {
		t.Errorf("model %s", name)
	}
	wantFragment(t, report, "* calibrated")
	wantFragment(t, report, "calibration.posterior: not given")
}

// TestCalibrateCertifies, and a second attempt on the same data does not.
func TestCalibrateCertifies(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	certify := func(target string) string {
		return runOK(t, calibrating("ensemble", "--max-critical-fnr", target, "--confidence", "0.9", "--out", path)...)
	}
	wantFragment(t, certify("0.15"), "With confidence 0.9, at most 0.15 of the critical inputs")
	first := readPolicy(t, path)
	c := first.Calibration.Certificate
	if c == nil || c.Kind != policy.LearnThenTest || c.Target != 0.15 || c.Confidence != 0.9 || c.Cases == 0 || c.PValue > 0.1 {
		t.Fatalf("certificate %+v", c)
	}
	certify("0.15") // the same again is no second attempt
	if again := readPolicy(t, path); again.Calibration.Certificate == nil || again.Hash != first.Hash {
		t.Error("the same command found something else")
	}
	for _, again := range []string{"0.2", "0.14", "0.15"} { // however often one tries
		wantFragment(t, certify(again), "Void: ")
		if second := readPolicy(t, path); second.Calibration.Certificate != nil || second.Calibration.EarlierAttempt == "" {
			t.Errorf("a further attempt certifies: %+v", second.Calibration)
		}
	}
	// By another hypothesis, which objective, scope and seed do not tell.
	other := filepath.Join(t.TempDir(), "policy.yaml")
	for i, reliability := range []string{"0.3", "0.5"} {
		out := runOK(t, calibrating("mcdropout", "--max-critical-fnr", "0.15", "--confidence", "0.9", "--out", other,
			"--reliability-threshold", reliability)...)
		if void := strings.Contains(out, "Void: "); void != (i == 1) {
			t.Errorf("reliability threshold %s: void %v", reliability, void)
		}
		if p := readPolicy(t, other); fmt.Sprint(p.ReliabilityThreshold) != reliability {
			t.Errorf("the policy has reliability threshold %v, expected %s", p.ReliabilityThreshold, reliability)
		}
	}
	// Nothing certifies where a certificate was: that is kept.
	if _, _, code := runCommand(t, calibrating("mcdropout", "--max-critical-fnr", "0.01", "--out", other)...); code != exitUncertified {
		t.Errorf("exit code %d", code)
	}

	conformal := filepath.Join(t.TempDir(), "policy.yaml")
	runOK(t, calibrating("ensemble", "--max-critical-miss", "0.02", "--out", conformal)...)
	if c := readPolicy(t, conformal).Calibration.Certificate; c == nil || c.Kind != policy.ConformalRiskControl ||
		float64(c.Misses+1)/float64(c.Cases+1) > 0.02 {
		t.Errorf("certificate %+v", c)
	}
}

// TestCalibrateRefuses: with an exit code of its own, and an older policy stays.
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
		share := at(t, report, "refusal", "misses").(float64) / at(t, report, "refusal", "cases").(float64)
		smallest := at(t, report, "refusal", "smallest_cases").(float64)
		if share < 0.001 && smallest < 400 || share > 0.01 && smallest != 0 { // ln 0.01 / ln 0.99 = 458
			t.Errorf("%v: %v", flags, report["refusal"])
		}
		if report["chosen"] != nil || report["policy"] != "" || at(t, report, "refusal", "reason") == "" {
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
	set, err := policy.Parse(policy.File{Name: "stdout", Data: []byte(out)})
	if err != nil {
		t.Fatal(err)
	}
	p := set.All()[0]
	if p.Name != "heart" || p.Version != "7" || p.Variance != policy.Population || p.FewestPasses != 10 || p.ExpectedPasses != 30 ||
		p.ReliabilityThreshold != 0.5 || len(p.PairWeights) != 1 || p.Saturated != policy.HandleDefer {
		t.Errorf("%s", out)
	}
}

func TestCalibrateErrors(t *testing.T) {
	t.Parallel()
	passes := writeNpy(t, "<f8", []int{2, 4, 2}, []float64{.9, .1, .8, .2, .3, .7, .6, .4, .7, .3, .9, .1, .2, .8, .5, .5})
	here := func(labels string, more ...string) []string {
		return append([]string{"calibrate", "--passes", passes, "--labels", labels, "--coverage", "0.5"}, more...)
	}
	two := []string{"--critical", "1"}
	several := writeFile(t, "several.yaml", "models: [{name: a, classes: [x, y], gate: never, primary: {score: mi}}, "+
		"{name: b, classes: [x, y], gate: never, primary: {score: mi}}]")
	labels := handLabels(t, 0, 0, 1, 1)
	for name, c := range map[string]struct {
		args     []string
		code     int
		fragment string
	}{
		"no objective":       {calibrating("lowrank"), exitUsage, "exactly one objective"},
		"two objectives":     {calibrating("lowrank", "--coverage", "0.8", "--max-critical-miss", "0.1"), exitUsage, "exactly one objective"},
		"coverage":           {calibrating("lowrank", "--coverage", "1.2"), exitUsage, "--coverage 1.2: expected a number from 0 to 1"},
		"coverage 0":         {calibrating("lowrank", "--coverage", "0"), exitUsage, "a coverage of 0 defers everything"},
		"reviews":            {calibrating("lowrank", "--reviews-per-1000", "1001"), exitUsage, "--reviews-per-1000 1001: expected a number from 0 to 1000"},
		"miss":               {calibrating("lowrank", "--max-critical-miss", "0"), exitUsage, "--max-critical-miss 0: expected a number from 0 to 1, not the ends"},
		"fnr":                {calibrating("lowrank", "--max-critical-fnr", "NaN"), exitUsage, "--max-critical-fnr NaN"},
		"confidence":         {calibrating("lowrank", "--max-critical-fnr", "0.1", "--confidence", "1"), exitUsage, "--confidence 1: expected"},
		"confidence of none": {calibrating("lowrank", "--coverage", "0.8", "--confidence", "0.9"), exitUsage, "--confidence is of --max-critical-fnr"},
		"posterior":          {calibrating("lowrank", "--coverage", "0.8", "--posterior", "mc dropout"), exitUsage, "--posterior \"mc dropout\""},
		"name and policy":    {here(labels, "--policy", several, "--name", "x"), exitUsage, "--name beside --policy"},
		"no critical":        {here(labels), exitUsage, "expected --critical"},
		"no critical input":  {here(handLabels(t, 0, 0, 0, 0), two...), exitFault, "no input has a critical class"},
		"labels too few":     {here(handLabels(t, 0, 1), two...), exitFault, "2 labels, expected 4"},
		"label out of range": {here(handLabels(t, 0, 0, 1, 2), two...), exitFault, "label 3 is 2, expected 0 to 1"},
		"other models there": {here(labels, "--critical", "1", "--name", "c", "--out", several), exitUsage, "holds the policy of model a"},
		"no policy there":    {here(labels, "--critical", "1", "--out", writeFile(t, "notes.txt", "my notes")), exitUsage, "is there and no policy"},
		"out is labels":      {here(labels, "--critical", "1", "--out", labels), exitUsage, "is what is read"},
		"too few passes": {here(labels, "--policy", writeFile(t, "p.yaml",
			"models: [{name: a, classes: [x, y], critical: [y], passes: {fewest: 9}}]")), exitFault, "2 passes, but the policy accepts no fewer than 9"},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, code := runCommand(t, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, expected %d", code, c.code)
			}
			wantFragment(t, stderr, c.fragment)
		})
	}
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

func TestDocsNameFlagsAndFieldsOfCalibrate(t *testing.T) {
	t.Parallel()
	section := docsSection(t, "../../docs/cli.md", "## ckd calibrate")
	parser, err := newParser(&cmdContext{})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Children {
		if command.Name != "calibrate" {
			continue
		}
		for _, flag := range command.Flags {
			wantFragment(t, section, "--"+flag.Name)
		}
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| ").FindAllStringSubmatch(docsSection(t,
		"../../docs/calibrate.md", "## The JSON"), -1) {
		told[m[1]] = true
	}
	for _, path := range fieldsOf(reflect.TypeFor[calibration](), "") {
		if !told[path] {
			t.Errorf("docs/calibrate.md: nothing on %s", path)
		}
		delete(told, path)
	}
	if len(told) > 0 {
		t.Errorf("docs/calibrate.md tells of %v, which is no field", told)
	}
	if _, err := json.Marshal(calibration{}); err != nil {
		t.Error(err)
	}
}
