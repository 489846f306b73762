package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEvaluateAgreesWithGolden compares the summary to 1e-9 relative. Package eval compares all figures.
func TestEvaluateAgreesWithGolden(t *testing.T) {
	t.Parallel()
	golden := readGolden(t, "ctg-ensemble.evaluate.json")
	report, summary := readReport(t, runOK(t, labelled("ensemble", "--format", "json", "--bootstrap", "0")...)), valueAt(t, golden, "summary")
	compare(t, "summary", report["summary"], map[string]any{
		"pearson": valueAt(t, summary, "pearson"), "inflation": valueAt(t, summary, "inflation"), "accuracy": valueAt(t, summary, "acc"),
		"fallback_share": valueAt(t, summary, "fallback"), "all_reliable": golden["all_reliable"],
	}, 1e-9, 1e-15)
}

func TestEvaluateSaysHowItWasComputed(t *testing.T) {
	t.Parallel()
	_, stderr, _ := runCommand(t, labelled("ensemble")...)
	wantFragment(t, stderr, "ckd: ../../internal/recordings/ctg-ensemble.passes.npy: read as 5 passes of 2126 inputs over 3 classes "+
		"(float32, layout snk)\n")
	report := readReport(t, runOK(t, labelled("ensemble", "--format", "json", "--seed", "7", "--bootstrap", "3",
		"--coverage", "0.5", "--variance", "population", "--reliability-threshold", "0.2")...))
	compare(t, "source", report["source"], map[string]any{
		"kind": "probabilities", "variance": "population", "coverage": 0.5, "bootstrap": 3.0, "seed": 7.0,
		"reliability_threshold": 0.2,
		// The hashes are those of sha256sum.
		"passes": map[string]any{"name": recordings + "ctg-ensemble.passes.npy", "sha256": sha256Passes},
		"labels": map[string]any{"name": recordings + "ctg-ensemble.labels.npy", "sha256": sha256Labels},
	}, 0, 0)
	wantFragment(t, valueAt(t, report, "source", "software").(string), "ckd ")
}

const (
	sha256Passes = "be0ace7e51a8df22bbf7eb5987af68950083b7897e5bad8714c6d752f222d845"
	sha256Labels = "c7ff0a8e60c0c53c903c05f6a02e42d82d4721282bc04d85990d0af4a8f468df"
)

// TestLabelForms reads labels by number and by name, and expects the same report.
func TestLabelForms(t *testing.T) {
	t.Parallel()
	policy := writeFile(t, "p.yaml", handPolicy)
	for _, command := range []string{
		"evaluate --critical b,c --classes a,b,c --format json --bootstrap 2", "evaluate --policy " + policy + " --format json --bootstrap 2",
	} {
		without := func(labels string) map[string]any {
			report := readReport(t, runOK(t, append(strings.Fields(command), "--passes", threeInputs(t), "--labels", labels)...))
			delete(report, "source")
			return report
		}
		want := without(handLabels(t, 1, 2, 0))
		if got := without(handNames(t, "b", "c", "a")); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: names: another report than of numbers", command)
		}
	}
}

// TestEvaluatePolicy evaluates handPolicy, which retains input 1 alone: see
// TestDecomposeDecidesByPolicy.
func TestEvaluatePolicy(t *testing.T) {
	t.Parallel()
	policy := writeFile(t, "p.yaml", handPolicy)
	args := []string{"evaluate", "--passes", threeInputs(t), "--labels", handLabels(t, 1, 2, 0), "--policy", policy,
		"--bootstrap", "1"}
	report := readReport(t, runOK(t, append(args, "--format", "json")...))
	compare(t, "policy", report["policy"], readLines(t, `{"model":"hand","scope":"all","observes":false,"retained":1,
		"critical_retained":1,"critical_missed":1,"critical_fnr":1,"critical_deferred_share":0.5,"critical_miss_rate":0.5}`)[0], 1e-12, 0)
	names := map[string]bool{}
	for _, row := range report["policies"].([]any) {
		names[valueAt(t, row, "name").(string)] = true
	}
	if !names["policy"] || !names["any-critical"] {
		t.Errorf("policies %v", names)
	}
	wantFragments(t, runOK(t, append(args, "--full")...), " policy hash ", " retained 1 of 3 (33.3%) ", "of the retained 1 of 1 (100.0%)", " 2.5% to 100.0% ")

	// Flags may repeat what the policy says.
	again := runOK(t, append(args, "--format", "json", "--classes", "a,b,c", "--critical", "c,b", "--safe", "a",
		"--kind", "probabilities", "--variance", "sample", "--sum-tolerance", "0.001")...)
	if again != runOK(t, append(args, "--format", "json")...) {
		t.Error("flags that say what the policy says change the report")
	}
	// The reliability threshold is the policy's, unless a flag gives another.
	strict := strings.Replace(handPolicy, "classes:", "reliability_threshold: 0.2\n    classes:", 1)
	args[6] = writeFile(t, "strict.yaml", strict)
	compare(t, "source", readReport(t, runOK(t, append(args, "--format", "json")...))["source"],
		map[string]any{"reliability_threshold": 0.2}, 0, 0)
	compare(t, "source", readReport(t, runOK(t, append(args, "--format", "json", "--reliability-threshold", "0.4")...))["source"],
		map[string]any{"reliability_threshold": 0.4}, 0, 0)
}

