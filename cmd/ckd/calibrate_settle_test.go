package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/follow"
)

// ensembleSettled are flags to learn when inputs of the ensemble are settled. Its five
// passes are quickly followed.
func ensembleSettled(share string, more ...string) []string {
	return calibrating("ensemble", append([]string{"--settle", share, "--ordered"}, more...)...)
}

// keeping are flags to do so for a policy that is kept.
func keeping(base, share string, more ...string) []string {
	return append([]string{"calibrate", "--passes", recordings + "ctg-ensemble.passes.npy", "--policy", base, "--settle", share,
		"--ordered"}, more...)
}

// settledBy flags: the report, and the policy that it is of.
func settledBy(t *testing.T, args []string) (*calibration, *policy.Policy) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	var found calibration
	if err := json.Unmarshal([]byte(runOK(t, append(args, "--format", "json", "--out", path)...)), &found); err != nil {
		t.Fatal(err)
	}
	return &found, readPolicy(t, path)
}

// basePolicy is one with thresholds for the ensemble, and more fields.
func basePolicy(t *testing.T, more string) string {
	t.Helper()
	return writeFile(t, "base.yaml", `models:
  - name: heart
    version: "7"
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 2, expected: 5}
    gate: never
    primary: {score: c_crit_max, threshold: 0.05}
`+more)
}

func mentions(notes []string, fragment string) bool {
	return slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, fragment) })
}

