package main

import (
	"encoding/json"
	"fmt"
	"math"
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
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// ensembleSettled returns the flags to learn an early-stopping rule for the ensemble, whose five
// passes are quickly followed.
func ensembleSettled(share string, more ...string) []string {
	return calibrating("ensemble", append([]string{"--settle", share, "--ordered"}, more...)...)
}

// keeping returns the flags to learn a rule for a policy that is kept.
func keeping(base, share string, more ...string) []string {
	return append([]string{"calibrate", "--passes", recordings + "ctg-ensemble.passes.npy", "--policy", base, "--settle", share,
		"--ordered"}, more...)
}

// settledBy calibrates, and returns the report and the policy.
func settledBy(t *testing.T, args []string) (*calibrate.Report, *policy.Policy) {
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

// TestSettleBesideAnObjective checks that the policy has a rule in force, and that the report
// describes what the rule does on the half that certifies, input by input.
func TestSettleBesideAnObjective(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	args := ensembleSettled("0.02", "--coverage", "0.8", "--posterior", "ensemble")
	found, p := settledBy(t, args)
	rule, s := p.EarlyStop(), found.EarlyStop
	if rule == nil {
		t.Fatal("no rule in force")
	}
	if p.Hash != found.PolicyHash || p.Calibration.PolicyHash != p.Hash || p.EarlyStopping.PolicyHash != p.HashWithoutEarlyStop() || p.Hash == p.EarlyStopping.PolicyHash {
		t.Errorf("hash %s, report %s, calibration %s, rule %s", p.Hash, found.PolicyHash, p.Calibration.PolicyHash, p.EarlyStopping.PolicyHash)
	}
	if p.EarlyStopping.Order != policy.MembersOrder || p.EarlyStopping.Seed != 42 || p.EarlyStopping.Inputs != 1063 || p.EarlyStopping.Software != found.Software ||
		p.EarlyStopping.PassesSHA256 != found.PassesFile.SHA256 || p.EarlyStopping.PassesFile != "ctg-ensemble.passes.npy" || p.Calibration.Recording.Inputs != 1063 {
		t.Errorf("%+v", p.EarlyStopping)
	}
	if !mentions(found.Notes, "ova_mi cannot be followed") || !mentions(found.Notes, "1063 inputs calibrated and learned when inputs stop early, and the other 1063 certified") {
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
	if upper := binomial.Upper(r.Released.Count, r.Released.Inputs, 0.9); r.Released.AtMost != calibrate.DefaultReleased || upper > calibrate.DefaultReleased {
		t.Errorf("released at most %v, of a bound of %v: expected what is certified, %v", r.Released.AtMost, upper, calibrate.DefaultReleased)
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
	path := writeFile(t, "policy.yaml", found.PolicyText)
	if out := runOK(t, "check", path); !strings.Contains(out, "after") || strings.Contains(out, "early_stopping.") {
		t.Errorf("check: %s", out)
	}
	// Repeating the command gives the same policy and counts as no further attempt.
	_, stderr, code := runCommand(t, append(args, "--out", path)...)
	if again := readPolicy(t, path); code != exitOK || again.Hash != p.Hash || strings.Contains(stderr, "warning") {
		t.Errorf("exit code %d, hash %s, expected %s: %s", code, again.Hash, p.Hash, stderr)
	}
	// Another seed is a further attempt.
	_, stderr, _ = runCommand(t, append(args, "--out", path, "--seed", "7")...)
	const warned = "warning: a rule was certified on the same passes before (settle 0.02, released 0.05, at confidence 0.9, seed 42)"
	wantFragment(t, stderr, warned)
	// Writing to another file does not hide the earlier attempt, which --policy itself records.
	other := filepath.Join(t.TempDir(), "other.yaml")
	_, stderr, _ = runCommand(t, append(keeping(writeFile(t, "settled.yaml", found.PolicyText), "0.05"), "--out", other)...)
	wantFragment(t, stderr, warned)
}

// TestSettleTable checks the table that people read.
func TestSettleTable(t *testing.T) {
	t.Parallel()
	out, stderr, code := runCommand(t, keeping(basePolicy(t, ""), "0.02")...)
	if code != exitOK {
		t.Fatal(stderr)
	}
	if set, err := policy.Parse(policy.File{Name: "stdout", Data: []byte(out)}); err != nil || set.All()[0].EarlyStop() == nil {
		t.Errorf("%v: %s", err, out)
	}
	wantFragments(t, stderr, "Kept: gate never", "With confidence 0.9, at most 0.02 of the inputs", "\n decided otherwise than by all passes ", " of 1,063 ",
		"\n two halves of the passes decide otherwise ")
	for _, none := range []string{"critical FNR", "Comparison", "Objective"} {
		if strings.Contains(stderr, none) {
			t.Errorf("without labels or objective: %q", none)
		}
	}
}

// TestSettleKeepsAPolicy checks that only the rule of an existing policy is replaced, and that no
// labels are needed.
func TestSettleKeepsAPolicy(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	_, first := settledBy(t, ensembleSettled("0.02", "--coverage", "0.8", "--posterior", "ensemble"))
	found, p := settledBy(t, keeping(writeFile(t, "first.yaml", string(first.Marshal())), "0.05", "--confidence", "0.95"))
	if p.EarlyStop() == nil || p.EarlyStopping.Certificate.Disagreement != 0.05 || p.EarlyStopping.Certificate.Confidence != 0.95 ||
		p.EarlyStopping.Certificate.CriticalReleased != nil || found.EarlyStop.Rule.CriticalFNR != nil {
		t.Errorf("%+v", p.EarlyStopping)
	}
	if p.Calibration.PolicyHash != p.Hash || p.HashWithoutEarlyStop() != first.HashWithoutEarlyStop() {
		t.Errorf("hash %s, without the rule %s, calibration %s", p.Hash, p.HashWithoutEarlyStop(), p.Calibration.PolicyHash)
	}
	text := string(first.Marshal())
	rest := func(p *policy.Policy) string {
		p.EarlyStopping, p.Calibration.PolicyHash = nil, ""
		return string(p.Marshal())
	}
	if got, want := rest(p), rest(first); got != want {
		t.Errorf("the policy was changed:\n%s\n%s", got, want)
	}
	if !mentions(found.Notes, "the thresholds of the policy were calibrated on this recording") {
		t.Errorf("notes %q", found.Notes)
	}

	// What was changed by hand stays known as changed.
	changed := strings.Replace(text, "policy_hash: ", "policy_hash: \""+strings.Repeat("0", 64)+"\" #", 1)
	_, p = settledBy(t, keeping(writeFile(t, "changed.yaml", changed), "0.05"))
	if p.Calibration.PolicyHash != strings.Repeat("0", 64) {
		t.Errorf("calibrated.policy_hash %s, expected that of another policy", p.Calibration.PolicyHash)
	}
}

// TestSettleWarns checks the warnings about a rule that is carried along but no longer in force,
// and about one that may retain most of what all passes would defer.
func TestSettleWarns(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	_, first := settledBy(t, ensembleSettled("0.02", "--coverage", "0.8", "--posterior", "ensemble"))
	args := calibrating("ensemble", "--coverage", "0.7", "--policy", writeFile(t, "first.yaml", string(first.Marshal())),
		"--out", filepath.Join(t.TempDir(), "policy.yaml"))
	_, stderr, code := runCommand(t, args...)
	if code != exitOK {
		t.Fatal(stderr)
	}
	wantFragment(t, stderr, "warning: calibrated.early_stopping.policy_hash: the policy was changed since its early-stopping rule was learned")

	few := writeFile(t, "few.yaml", "models: [{name: heart, classes: [normal, suspect, pathologic], critical: [suspect, pathologic], "+
		"passes: {fewest: 2, expected: 5}, gate: never, primary: {score: c_crit_max, threshold: 0.07}}]")
	_, stderr, code = runCommand(t, keeping(few, "0.03", "--settle-released", "0.6")...)
	if code != exitOK {
		t.Fatal(stderr)
	}
	wantFragment(t, stderr, "warning: calibrated.early_stopping.certificate.released.at_most: up to")
}

// TestSettleWhateverTheForm checks that the same passes in another layout and type, or as logits,
// give the same rule.
func TestSettleWhateverTheForm(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	passes := readPasses(t, "ctg-ensemble")
	base := basePolicy(t, "")
	_, want := settledBy(t, keeping(base, "0.02"))
	for _, dtype := range []string{"<f4", "<f8"} {
		args := keeping(base, "0.02", "--layout", "nsk")
		args[2] = writePasses(t, dtype, passes, record.NSK, passes.N)
		if _, got := settledBy(t, args); !slices.Equal(got.EarlyStop().Steps, want.EarlyStop().Steps) {
			t.Errorf("%s: another rule", dtype)
		}
	}
	var logits []float64
	for _, v := range passes.Float32 {
		logits = append(logits, math.Log(float64(v)+1e-30))
	}
	args := keeping(basePolicy(t, "    kind: logits\n"), "0.02")
	args[2] = writeNpy(t, "<f8", []int{passes.S, passes.N, passes.K}, logits)
	found, got := settledBy(t, args)
	// Logits are other numbers, so that their halves have other inputs.
	if m := got.EarlyStopping.MeanPasses; math.Abs(m-want.EarlyStopping.MeanPasses) > 1 || found.EarlyStop.Rule.Disagreements.Inputs != 1063 {
		t.Errorf("logits: %v passes on average, expected %v", m, want.EarlyStopping.MeanPasses)
	}
}

// TestSettleRisk checks that a certificate about misses is tested again with the rule in force, and
// that a warning says so if it is dropped.
func TestSettleRisk(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	certified := ensembleSettled("0.02", "--max-critical-fnr", "0.25", "--confidence", "0.9", "--settle-released", "0.3")
	found, p := settledBy(t, certified)
	c, fnr := p.Calibration.Certificate, found.EarlyStop.Rule.CriticalFNR
	if c == nil || c.Kind != policy.LearnThenTest || c.Target != 0.25 || c.Confidence != 0.9 || c.Cases != fnr.Inputs || c.Misses != fnr.Count ||
		c.PValue > 0.1 || !strings.Contains(c.Statement, "with the rule in force") || !found.EarlyStop.Risk.Kept || found.EarlyStop.Risk.Dropped != "" {
		t.Fatalf("certificate %+v, risk %+v, FNR %+v", c, found.EarlyStop.Risk, fnr)
	}
	if found.EarlyStop.Confidence != 0.9 || found.Certificate.Cases != c.Cases {
		t.Errorf("%+v", found.Certificate)
	}
	text := string(p.Marshal())
	first := writeFile(t, "first.yaml", text)

	// Other passes, of the same inputs: nothing but the hash of the file is another.
	passes := readPasses(t, "ctg-ensemble")
	other := writePasses(t, "<f8", passes, record.SNK, passes.N)
	labels := []string{"--labels", recordings + "ctg-ensemble.labels.npy"}
	fresh := func(base string) []string {
		args := keeping(base, "0.02", append(labels, "--settle-released", "0.3")...)
		args[2] = other
		return args
	}
	again, p2 := settledBy(t, fresh(first))
	if p2.Calibration.Certificate == nil || !again.EarlyStop.Risk.Kept {
		t.Errorf("risk %+v, certificate %+v", again.EarlyStop.Risk, p2.Calibration.Certificate)
	}
	out := filepath.Join(t.TempDir(), "out.yaml")
	for _, seed := range []string{"1", "2"} { // the second is a second attempt
		_, stderr, code := runCommand(t, append(fresh(first), "--seed", seed, "--out", out)...)
		if p := readPolicy(t, out); code != exitOK || (p.Calibration.Certificate == nil) != (seed == "2") || (p.Calibration.EarlierAttempt == "") != (seed == "1") {
			t.Errorf("seed %s: exit code %d: %+v: %s", seed, code, p.Calibration.Certificate, stderr)
		}
	}

	for name, c := range map[string]struct {
		args     []string
		fragment string
	}{
		"the same recording":  {keeping(first, "0.02", append(labels, "--settle-released", "0.3")...), "this very recording calibrated the policy"},
		"tested on it before": {fresh(writeFile(t, "tested.yaml", string(p2.Marshal()))), "this very recording calibrated the policy, or certified it with a rule"},
		"no labels":           {keeping(first, "0.02", "--settle-released", "0.3"), "without labels it cannot be tested"},
		"conformal":           {ensembleSettled("0.02", "--max-critical-miss", "0.05", "--on-average", "--settle-released", "0.3"), "conformal risk control bounds a mean"},
		"too many misses": {fresh(writeFile(t, "low.yaml", strings.Replace(text, "target: 0.25\n", "target: 0.01\n", 1))),
			"with the rule in force it does not hold"},
		"changed since": {fresh(writeFile(t, "changed.yaml", strings.Replace(text, "    gate:", "    top_classes: 2\n    gate:", 1))),
			"not told that the policy is still the one"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policy.yaml")
			out, stderr, code := runCommand(t, append(c.args, "--out", path, "--format", "json")...)
			if code != exitOK {
				t.Fatal(stderr)
			}
			wantFragment(t, stderr, "ckd: warning: the certificate of the policy, by ")
			wantFragment(t, stderr, c.fragment)
			var found calibrate.Report
			if err := json.Unmarshal([]byte(out), &found); err != nil {
				t.Fatal(err)
			}
			if !mentions(found.Notes, c.fragment) || !strings.Contains(found.EarlyStop.Risk.Dropped, c.fragment) || found.EarlyStop.Risk.Kept ||
				!strings.HasPrefix(found.Certificate.Void, "Dropped: ") {
				t.Errorf("risk %+v, certificate %+v, notes %q", found.EarlyStop.Risk, found.Certificate, found.Notes)
			}
			if p := readPolicy(t, path); p.Calibration.Certificate != nil || p.EarlyStop() == nil {
				t.Errorf("certificate %+v, rule %v", p.Calibration.Certificate, p.EarlyStop())
			}
		})
	}
}

// TestSettleRefuses checks that a refusal exits with the code for nothing certified and writes no
// policy.
func TestSettleRefuses(t *testing.T) {
	t.Parallel()
	with := func(threshold, passes string) string {
		return writeFile(t, "base.yaml", "models: [{name: heart, classes: [normal, suspect, pathologic], critical: [suspect, pathologic], passes: "+
			passes+", gate: never, primary: {score: c_crit_max, threshold: "+threshold+"}}]")
	}
	const usual = "{fewest: 2, expected: 5}"
	// Of each input the first four passes are nearly alike; in a fifth of the inputs the last pass
	// differs.
	const n = 300
	values := make([]float64, 0, 5*n*3)
	rng := rand.New(rand.NewPCG(1, 1))
	for pass := range 5 {
		for i := range n {
			suspect := 0.06 + 0.4*float64(i)/n + 0.04*(2*rng.Float64()-1)
			row := []float64{1 - suspect, suspect, 0}
			if pass == 4 && i%5 == 0 {
				row = []float64{0.25, 0.125, 0.625}
			}
			values = append(values, row...)
		}
	}
	two := []string{"calibrate", "--passes", writeNpy(t, "<f8", []int{2, 4, 2}, []float64{.9, .1, .8, .2, .3, .7, .6, .4, .7, .3, .9, .1, .2, .8, .5, .5}),
		"--labels", handLabels(t, 0, 0, 1, 1), "--critical", "1", "--name", "heart", "--coverage", "0.5", "--settle", "0.1"}
	surprising := keeping(with("0.05", usual), "0.1", "--settle-released", "0.1")
	surprising[2] = writeNpy(t, "<f8", []int{5, n, 3}, values)
	for name, c := range map[string]struct {
		args     []string
		fewest   float64
		fragment string
	}{
		"too few inputs": {keeping(with("0.05", usual), "0.002"), 1151,
			"1063 inputs are left to certify on, and at least 1151 are needed to show that at most 0.002 are decided otherwise with confidence 0.9: about 2302"},
		"beside an objective":             {ensembleSettled("0.002", "--coverage", "0.8"), 1151, "1063 inputs are left to certify on"},
		"nothing foretells the last pass": {surprising, 23, "no rule that stops any input early keeps to these shares"},
		"all retained":                    {keeping(with("9", usual), "0.02"), 115, "0 of the 1063 inputs left to certify on are deferred by all passes, and at least 46 are needed"},
		"too few deferred": {keeping(with("0.07", usual), "0.02"), 115,
			"17 of the 1063 inputs left to certify on are deferred by all passes, and at least 46 are needed to show that at most 0.05 of " +
				"them are retained instead with confidence 0.9: about 5753 inputs in the whole recording"},
		"all deferred":    {keeping(with("1e-300", usual), "0.02"), 115, "expected at least 10 of each"},
		"no pass to save": {two, 23, "passes.expected is 2, as passes.fewest is"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, "policy.yaml", "models: [{name: "+map[bool]string{true: "ctg-ensemble", false: "heart"}[name == "beside an objective"]+
				", classes: [a, b], gate: never, primary: {score: mi}}]")
			before, _ := os.ReadFile(path)
			out, stderr, code := runCommand(t, append(c.args, "--out", path, "--format", "json")...)
			if code != exitUncertified {
				t.Fatalf("exit code %d, expected %d: %s", code, exitUncertified, stderr)
			}
			wantFragment(t, stderr, "nothing certifies: no policy is written")
			report := readReport(t, out)
			if got := at(t, report, "settle", "refusal", "fewest_inputs"); got != c.fewest {
				t.Errorf("%v inputs could certify, expected %v", got, c.fewest)
			}
			wantFragment(t, at(t, report, "settle", "refusal", "reason").(string), c.fragment)
			if report["policy"] != "" || report["policy_hash"] != "" || report["chosen"] != nil || report["certificate"] != nil ||
				at(t, report, "settle", "rule") != nil {
				t.Errorf("%v", report)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the older policy was changed")
			}
		})
	}
	out, _, _ := runCommand(t, keeping(with("0.05", usual), "0.002", "--out", filepath.Join(t.TempDir(), "p.yaml"))...)
	wantFragment(t, out, "\n1063 inputs are left")
}

// TestSettleOddRecordings checks recordings with many classes, without critical classes, and with
// few inputs, and the digits recording.
func TestSettleOddRecordings(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	const s, n, k = 6, 120, 1000
	values := make([]float64, s*n*k)
	for pass := range s {
		for i := range n {
			row := values[(pass*n+i)*k:][:k]
			for j := range row {
				row[j] = 1. / 2 / k
			}
			row[i] += 0.5 - float64(pass)/1024
			row[(i+1)%k] += float64(pass) / 1024
			if i%2 == 0 { // some inputs waver
				row[i] -= 0.25
				row[(i+pass)%k] += 0.25
			}
		}
	}
	var names []string
	for j := range k {
		names = append(names, fmt.Sprintf("c%d", j))
	}
	many := writeFile(t, "many.yaml", "models: [{name: many, classes: ["+strings.Join(names, ", ")+
		"], passes: {fewest: 2, expected: 6}, gate: never, primary: {score: mi, threshold: 0.01}}]")
	found, p := settledBy(t, []string{"calibrate", "--passes", writeNpy(t, "<f4", []int{s, n, k}, values), "--policy", many, "--settle", "0.2", "--settle-released", "0.2"})
	if p.EarlyStop() == nil || p.EarlyStopping.Order != policy.AnyOrder || found.EarlyStop.Rule.Released.Inputs == 0 || found.EarlyStop.CertifiedOn != n/2 {
		t.Errorf("%+v", found.EarlyStop)
	}

	digits := writeFile(t, "digits.yaml", "models: [{name: digits, classes: [\"0\", \"1\", \"2\", \"3\", \"4\", \"5\", \"6\"], critical: [\"5\", \"6\"], "+
		"passes: {fewest: 2, expected: 50}, gate: never, scope: predicted-safe, primary: {score: mi, threshold: 0.1}}]")
	found, p = settledBy(t, []string{"calibrate", "--passes", recordings + "digits-id.passes.npy", "--labels",
		recordings + "digits-id.labels.npy", "--policy", digits, "--settle", "0.05", "--settle-released", "0.2"})
	if p.EarlyStop() == nil || found.EarlyStop.Rule.Saving < 2 || found.EarlyStop.Rule.CriticalFNR == nil || found.Critical == 0 {
		t.Errorf("%+v %+v", found.EarlyStop, found.EarlyStop.Rule)
	}
}

func TestSettleErrors(t *testing.T) {
	t.Parallel()
	model := func(fields string) string {
		return " --policy " + writeFile(t, "p.yaml", "models: [{name: heart, classes: [normal, suspect, pathologic], "+
			"critical: [suspect, pathologic], "+fields+"}]")
	}
	const ensemble = "--ordered --passes " + recordings + "ctg-ensemble.passes.npy"
	const settled = ensemble + " --settle 0.02"
	base := settled + " --policy " + basePolicy(t, "")
	labelled := strings.Join(calibrating("ensemble")[1:], " ")
	row := "--settle 0.1 --passes " + writeNpy(t, "<f8", []int{1, 2, 3}, []float64{9, 1, 1, 1, 9, 1})
	expectRefusals(t, "calibrate", []refusal{
		{ensemble + " --settle 0", "--settle 0: expected a number from 0 to 1, not the ends", exitUsage},
		{ensemble + " --settle 1", "--settle 1: expected a number from 0 to 1, not the ends", exitUsage},
		{base + " --settle-released 1", "--settle-released 1: expected a number from 0 to 1, not the ends", exitUsage},
		{labelled + " --settle-released 0.1 --coverage 0.8", "--settle-released needs --settle", exitUsage},
		{base + " --confidence 1", "--confidence 1: expected", exitUsage},
		{settled + " --coverage 0.8 --max-critical-miss 0.1", "exactly one objective", exitUsage},
		{labelled + " --coverage 0.8 --ordered", "--ordered needs --settle", exitUsage},
		{labelled + " --coverage 0.8 --settle 0.02 --posterior deep-ensemble", "expected --ordered", exitUsage},
		{settled, "--settle alone keeps a policy as it is, expected --policy", exitUsage},
		{base + " --coverage 0.8", "an objective without --labels", exitUsage},
		{base + " --scope predicted-safe", "--scope need an objective", exitUsage},
		{base + " --posterior ensemble", "--posterior, --reliability-threshold", exitUsage},
		{settled + model("passes: {expected: 5}, gate: never, primary: {score: mi}"), "no input can stop early: the policy has no thresholds", exitFault},
		{settled + model("passes: {expected: 5}, gate: never, primary: {score: ova_mi, threshold: 1}"), "ova_mi, which cannot be followed", exitFault},
		{settled + model("gate: never, primary: {score: mi, threshold: 1}"), "passes.expected is not given", exitFault},
		{settled + model("passes: {expected: 30}, gate: never, primary: {score: mi, threshold: 1}"), "has 5 passes, but model heart decides with 30", exitFault},
		{strings.Replace(settled, "--ordered", "", 1) + " --policy " + basePolicy(t, "    calibrated: {posterior: ensemble}\n"),
			"was calibrated on an ensemble", exitUsage},
		{row + " --labels " + handLabels(t, 0, 1) + " --critical 1 --kind dirichlet --coverage 0.5", "kind is dirichlet", exitFault},
		{row + model("kind: dirichlet, gate: always, fallback: {score: cbec, threshold: 1}"), "kind is dirichlet", exitFault},
	})
}