// TestEvaluateReadsPassesAsThePolicyDoes expects the kind of rows and the variance of the policy.
func TestEvaluateReadsPassesAsThePolicyDoes(t *testing.T) {
	t.Parallel()
	labels := handLabels(t, 1, 0)
	const names = "\nmodels:\n  - {name: m, classes: [a, b], critical: [b], "
	passes := writeNpy(t, "<f8", []int{3, 2, 2}, []float64{4, 1, 2, 2, 3, 1, 2, 3, 1, 1, 4, 2})
	for _, c := range []struct{ policy, kind, variance string }{
		{names + "kind: logits, gate: never, passes: {fewest: 3}}", "logits", "sample"},
		{names + "kind: logits, gate: never, passes: {fewest: 3}, variance: population}", "logits", "population"},
		{names + "kind: dirichlet, gate: always}", "dirichlet", "sample"},
	} {
		file := passes
		if c.kind == "dirichlet" {
			file = writeNpy(t, "<f8", []int{2, 2}, []float64{4, 1, 2, 2})
		}
		report := readReport(t, runOK(t, "evaluate", "--passes", file, "--labels", labels, "--policy",
			writeFile(t, "p.yaml", c.policy), "--format", "json", "--bootstrap", "2"))
		compare(t, "source", report["source"], map[string]any{"kind": c.kind, "variance": c.variance}, 0, 0)
	}
}

func TestEvaluateHoldsCertificates(t *testing.T) {
	t.Parallel()
	three := threeInputs(t)
	file, err := hashFile(three)
	if err != nil {
		t.Fatal(err)
	}
	certified := strings.Replace(handPolicy, "classes:", "calibrated: {recording: {passes_sha256: "+file.SHA256+
		"}, certificate: {kind: learn-then-test, bounds: critical-fnr, target: 0.1, confidence: 0.9}}\n    classes:", 1)
	args := []string{"evaluate", "--passes", three, "--labels", handLabels(t, 1, 2, 0), "--policy",
		writeFile(t, "p.yaml", certified), "--bootstrap", "2"}
	// One input is retained, and missed. If the true share were 0.1, that would have the chance
	// 0.1.
	compare(t, "certificate", valueAt(t, readReport(t, runOK(t, append(args, "--format", "json")...)), "policy", "certificate"),
		map[string]any{"kind": "learn-then-test", "bounds": "critical-fnr", "target": 0.1, "confidence": 0.9, "cases": 1.0, "misses": 1.0,
			"observed": 1.0, "verdict": "not_contradicted", "p_value": 0.1, "p_shown": 1.0, "power_at_double": 0.0}, 1e-12, 0)
	wantFragment(t, strings.Join(strings.Fields(runOK(t, args...)), " "), "this is the recording that the policy was calibrated on")
}

