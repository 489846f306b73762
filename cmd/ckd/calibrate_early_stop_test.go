package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// stopping returns the flags to learn a rule for a policy from the ensemble, whose five passes are
// quickly followed.
func stopping(base string, more ...string) []string {
	return append([]string{"calibrate", "early-stop", "--passes", recordings + "ctg-ensemble.passes.npy", "--policy", base, "--ordered"}, more...)
}

// stoppedBy calibrates, and returns the report and the policy.
func stoppedBy(t *testing.T, args []string) (*calibrate.Report, *policy.Policy) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	var found calibrate.Report
	if err := json.Unmarshal([]byte(runOK(t, append(args, "--format", "json", "--out", path)...)), &found); err != nil {
		t.Fatal(err)
	}
	return &found, readPolicy(t, path)
}

// basePolicy writes a policy with thresholds for the ensemble, and more fields.
func basePolicy(t *testing.T, more string) string {
	t.Helper()
	return writeFile(t, "base.yaml", `models:
  - name: heart
    version: "7"
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 2, expected: 5}
    gate: never
    primary: {score: c_crit_max, threshold: 0.03}
`+more)
}

func mentions(notes []string, fragment string) bool {
	return slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, fragment) })
}

// share converts a bounded share to the form that policies have.
func share(b calibrate.BoundedShare) policy.ReleasedShare {
	return policy.ReleasedShare{AtMost: b.AtMost, Deferred: b.Inputs, Released: b.Count}
}

// sixDigits rounds as the report does.
func sixDigits(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	return short
}