// TestSettleBesideAnObjective: the policy has a rule that is in force, and what the
// report says of it is what it does on the half that certifies, input by input.
func TestSettleBesideAnObjective(t *testing.T) {
	t.Parallel()
	args := ensembleSettled("0.02", "--coverage", "0.8", "--posterior", "ensemble")
	found, p := settledBy(t, args)
	rule, s := p.SettleRule(), found.Settle
	if rule == nil {
		t.Fatal("no rule in force")
	}
	if p.Hash != found.PolicyHash || p.Calibration.PolicyHash != p.Hash || p.Settle.PolicyHash != p.HashWithoutSettle() || p.Hash == p.Settle.PolicyHash {
		t.Errorf("hash %s, report %s, calibration %s, rule %s", p.Hash, found.PolicyHash, p.Calibration.PolicyHash, p.Settle.PolicyHash)
	}
	if p.Settle.Order != policy.MembersOrder || p.Settle.Seed != 42 || p.Settle.Inputs != 1063 || p.Settle.Software != found.Software ||
		p.Settle.PassesSHA256 != found.PassesFile.SHA256 || p.Settle.PassesFile != "ctg-ensemble.passes.npy" || p.Calibration.Recording.Inputs != 1063 {
		t.Errorf("%+v", p.Settle)
	}
	if !mentions(found.Notes, "ova_mi cannot be followed") || !mentions(found.Notes, "1063 inputs calibrated and learned when inputs are settled, and the other 1063 certified") {
		t.Errorf("notes %q", found.Notes)
	}

	passes, err := record.ReadPasses(recordings+"ctg-ensemble.passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	labels, err := record.ReadLabels(recordings + "ctg-ensemble.labels.npy")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := follow.NewPlan(p)
	if err != nil {
		t.Fatal(err)
	}
	in := plan.NewInputs(1)
	critical := func(k int) bool { return slices.Contains(p.Critical, k) }
	var got settleRule
	var fnr, full exactShare
	var cr boundedShare
	used := 0
	_, certifies := halves(2126, 42)
	for _, i := range certifies {
		in.Reset(0)
		settled, at, early := settle.Open, 5, policy.Decision{}
		class := 0
		for pass := range 5 {
			if err := in.Add(0, passes.Float32[passes.Offset(pass, i):][:3]); err != nil {
				t.Fatal(err)
			}
			if settled == settle.Open && pass < 4 {
				if settled = in.Settled(0, rule); settled != settle.Open {
					at = pass + 1
					early, class = in.Decide(0)
				}
			}
		}
		final, finalClass := in.Decide(0)
		if settled == settle.Open {
			early, class = final, finalClass
		} else {
			got.Settled++
			if (settled == settle.Defer) != (early.Action == policy.Defer) {
				t.Errorf("input %d: settled to %s where %d passes %s", i, settled, at, early.Action)
			}
		}
		used += at
		isCritical := critical(labels[i])
		got.Disagreements.Inputs++
		if early.Action != final.Action || final.Action == policy.Retain && critical(class) != critical(finalClass) {
			got.Disagreements.Count++
		}
		if final.Action == policy.Defer {
			got.Released.Inputs++
			cr.Inputs += index(isCritical)
			if early.Action == policy.Retain {
				got.Released.Count++
				cr.Count += index(isCritical)
			}
		}
		if isCritical && early.Action == policy.Retain {
			fnr.Inputs++
			fnr.Count += index(!critical(class))
		}
		if isCritical && final.Action == policy.Retain {
			full.Inputs++
			full.Count += index(!critical(finalClass))
		}
	}
	r := s.Rule
	for what, c := range map[string]struct{ got, want any }{
		"settled":           {got.Settled, r.Settled},
		"disagreements":     {[]int{got.Disagreements.Inputs, got.Disagreements.Count}, []int{r.Disagreements.Inputs, r.Disagreements.Count}},
		"released":          {[]int{got.Released.Inputs, got.Released.Count}, []int{r.Released.Inputs, r.Released.Count}},
		"critical released": {[]int{cr.Inputs, cr.Count}, []int{r.CriticalReleased.Inputs, r.CriticalReleased.Count}},
		"critical FNR":      {[]int{fnr.Inputs, fnr.Count}, []int{r.CriticalFNR.Inputs, r.CriticalFNR.Count}},
		"full critical FNR": {[]int{full.Inputs, full.Count}, []int{r.FullCriticalFNR.Inputs, r.FullCriticalFNR.Count}},
		"mean passes":       {sixDigits(float64(used) / 1063), r.MeanPasses},
		"asks after":        {[]int{rule.Fewest, rule.Last(), 5}, []int{r.FirstAfter, r.LastAfter, s.Passes}},
	} {
		if fmt.Sprint(c.got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v by the policy, %v in the report", what, c.got, c.want)
		}
	}
	if got.Settled < 300 || cr.Inputs == 0 || fnr.Inputs == 0 {
		t.Errorf("%d settled, %+v, %+v: nothing is tested", got.Settled, cr, fnr)
	}
	if upper := binomial.Upper(r.Disagreements.Count, 1063, 0.9); r.Disagreements.AtMost != 0.02 || upper > 0.02 {
		t.Errorf("at most %v, of a bound of %v: expected what is certified, 0.02", r.Disagreements.AtMost, upper)
	}
	if alone := binomial.Upper(r.Released.Count, r.Released.Inputs, 0.9); r.Released.AtMost <= alone {
		t.Errorf("released at most %v, expected more than %v: the rule was chosen among several", r.Released.AtMost, alone)
	}
	c := p.Settle.Certificate
	if c.Disagreement != 0.02 || c.Confidence != 0.9 || c.Inputs != 1063 || c.Disagreements != r.Disagreements.Count ||
		c.Released != r.Released.forPolicy() || *c.CriticalReleased != r.CriticalReleased.forPolicy() || *p.Settle.HalvesDiffer != sixDigits(s.HalvesDiffer.Share) {
		t.Errorf("certificate %+v", c)
	}
	if s.HalvesDiffer.Share < 0.01 || s.HalvesDiffer.Inputs != 1063 {
		t.Errorf("halves differ %+v", s.HalvesDiffer)
	}
	path := writeFile(t, "policy.yaml", found.PolicyText)
	if out := runOK(t, "check", path); !strings.Contains(out, "after") || strings.Contains(out, "settle.") {
		t.Errorf("check: %s", out)
	}
	// The same again is the same, and no further attempt.
	_, stderr, code := runCommand(t, append(args, "--out", path)...)
	if again := readPolicy(t, path); code != exitOK || again.Hash != p.Hash || strings.Contains(stderr, "warning") {
		t.Errorf("exit code %d, hash %s, expected %s: %s", code, again.Hash, p.Hash, stderr)
	}
	// With another share, or seed, it is one.
	_, stderr, _ = runCommand(t, append(args, "--out", path, "--seed", "7")...)
	const warned = "warning: a rule was certified on the same passes before (settle 0.02 at confidence 0.9, seed 42)"
	wantFragment(t, stderr, warned)
	// Nor does another file hide it, where the policy itself tells of the first.
	other := filepath.Join(t.TempDir(), "other.yaml")
	_, stderr, _ = runCommand(t, append(keeping(writeFile(t, "settled.yaml", found.PolicyText), "0.05"), "--out", other)...)
	wantFragment(t, stderr, warned)
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestSettleTable: for people.
func TestSettleTable(t *testing.T) {
	t.Parallel()
	out, stderr, code := runCommand(t, keeping(basePolicy(t, ""), "0.02")...)
	if code != exitOK {
		t.Fatal(stderr)
	}
	if set, err := policy.Parse(policy.File{Name: "stdout", Data: []byte(out)}); err != nil || set.All()[0].SettleRule() == nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, fragment := range []string{"Kept: gate never", "Settled early\nWith confidence 0.9, at most 0.02 of the inputs are decided otherwise than by all 5",
		"decided otherwise than by all passes", "of 1063", "two halves of the passes decide otherwise", "from 1063 inputs it was"} {
		wantFragment(t, stderr, fragment)
	}
	for _, none := range []string{"critical FNR", "Comparison", "Objective"} {
		if strings.Contains(stderr, none) {
			t.Errorf("without labels or objective: %q", none)
		}
	}
}

// TestSettleKeepsAPolicy: all but its rule, which is replaced; labels are not needed.
func TestSettleKeepsAPolicy(t *testing.T) {
	t.Parallel()
	_, first := settledBy(t, ensembleSettled("0.02", "--coverage", "0.8", "--posterior", "ensemble"))
	found, p := settledBy(t, keeping(writeFile(t, "first.yaml", string(first.Marshal())), "0.05", "--confidence", "0.95"))
	if p.SettleRule() == nil || p.Settle.Certificate.Disagreement != 0.05 || p.Settle.Certificate.Confidence != 0.95 ||
		p.Settle.Certificate.CriticalReleased != nil || found.Settle.Rule.CriticalFNR != nil {
		t.Errorf("%+v", p.Settle)
	}
	if p.Calibration.PolicyHash != p.Hash || p.HashWithoutSettle() != first.HashWithoutSettle() {
		t.Errorf("hash %s, without the rule %s, calibration %s", p.Hash, p.HashWithoutSettle(), p.Calibration.PolicyHash)
	}
	text := string(first.Marshal())
	rest := func(p *policy.Policy) string {
		p.Settle, p.Calibration.PolicyHash = nil, ""
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
		t.Errorf("calibration.policy_hash %s, expected that of another policy", p.Calibration.PolicyHash)
	}
}

// TestSettleWarns: at once of a rule that is carried along and not in force any more, and of
// one that may retain most of what would be deferred.
func TestSettleWarns(t *testing.T) {
	t.Parallel()
	_, first := settledBy(t, ensembleSettled("0.02", "--coverage", "0.8", "--posterior", "ensemble"))
	args := calibrating("ensemble", "--coverage", "0.7", "--policy", writeFile(t, "first.yaml", string(first.Marshal())),
		"--out", filepath.Join(t.TempDir(), "policy.yaml"))
	_, stderr, code := runCommand(t, args...)
	if code != exitOK {
		t.Fatal(stderr)
	}
	wantFragment(t, stderr, "warning: settle.policy_hash: the policy was changed since its rule to settle inputs early was learned")

	few := writeFile(t, "few.yaml", "models: [{name: heart, classes: [normal, suspect, pathologic], critical: [suspect, pathologic], "+
		"passes: {fewest: 2, expected: 5}, gate: never, primary: {score: c_crit_max, threshold: 0.07}}]")
	_, stderr, code = runCommand(t, keeping(few, "0.03")...)
	if code != exitOK {
		t.Fatal(stderr)
	}
	wantFragment(t, stderr, "warning: settle.certificate.released.at_most: up to")
}

// TestSettleWhateverTheForm: the same passes in another layout and type, or as logits,
// give the same rule.
func TestSettleWhateverTheForm(t *testing.T) {
	t.Parallel()
	passes, err := record.ReadPasses(recordings+"ctg-ensemble.passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var nsk []float64
	for n := range passes.N {
		for s := range passes.S {
			nsk = passes.Row(nsk, s, n)
		}
	}
	base := basePolicy(t, "")
	_, want := settledBy(t, keeping(base, "0.02"))
	for _, dtype := range []string{"<f4", "<f8"} {
		args := keeping(base, "0.02", "--layout", "nsk")
		args[2] = writeNpy(t, dtype, []int{passes.N, passes.S, passes.K}, nsk)
		if _, got := settledBy(t, args); !slices.Equal(got.SettleRule().Steps, want.SettleRule().Steps) {
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
	if m := got.Settle.MeanPasses; math.Abs(m-want.Settle.MeanPasses) > 0.05 || found.Settle.Rule.Disagreements.Inputs != 1063 {
		t.Errorf("logits: %v passes on average, expected %v", m, want.Settle.MeanPasses)
	}
}

// TestSettleRisk: a certificate about misses is tested anew with the rule in force, or
// dropped, loudly.
func TestSettleRisk(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	t.Parallel()
	certified := ensembleSettled("0.02", "--max-critical-fnr", "0.2", "--confidence", "0.9")
	found, p := settledBy(t, certified)
	c, fnr := p.Calibration.Certificate, found.Settle.Rule.CriticalFNR
	if c == nil || c.Kind != policy.LearnThenTest || c.Target != 0.2 || c.Confidence != 0.9 || c.Cases != fnr.Inputs || c.Misses != fnr.Count ||
		c.PValue > 0.1 || !strings.Contains(c.Statement, "with the rule in force") || !found.Settle.Risk.Kept || found.Settle.Risk.Dropped != "" {
		t.Fatalf("certificate %+v, risk %+v, FNR %+v", c, found.Settle.Risk, fnr)
	}
	if found.Settle.Confidence != 0.9 || found.Certificate.Cases != c.Cases {
		t.Errorf("%+v", found.Certificate)
	}
	text := string(p.Marshal())
	first := writeFile(t, "first.yaml", text)

	// Other passes, of the same inputs: nothing but the hash of the file is another.
	passes, err := record.ReadPasses(recordings+"ctg-ensemble.passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var values []float64
	for s := range passes.S {
		for n := range passes.N {
			values = passes.Row(values, s, n)
		}
	}
	other := writeNpy(t, "<f8", []int{passes.S, passes.N, passes.K}, values)
	labels := []string{"--labels", recordings + "ctg-ensemble.labels.npy"}
	fresh := func(base string) []string {
		args := keeping(base, "0.02", labels...)
		args[2] = other
		return args
	}
	again, p2 := settledBy(t, fresh(first))
	if p2.Calibration.Certificate == nil || !again.Settle.Risk.Kept {
		t.Errorf("risk %+v, certificate %+v", again.Settle.Risk, p2.Calibration.Certificate)
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
		"the same recording":  {keeping(first, "0.02", labels...), "this very recording calibrated the policy"},
		"tested on it before": {fresh(writeFile(t, "tested.yaml", string(p2.Marshal()))), "this very recording calibrated the policy, or certified it with a rule"},
		"no labels":           {keeping(first, "0.02"), "without labels it cannot be tested"},
		"conformal":           {ensembleSettled("0.02", "--max-critical-miss", "0.05"), "conformal risk control bounds a mean"},
		"too many misses": {fresh(writeFile(t, "low.yaml", strings.Replace(text, "target: 0.2\n", "target: 0.01\n", 1))),
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
			var found calibration
			if err := json.Unmarshal([]byte(out), &found); err != nil {
				t.Fatal(err)
			}
			if !mentions(found.Notes, c.fragment) || !strings.Contains(found.Settle.Risk.Dropped, c.fragment) || found.Settle.Risk.Kept ||
				!strings.HasPrefix(found.Certificate.Void, "Dropped: ") {
				t.Errorf("risk %+v, certificate %+v, notes %q", found.Settle.Risk, found.Certificate, found.Notes)
			}
			if p := readPolicy(t, path); p.Calibration.Certificate != nil || p.SettleRule() == nil {
				t.Errorf("certificate %+v, rule %v", p.Calibration.Certificate, p.SettleRule())
			}
		})
	}
}

// TestSettleRefuses: with the exit code of nothing that certifies, and no policy.
func TestSettleRefuses(t *testing.T) {
	t.Parallel()
	with := func(threshold, passes string) string {
		return writeFile(t, "base.yaml", "models: [{name: heart, classes: [normal, suspect, pathologic], critical: [suspect, pathologic], passes: "+
			passes+", gate: never, primary: {score: c_crit_max, threshold: "+threshold+"}}]")
	}
	const usual = "{fewest: 2, expected: 5}"
	// The first four passes are all alike, and a fifth of the last another.
	const n = 300
	values := make([]float64, 0, 5*n*3)
	for pass := range 5 {
		for i := range n {
			row := []float64{0.875, 0.125 - float64(pass)/1024, float64(pass) / 1024}
			if pass == 4 && i%5 == 0 {
				row = []float64{0.125, 0.125, 0.75}
			}
			values = append(values, row...)
		}
	}
	two := []string{"calibrate", "--passes", writeNpy(t, "<f8", []int{2, 4, 2}, []float64{.9, .1, .8, .2, .3, .7, .6, .4, .7, .3, .9, .1, .2, .8, .5, .5}),
		"--labels", handLabels(t, 0, 0, 1, 1), "--critical", "1", "--name", "heart", "--coverage", "0.5", "--settle", "0.1"}
	surprising := keeping(with("0.05", usual), "0.1")
	surprising[2] = writeNpy(t, "<f8", []int{5, n, 3}, values)
	for name, c := range map[string]struct {
		args     []string
		fewest   float64
		fragment string
	}{
		"too few inputs": {keeping(with("0.05", usual), "0.002"), 1151,
			"1063 inputs are left to certify on, and at least 1151 are needed to show that at most 0.002 are decided otherwise with confidence 0.9: about 2302"},
		"beside an objective":             {ensembleSettled("0.002", "--coverage", "0.8"), 1151, "1063 inputs are left to certify on"},
		"nothing foretells the last pass": {surprising, 23, "no rule that settles anything keeps to that share"},
		"all retained":                    {keeping(with("9", usual), "0.02"), 115, "0 inputs deferred and 1063 retained to learn from: expected at least 10 of each"},
		"all deferred":                    {keeping(with("1e-300", usual), "0.02"), 115, "expected at least 10 of each"},
		"no pass to save":                 {two, 23, "passes.expected is 2, as passes.fewest is"},
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
	wantFragment(t, out, "Nothing certifies a rule to settle inputs early\n1063 inputs are left")
}

// TestSettleOddRecordings: many classes, no critical ones, few inputs; digits.
func TestSettleOddRecordings(t *testing.T) {
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
	found, p := settledBy(t, []string{"calibrate", "--passes", writeNpy(t, "<f4", []int{s, n, k}, values), "--policy", many, "--settle", "0.2"})
	if p.SettleRule() == nil || p.Settle.Order != policy.AnyOrder || found.Settle.Rule.Released.Inputs == 0 || found.Settle.CertifiedOn != n/2 {
		t.Errorf("%+v", found.Settle)
	}

	digits := writeFile(t, "digits.yaml", "models: [{name: digits, classes: [\"0\", \"1\", \"2\", \"3\", \"4\", \"5\", \"6\"], critical: [\"5\", \"6\"], "+
		"passes: {fewest: 2, expected: 50}, gate: never, scope: predicted-safe, primary: {score: mi, threshold: 0.1}}]")
	found, p = settledBy(t, []string{"calibrate", "--passes", recordings + "digits-id.passes.npy", "--labels",
		recordings + "digits-id.labels.npy", "--policy", digits, "--settle", "0.05"})
	if p.SettleRule() == nil || found.Settle.Rule.Saving < 2 || found.Settle.Rule.CriticalFNR == nil || found.Critical == 0 {
		t.Errorf("%+v %+v", found.Settle, found.Settle.Rule)
	}
}

func TestSettleErrors(t *testing.T) {
	t.Parallel()
	base := basePolicy(t, "")
	model := func(fields string) string {
		return writeFile(t, "p.yaml", "models: [{name: heart, classes: [normal, suspect, pathologic], critical: [suspect, pathologic], "+fields+"}]")
	}
	row := writeNpy(t, "<f8", []int{1, 2, 3}, []float64{9, 1, 1, 1, 9, 1})
	for name, c := range map[string]struct {
		args     []string
		code     int
		fragment string
	}{
		"share 0":           {keeping(base, "0"), exitUsage, "--settle 0: expected a number from 0 to 1, not the ends"},
		"share 1":           {keeping(base, "1"), exitUsage, "--settle 1: expected a number from 0 to 1, not the ends"},
		"confidence":        {keeping(base, "0.02", "--confidence", "1"), exitUsage, "--confidence 1: expected"},
		"two objectives":    {ensembleSettled("0.02", "--coverage", "0.8", "--max-critical-miss", "0.1"), exitUsage, "exactly one objective"},
		"ordered alone":     {calibrating("ensemble", "--coverage", "0.8", "--ordered"), exitUsage, "--ordered is of --settle"},
		"unordered":         {calibrating("ensemble", "--coverage", "0.8", "--settle", "0.02", "--posterior", "deep-ensemble"), exitUsage, "expected --ordered"},
		"no policy":         {ensembleSettled("0.02"), exitUsage, "--settle alone keeps a policy as it is, expected --policy"},
		"no labels":         {keeping(base, "0.02", "--coverage", "0.8"), exitUsage, "an objective without --labels"},
		"scope":             {keeping(base, "0.02", "--scope", "predicted-safe"), exitUsage, "--scope are of an objective"},
		"posterior":         {keeping(base, "0.02", "--posterior", "ensemble"), exitUsage, "--posterior, --reliability-threshold"},
		"observes":          {keeping(model("passes: {expected: 5}, gate: never, primary: {score: mi}"), "0.02"), exitFault, "nothing to settle: the policy has no thresholds"},
		"ova_mi":            {keeping(model("passes: {expected: 5}, gate: never, primary: {score: ova_mi, threshold: 1}"), "0.02"), exitFault, "ova_mi, which cannot be followed"},
		"no full decision":  {keeping(model("gate: never, primary: {score: mi, threshold: 1}"), "0.02"), exitFault, "passes.expected is not given"},
		"other passes":      {keeping(model("passes: {expected: 30}, gate: never, primary: {score: mi, threshold: 1}"), "0.02"), exitFault, "has 5 passes, but model heart of"},
		"members unordered": {slices.DeleteFunc(keeping(basePolicy(t, "    calibration: {posterior: ensemble}\n"), "0.02"), func(a string) bool { return a == "--ordered" }), exitUsage, "is of an ensemble"},
		"no pass to save":   {keeping(model("passes: {fewest: 5, expected: 5}, gate: never, primary: {score: mi, threshold: 1}"), "0.02"), exitFault, "passes.expected is 5, as"},
		"dirichlet": {[]string{"calibrate", "--passes", row, "--labels", handLabels(t, 0, 1), "--critical", "1", "--kind", "dirichlet",
			"--coverage", "0.5", "--settle", "0.1"}, exitFault, "kind is dirichlet"},
		"dirichlet kept": {[]string{"calibrate", "--passes", row, "--policy", model("kind: dirichlet, gate: always, fallback: {score: cbec, threshold: 1}"),
			"--settle", "0.1"}, exitFault, "kind is dirichlet"},
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