// TestEvaluateLeavesWeightsToThePolicy expects the score cbec of a report to ignore the weights of
// pairs, which the policy uses.
func TestEvaluateLeavesWeightsToThePolicy(t *testing.T) {
	t.Parallel()
	rows := func(policy string) map[string]any {
		report := readReport(t, runOK(t, labelled("ensemble", "--policy", writeFile(t, "p.yaml", policy), "--bootstrap", "0",
			"--coverage", "0.8", "--format", "json")...))
		rows := map[string]any{}
		for _, row := range report["policies"].([]any) {
			rows[valueAt(t, row, "name").(string)+" "+valueAt(t, row, "scope").(string)] = row
		}
		return rows
	}
	const plain = "\nmodels:\n  - name: m\n    classes: [normal, suspect, pathologic]\n    critical: [suspect, pathologic]\n" +
		"    passes: {fewest: 2}\n    gate: always\n    fallback: {score: cbec, threshold: 0.001}\n"
	const weights = "    pair_weights: [{safe: normal, critical: suspect, weight: 0.01}]\n"
	without, with := rows(plain), rows(plain+weights)
	for _, name := range []string{"cbec all", "cbec predicted-safe", "any-critical all"} {
		if without[name] == nil || !reflect.DeepEqual(without[name], with[name]) {
			t.Errorf("%s: %v with weights, %v without", name, with[name], without[name])
		}
	}
	if reflect.DeepEqual(without["policy all"], with["policy all"]) {
		t.Error("the policy does as well with weights as without, expected it to decide by them")
	}
}

func TestEvaluateHTML(t *testing.T) {
	t.Parallel()
	out := runOK(t, labelled("ensemble", "--format", "html", "--bootstrap", "5")...)
	if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(out)), "<!doctype html>") {
		t.Errorf("it begins with %.40q", out)
	}
	wantFragment(t, out, sha256Passes)
	wantFragment(t, out, "95% bootstrap interval") // what resamples say
	wantFragment(t, out, "</html>")
}

func TestEvaluateWithoutCriticalClasses(t *testing.T) {
	t.Parallel()
	out := runOK(t, "evaluate", "--passes", recordings+"digits-id.passes.npy", "--labels", recordings+"digits-id.labels.npy",
		"--bootstrap", "2", "--full")
	wantFragment(t, out, "No class is declared critical")
	for _, fragment := range []string{"inputs called safe", "paper's rule", "NaN", "+Inf"} {
		if strings.Contains(out, fragment) {
			t.Errorf("%q is in it", fragment)
		}
	}
}

func TestEvaluateErrors(t *testing.T) {
	t.Parallel()
	three, labels := threeInputs(t), handLabels(t, 1, 2, 0)
	policy := writeFile(t, "p.yaml", handPolicy)
	const lowrank = recordings + "ctg-lowrank"
	good := "--passes " + three + " --labels " + labels
	expectRefusals(t, "evaluate", []refusal{
		{"", "missing flags: --labels=FILE, --passes=FILE", exitUsage},
		{"--passes x", "missing flags: --labels=FILE", exitUsage},
		{good + " --coverage 0", "--coverage 0: expected a share above 0 and up to 1", exitUsage},
		{good + " --coverage 0.8 --reviews-per-1000 200", "expected one of them", exitUsage},
		{good + " --reviews-per-1000 0.2", "did you mean 200?", exitUsage},
		{good + " --reviews-per-1000 1000", "--reviews-per-1000 1000: expected", exitUsage},
		{good + " --bootstrap=-1", "--bootstrap -1: expected 0 to 100000", exitUsage},
		{good + " --out " + labels, "--out " + labels + " is what is read", exitUsage},
		{good + " --policy " + policy + " --classes a,c,b", "--classes is a, c, b, but model hand of " + policy + " has a, b, c", exitUsage},
		{good + " --policy " + policy + " --kind logits", "--kind is logits, but", exitUsage},
		{good + " --policy " + policy + " --model x", "--model x is not in " + policy + ", expected one of: hand", exitUsage},
		{"--passes " + three + " --labels " + handLabels(t, 1, 2), "2 labels, expected 3: one for each input of " + three, exitFault},
		{"--passes " + three + " --labels " + handLabels(t, 1, 2, 0, 1), "(it was read with as many passes: if these are the inputs, say --layout nsk)", exitFault},
		// Whole numbers as labels of classes that other numbers name: the positions were taken, and by them
		// everything was wrong for whoever meant the names.
		{"--passes " + three + " --classes 2,0,1 --labels " + labels, "label 0 is 1: by name it is class 2, by position class 1, which is named 0", exitFault},
		{"--passes " + three + " --classes 1,2,3 --labels " + handLabels(t, 3, 2, 3), "label 0 is 3: by name it is class 2, by position no class", exitFault},
		{good + " --kind logits", "passes.npy: input 0: all 4 passes have values in [0,1] that sum to 1, expected logits", exitFault},
		{"--passes " + handPasses(t) + " --labels " + handLabels(t, 0, 0, 0, 0),
			"passes.npy: input 3: pass 1: class 2 is NaN, expected a finite number", exitFault},
		{"--passes " + three + " --classes well,ill,sick --labels " + handNames(t, "well", "sikc", "ill"),
			`names.npy: label 1 is "sikc": expected one of the classes well, ill, sick, did you mean "sick"?`, exitFault},
		{"--passes " + lowrank + ".passes.npy --labels " + policy, "p.yaml", exitFault},
		{good + " --out " + filepath.Join(t.TempDir(), "no", "file"), "no such file or directory", exitFault},

		{"ood --id " + three, "--ood", exitUsage},
		{"ood --id a --ood b --ood c", "1 x --id and 2 x --ood, expected one of each for every seed", exitUsage},
		{"ood --id " + three + " --ood " + three + " --classes a", "--classes has 1 names, expected 3", exitUsage},
		{"ood --id " + three + " --ood " + three + " --out " + three, "is what is read", exitUsage},
		{"ood --id " + three + " --ood " + recordings + "digits-ood.passes.npy",
			"digits-ood.passes.npy has 7 classes, expected 3, as " + three + " has", exitFault},
		{"ood --id " + three + " --ood " + handPasses(t), "input 3: pass 1: class 2 is NaN", exitFault},
		{"disentangle", "0 x --level, expected it for the baseline and for at least one level above", exitUsage},
		{"disentangle --level 0=a", "1 x --level, expected it for the baseline and", exitUsage},
		{"disentangle --level 0=a --level 0.0=b", "--level 0 is given twice", exitUsage},
		{"disentangle --level a --level 1=b", `"a": expected LEVEL=FILE`, exitUsage},
		{"disentangle --level x=a --level 1=b", `level "x": expected a finite number from 0`, exitUsage},
		{"disentangle --level 0=" + three + " --level 1=" + recordings + "digits-noise-10.passes.npy", "has 10 classes, expected 3", exitFault},
		{"disentangle --level 0=" + three + " --level 1=" + handPasses(t) + " --out " + three, "is what is read", exitUsage},
	})
}

func TestEvaluateWritesWholeFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "report.json")
	three, labels := threeInputs(t), handLabels(t, 1, 2, 0)
	good := []string{"evaluate", "--passes", three, "--labels", labels, "--critical", "1,2", "--format", "json", "--out", path}
	if out := runOK(t, good...); out != "" {
		t.Errorf("standard output has %.80q", out)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != runOK(t, good[:len(good)-2]...) {
		t.Error("the file has something else than the standard output")
	}

	// A run that fails leaves the report of the run before, and nothing else.
	bad := slices.Clone(good)
	bad[4] = handLabels(t, 1, 2)
	if _, _, code := runCommand(t, bad...); code != exitFault {
		t.Fatalf("exit code %d, expected %d", code, exitFault)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(after, written) {
		t.Errorf("the file before is not what it was: %v", err)
	}
	// A link is followed, not replaced.
	link := filepath.Join(folder, "link.json")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	good[len(good)-1] = link
	runOK(t, good...)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v (%v), expected the report and the link", entries, err)
	}
}

func TestEvaluateStopsWhenInterrupted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	expectInterrupted(t, labelled("ensemble", "--out", filepath.Join(folder, "report.txt")), "ckd: interrupted: nothing was written")
	if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
		t.Errorf("the folder has %v (%v), expected nothing", entries, err)
	}
}

func TestEvaluateTablesOfShift(t *testing.T) {
	t.Parallel()
	id, ood := recordings+"digits-id.passes.npy", recordings+"digits-ood.passes.npy"
	wantFragments(t, runOK(t, "evaluate", "ood", "--id", id, "--ood", ood, "--classes", "zero,one,two,three,four,five,six", "--full"),
		"\n sum_c 0.9151 ", "\n zero 0.7364 10.9834 ", // of golden/digits.ood.json
		"\n one 3.4803 1.4481 ", " lower \n")
	// The second seed compares known inputs with themselves: AUROC 1/2, so that the mean is .915/2
	// + 1/4 = .708.
	wantFragments(t, runOK(t, "evaluate", "ood", "--id", id, "--ood", ood, "--id", id, "--ood", id, "--full"), "2 seeds", "\n sum_c 0.7076 ± 0.2935 ")

	noise := func(percent string) string { return recordings + "digits-noise-" + percent + ".passes.npy" }
	two := []string{"evaluate", "disentangle", "--full", "--level", "0.1=" + noise("10"), "--level", "0=" + noise("00")} // in any order
	wantFragments(t, runOK(t, two...), "\n 0.1 0.0104 0.0097 0.0328 0.0258 sum_c \n",                                    // golden/digits.disentangle.json
		"2 levels are too few for rank correlations")
	wantFragments(t, runOK(t, append(two, "--level", "0.2="+noise("20"))...), "\n consistency 1.0000 ")
}