// TestEarlyStop checks that only the rule of a policy is new, that it is in force, and that the report
// describes what it does on the half that certifies, input by input.
func TestEarlyStop(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	calibrated := filepath.Join(t.TempDir(), "calibrated.yaml")
	runOK(t, calibrating("ensemble", "--coverage", "0.8", "--out", calibrated)...)
	first := readPolicy(t, calibrated)
	args := stopping(calibrated, "--labels", recordings+"ctg-ensemble.labels.npy", "--max-disagreement", "0.02")
	found, p := stoppedBy(t, args)
	rule, s := p.EarlyStop(), found.EarlyStop
	if rule == nil {
		t.Fatal("no rule in force")
	}
	if p.Hash != found.PolicyHash || p.Calibration.PolicyHash != p.HashWithoutLines() || p.EarlyStopping.PolicyHash != p.HashWithoutEarlyStop() {
		t.Errorf("hash %s, report %s, calibration %s, rule %s", p.Hash, found.PolicyHash, p.Calibration.PolicyHash, p.EarlyStopping.PolicyHash)
	}
	rest := func(p policy.Policy) string {
		calibration := *p.Calibration
		calibration.PolicyHash = ""
		p.EarlyStopping, p.Calibration, p.FewestPasses = nil, &calibration, 0
		return string(p.Marshal())
	}
	if diff := cmp.Diff(rest(*first), rest(*p)); diff != "" {
		t.Errorf("the policy was changed (-was +now):\n%s", diff)
	}
	if p.EarlyStopping.Order != policy.MembersOrder || p.EarlyStopping.Seed != 42 || p.EarlyStopping.Inputs != 1063 || p.EarlyStopping.Software != found.Software ||
		p.EarlyStopping.PassesSHA256 != found.PassesFile.SHA256 || p.EarlyStopping.PassesFile != "ctg-ensemble.passes.npy" {
		t.Errorf("%+v", p.EarlyStopping)
	}
	if !mentions(found.Notes, "the thresholds of the policy were calibrated on this recording") {
		t.Errorf("notes %q", found.Notes)
	}

	passes, labels := readPasses(t, "ctg-ensemble"), readTruth(t, "ctg-ensemble")
	sorted := evalRecording(passes)
	sorted.Labels = labels
	sorted.Sort(nil) // halves follow what inputs hold
	in, err := engine.NewFollower(p)
	if err != nil {
		t.Fatal(err)
	}
	critical := func(k int) bool { return slices.Contains(p.Critical, k) }
	add := func(inputs, count *int, counts bool) {
		if *inputs++; counts {
			*count++
		}
	}
	got := calibrate.EarlyStopRule{
		FirstAfter: rule.Fewest, LastAfter: rule.Last(), CriticalReleased: &calibrate.BoundedShare{},
		CriticalFNR: &calibrate.ExactShare{}, FullCriticalFNR: &calibrate.ExactShare{},
	}
	used := 0
	certifies := rand.New(rand.NewPCG(42, 0x4a1f)).Perm(2126)[1063:]
	for _, i := range certifies {
		in.Reset()
		settled, at, early := earlystop.Open, 5, policy.Decision{}
		class := 0
		for pass := range 5 {
			if err := in.Add(passes.Float32[passes.Offset(pass, i):][:3]); err != nil {
				t.Fatal(err)
			}
			if settled == earlystop.Open && pass < 4 {
				if settled = in.Settled(rule); settled != earlystop.Open {
					at = pass + 1
					early, class = in.Decide()
				}
			}
		}
		final, finalClass := in.Decide()
		if settled == earlystop.Open {
			early, class = final, finalClass
		} else {
			got.Settled++
			if (settled == earlystop.Defer) != (early.Action == policy.Defer) {
				t.Errorf("input %d: settled to %s where %d passes %s", i, settled, at, early.Action)
			}
		}
		used += at
		retained, isCritical := early.Action == policy.Retain, critical(labels[i])
		add(&got.Disagreements.Inputs, &got.Disagreements.Count,
			early.Action != final.Action || final.Action == policy.Retain && critical(class) != critical(finalClass))
		if final.Action == policy.Defer {
			add(&got.Released.Inputs, &got.Released.Count, retained)
		}
		if final.Action == policy.Defer && isCritical {
			add(&got.CriticalReleased.Inputs, &got.CriticalReleased.Count, retained)
		}
		if isCritical && retained {
			add(&got.CriticalFNR.Inputs, &got.CriticalFNR.Count, !critical(class))
		}
		if isCritical && final.Action == policy.Retain {
			add(&got.FullCriticalFNR.Inputs, &got.FullCriticalFNR.Count, !critical(finalClass))
		}
	}
	got.MeanPasses = sixDigits(float64(used) / 1063)
	r := s.Rule
	if d := cmp.Diff(&got, r, cmpopts.IgnoreFields(calibrate.EarlyStopRule{}, "Statement", "Saving", "Numbers"),
		cmpopts.IgnoreFields(calibrate.BoundedShare{}, "AtMost"), cmpopts.IgnoreFields(calibrate.ExactShare{}, "Share", "Interval")); d != "" {
		t.Errorf("-by the policy +in the report:\n%s", d)
	}
	if r.Numbers < 10 || r.Numbers > 60 || r.Numbers != rule.Form.Numbers() {
		t.Errorf("%d numbers, expected those of the policy, at most 60", r.Numbers)
	}
	if got.Settled < 300 || got.CriticalReleased.Inputs == 0 || got.CriticalFNR.Inputs == 0 {
		t.Errorf("%+v: nothing is tested", got)
	}
	if upper := binomial.Upper(r.Disagreements.Count, 1063, 0.9); r.Disagreements.AtMost != 0.02 || upper > 0.02 {
		t.Errorf("at most %v, of a bound of %v: expected what is certified, 0.02", r.Disagreements.AtMost, upper)
	}
	if upper := binomial.Upper(r.Released.Count, r.Released.Inputs, 0.9); r.Released.AtMost != 0.05 || upper > 0.05 {
		t.Errorf("released at most %v, of a bound of %v: expected what is certified, %v", r.Released.AtMost, upper, 0.05)
	}
	if cr := r.CriticalReleased; cr.AtMost <= binomial.Upper(cr.Count, cr.Inputs, 0.9) {
		t.Errorf("critical released %+v: expected a looser bound, since the rule was chosen among several", cr)
	}
	c := p.EarlyStopping.Certificate
	if c.Disagreement != 0.02 || c.Confidence != 0.9 || c.Inputs != 1063 || c.Disagreements != r.Disagreements.Count ||
		c.Released != share(r.Released) || *c.CriticalReleased != share(*r.CriticalReleased) || *p.EarlyStopping.HalvesDiffer != sixDigits(s.HalvesDiffer.Share) {
		t.Errorf("certificate %+v", c)
	}
	if s.HalvesDiffer.Share < 0.01 || s.HalvesDiffer.Inputs != 1063 {
		t.Errorf("halves differ %+v", s.HalvesDiffer)
	}
	// Repeating the command gives the same policy and counts as no further attempt. Another share is
	// one, wherever its policy is written.
	path := writeFile(t, "policy.yaml", found.PolicyText)
	if out := runOK(t, "check", path); !strings.Contains(out, "after") || strings.Contains(out, "settle.") {
		t.Errorf("check: %s", out)
	}
	_, stderr, code := runCommand(t, append(args, "--out", path)...)
	if again := readPolicy(t, path); code != exitOK || again.Hash != p.Hash || strings.Contains(stderr, "warning") {
		t.Errorf("exit code %d, hash %s, expected %s: %s", code, again.Hash, p.Hash, stderr)
	}
	_, stderr, _ = runCommand(t, stopping(path, "--max-disagreement", "0.05")...)
	wantFragment(t, stderr, "warning: a rule was certified on the same passes before (at most 0.02 decided otherwise and 0.05 released, at confidence 0.9, seed 42)")
}