// TestHashOfPipe expects no hash of a pipe, and no error.
func TestHashOfPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	file, err := hashFile(fmt.Sprintf("/dev/fd/%d", r.Fd()))
	if err != nil || file.SHA256 != "" {
		t.Errorf("%+v, %v", file, err)
	}
}

func TestHashOfMember(t *testing.T) {
	t.Parallel()
	archive := writeFile(t, "a.npz", "not read as an archive")
	whole, err := hashFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	member, err := hashFile(archive + ":a")
	if err != nil || member.SHA256 != whole.SHA256 || member.Name != archive+":a" || len(whole.SHA256) != 64 {
		t.Errorf("%+v and %+v, %v", whole, member, err)
	}
}

// TestEvaluateGroups expects every interval and test of a report by group to say so.
func TestEvaluateGroups(t *testing.T) {
	t.Parallel()
	groups := make([]int64, 2126)
	for i := range groups {
		groups[i] = int64(i / 4)
	}
	patients := handLabels(t, groups...)
	args := labelled("ensemble", "--bootstrap", "20", "--groups", patients)
	out := runOK(t, append(args, "--full")...)
	wantFragments(t, out, "come in 532 groups of at most 4", "by group, 95% (Gaffke)", "bootstrap")
	for _, is := range []string{"exact 95%", "Clopper", "95% bootstrap interval "} {
		if strings.Contains(strings.ReplaceAll(out, "95% bootstrap interval by group", ""), is) {
			t.Errorf("the report says %q", is)
		}
	}
	r := readReport(t, runOK(t, append(args, "--format", "json")...))
	if valueAt(t, r, "source", "groups") != 532. || valueAt(t, r, "source", "groups_file", "name") != patients {
		t.Errorf("source %v", r["source"])
	}
	if _, stderr, code := runCommand(t, labelled("ensemble", "--groups", handLabels(t, 1, 2))...); code != exitFault ||
		!strings.Contains(stderr, "has 2 groups, expected 2126") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// TestEvaluateCriticalCalls expects reviews to count critical calls where people review them.
func TestEvaluateCriticalCalls(t *testing.T) {
	t.Parallel()
	args := labelled("ensemble", "--bootstrap", "0")
	without := readReport(t, runOK(t, append(args, "--format", "json")...))
	with := readReport(t, runOK(t, append(args, "--format", "json", "--critical-calls", "reviewed")...))
	at0 := func(r map[string]any, field string) float64 {
		return valueAt(t, r, "policies", 0, "per_1000", field).(float64)
	}
	if got, want := at0(with, "reviews"), at0(without, "reviews")+at0(without, "called_critical"); math.Abs(got-want) > 1e-9 || got == at0(without, "reviews") {
		t.Errorf("%v reviews per 1,000, want %v", got, want)
	}
	args = append(args, "--critical-calls", "reviewed")
	if out := runOK(t, append(args, "--reviews-per-1000", "300")...); !strings.HasPrefix(out, "With 300 reviews per 1,000 inputs, all critical calls among them,") {
		t.Errorf("it begins with %.100q", out)
	}
	if _, stderr, code := runCommand(t, append(args, "--reviews-per-1000", "100")...); code != exitFault || !strings.Contains(stderr, "are called critical") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	args = args[:len(args)-2]
	out := runOK(t, append(args, "--critical-calls", "acted-on", "--title", "Ward 7, autumn", "--full")...)
	if !strings.HasPrefix(strings.TrimSpace(out), "Ward 7, autumn") {
		t.Errorf("the report begins with %.80q, expected its title", out)
	}
	if _, stderr, code := runCommand(t, append(args, "--critical-calls", "ignored")...); code != 2 || !strings.Contains(stderr, "acted-on") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