// TestEarlyStopRefuses checks that a refusal exits with the code for nothing certified and writes no
// policy.
func TestEarlyStopRefuses(t *testing.T) {
	t.Parallel()
	few := writeFile(t, "few.yaml", "models: [{name: heart, classes: [normal, suspect, pathologic], critical: [suspect, pathologic], "+
		"passes: {fewest: 2, expected: 5}, gate: never, primary: {score: c_crit_max, threshold: 0.07}}]")
	for name, c := range map[string]struct {
		args     []string
		fewest   float64
		fragment string
	}{
		"too few inputs": {stopping(basePolicy(t, ""), "--max-disagreement", "0.002"), 1151,
			"1063 inputs are left to certify on, and at least 1151 are needed to show with 90% confidence that at most 0.2% are decided otherwise: about 2302"},
		"too few deferred": {stopping(few, "--max-disagreement", "0.02"), 115,
			"17 of the 1063 inputs left to certify on are deferred by all passes, and at least 46 are needed to show with 90% confidence that at most 5% of " +
				"them are retained instead: about 5753 inputs in the whole recording"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, "policy.yaml", "models: [{name: heart, classes: [a, b], gate: never, primary: {score: mi}}]")
			before, _ := os.ReadFile(path)
			out, stderr, code := runCommand(t, append(c.args, "--out", path, "--format", "json")...)
			if code != exitUncertified {
				t.Fatalf("exit code %d, expected %d: %s", code, exitUncertified, stderr)
			}
			wantFragment(t, stderr, "nothing certifies: no policy is written")
			report := readReport(t, out)
			if got := valueAt(t, report, "settle", "refusal", "fewest_inputs"); got != c.fewest {
				t.Errorf("%v inputs could certify, expected %v", got, c.fewest)
			}
			wantFragment(t, valueAt(t, report, "settle", "refusal", "reason").(string), c.fragment)
			if report["policy"] != "" || report["policy_hash"] != "" || report["chosen"] != nil || report["certificate"] != nil ||
				valueAt(t, report, "settle", "rule") != nil {
				t.Errorf("%v", report)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the older policy was changed")
			}
		})
	}
	out, _, _ := runCommand(t, stopping(basePolicy(t, ""), "--max-disagreement", "0.002", "--out", filepath.Join(t.TempDir(), "p.yaml"))...)
	wantFragment(t, out, "1063 inputs are left")
}

// TestEarlyStopErrors checks flags and policies that leave nothing to learn.
func TestEarlyStopErrors(t *testing.T) {
	t.Parallel()
	model := func(fields string) string {
		return " --policy " + writeFile(t, "p.yaml", "models: [{name: heart, classes: [normal, suspect, pathologic], "+
			"critical: [suspect, pathologic], "+fields+"}]")
	}
	const ensemble = "--ordered --passes " + recordings + "ctg-ensemble.passes.npy"
	base := ensemble + " --policy " + basePolicy(t, "")
	row := "--passes " + writeNpy(t, "<f8", []int{1, 2, 3}, []float64{9, 1, 1, 1, 9, 1})
	expectRefusals(t, "calibrate early-stop", []refusal{
		{base + " --max-disagreement 0", "--max-disagreement 0: expected a number from 0 to 1, not the ends", exitUsage},
		{base + " --max-released 1", "--max-released 1: expected a number from 0 to 1, not the ends", exitUsage},
		{base + " --confidence 1", "--confidence 1: expected", exitUsage},
		{ensemble, "missing flags: --policy=FILE", exitUsage},
		{ensemble + model("passes: {expected: 5}, gate: never, primary: {score: mi}"), "no input can stop early: the policy has no thresholds", exitFault},
		{ensemble + model("passes: {expected: 5}, gate: never, primary: {score: ova_mi, threshold: 1}"), "ova_mi, which cannot be followed", exitFault},
		{ensemble + model("gate: never, primary: {score: mi, threshold: 1}"), "passes.expected is not given", exitFault},
		{ensemble + model("passes: {expected: 30}, gate: never, primary: {score: mi, threshold: 1}"), "has 5 passes, but model heart decides with 30", exitFault},
		{strings.Replace(base, "--ordered", "", 1) + " --policy " + basePolicy(t, "    calibrated: {posterior: ensemble}\n"),
			"was calibrated on an ensemble", exitUsage},
		{row + model("kind: dirichlet, gate: always, fallback: {score: cbec, threshold: 1}"), "kind is dirichlet", exitFault},
	})
}
