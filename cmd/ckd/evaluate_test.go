package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
)

// labelled are the flags for a recording of the fetal heart classifiers, with
// its labels.
func labelled(name string, more ...string) []string {
	args := ctg(name)
	args[0] = "evaluate"
	return append(append(args, "--labels", recordings+"ctg-"+name+".labels.npy"), more...)
}

// readGolden reads what an independent implementation computed: see the README
// of internal/recordings.
func readGolden(t *testing.T, name string) (golden map[string]any) {
	t.Helper()
	data, err := os.ReadFile(recordings + "golden/" + name)
	if err == nil {
		err = json.Unmarshal(data, &golden)
	}
	if err != nil {
		t.Fatal(err)
	}
	return golden
}

func readReport(t *testing.T, text string) map[string]any {
	t.Helper()
	lines := readLines(t, text)
	if len(lines) != 1 {
		t.Fatalf("%d JSON values, expected 1", len(lines))
	}
	return lines[0]
}

// All figures to 1e-9 relative; those of the bootstrap are not in the golden
// file without Monte Carlo error, and are not looked at.
func TestEvaluateAgreesWithGolden(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mcdropout", "lowrank", "ensemble"} {
		t.Run(name, func(t *testing.T) {
			golden := readGolden(t, "ctg-"+name+".evaluate.json")
			report := readReport(t, runOK(t, labelled(name, "--format", "json", "--bootstrap", "0")...))
			same := func(what string, got, want any) {
				t.Helper()
				compare(t, what, got, want, 1e-9, 1e-15)
			}
			of := func(v any, keys ...any) any { return at(t, v, keys...) }

			for want, key := range map[string]string{"pearson": "pearson", "inflation": "inflation", "acc": "accuracy",
				"fallback": "fallback_share"} {
				same(key, of(report, "summary", key), of(golden, "summary", want))
			}
			same("all_reliable", of(report, "summary", "all_reliable"), golden["all_reliable"])
			rows := map[string]any{}
			for _, row := range of(report, "policies").([]any) {
				if of(row, "scope") == "all" {
					rows[of(row, "name").(string)] = row
				}
			}
			for score, want := range of(golden, "policies").(map[string]any) {
				same(score+" ausc", of(rows[score], "ausc", "critical_fnr"), of(want, "ausc"))
				same(score+" critical_fnr", of(rows[score], "critical_fnr"), of(want, "fnr80"))
				same(score+" accuracy", of(rows[score], "accuracy"), of(want, "acc80"))
			}
			for k, want := range of(golden, "skewness").([]any) {
				same("skewness", of(report, "skewness", k), want)
			}
			same("profiles.raw", of(report, "profiles", "raw"), golden["profile_raw"])
			same("profiles.normalised", of(report, "profiles", "normalised"), golden["profile_normalised"])
			same("confusion", of(report, "confusion", "matrix"), golden["confusion"])
			same("dominant", report["dominant"], golden["dominant"])
			classes := []string{"normal", "suspect", "pathologic"}
			signatures := of(report, "signatures").([]any)
			for _, s := range signatures {
				i, j := slices.Index(classes, of(s, "true").(string)), slices.Index(classes, of(s, "predicted").(string))
				same("signature", s, of(golden, "signatures", fmt.Sprintf("%d->%d", i, j)))
			}
			if len(signatures) != len(of(golden, "signatures").(map[string]any)) {
				t.Errorf("%d signatures", len(signatures))
			}
		})
	}
}

// at is a value inside of JSON values, by keys and positions.
func at(t *testing.T, v any, keys ...any) any {
	t.Helper()
	for _, key := range keys {
		switch k := key.(type) {
		case string:
			object, _ := v.(map[string]any)
			inner, ok := object[k]
			if !ok {
				t.Fatalf("no %q of %v", k, keys)
			}
			v = inner
		case int:
			list, _ := v.([]any)
			if k >= len(list) {
				t.Fatalf("no entry %d of %v", k, keys)
			}
			v = list[k]
		}
	}
	return v
}

func TestEvaluateOODAgreesWithGolden(t *testing.T) {
	t.Parallel()
	golden := readGolden(t, "digits.ood.json")
	report := readReport(t, runOK(t, "evaluate", "ood", "--id", recordings+"digits-id.passes.npy",
		"--ood", recordings+"digits-ood.passes.npy", "--format", "json"))
	for k, want := range golden["per_class"].([]any) {
		class := at(t, report, "classes", k)
		for wanted, key := range map[string]string{"auroc": "auroc", "ratio": "ratio", "skew_id": "skewness_id",
			"skew_ood": "skewness_ood"} {
			compare(t, key, at(t, class, key), at(t, want, wanted), 1e-9, 0)
		}
	}
	delete(golden, "per_class")
	compare(t, "scores", report["scores"], any(golden), 1e-9, 0)
	compare(t, "report", any(report), any(map[string]any{
		"seeds":   1.0,
		"summary": map[string]any{"classes": 7.0, "id": []any{map[string]any{"inputs": 506.0, "passes": 50.0}}},
	}), 0, 0)
}

func TestEvaluateDisentangleAgreesWithGolden(t *testing.T) {
	t.Parallel()
	golden := readGolden(t, "digits.disentangle.json")
	args := []string{"evaluate", "disentangle", "--format", "json"}
	for _, percent := range []int{50, 0, 10, 20, 30, 40} { // in any order
		args = append(args, "--level", fmt.Sprintf("%v=%sdigits-noise-%02d.passes.npy", float64(percent)/100, recordings, percent))
	}
	report := readReport(t, runOK(t, args...))
	levels := report["levels"].([]any)
	if len(levels) != 6 || len(golden) != 5 {
		t.Fatalf("%d levels, %d golden ones", len(levels), len(golden))
	}
	for i, level := range levels {
		l := level.(map[string]any)
		name := filepath.Base(at(t, report, "source", "passes", i, "name").(string))
		if want := fmt.Sprintf("digits-noise-%d0.passes.npy", i); name != want {
			t.Errorf("level %d is of %s, expected %s", i, name, want)
		}
		if i == 0 {
			if _, there := l["r_rel"]; there {
				t.Error("the baseline has r_rel")
			}
			continue
		}
		compare(t, "r_rel", l["r_rel"], golden[strconv.FormatFloat(l["level"].(float64), 'g', -1, 64)], 1e-9, 0)
	}
}

func TestEvaluateNeedsNoMore(t *testing.T) {
	t.Parallel()
	out := runOK(t, "evaluate", "--passes", recordings+"ctg-lowrank.passes.npy", "--labels", recordings+"ctg-lowrank.labels.npy",
		"--classes", "0,1,2", "--critical", "1,2")
	for _, fragment := range []string{
		" 2126 inputs, 30 passes, 3 classes (critical: 1, 2). ", " 200 resamples with seed 42. ", "c7ff0a8e60c0c53c903c05f6a02e42d82d4721282bc04d85990d0af4a8f468df",
		" 1 critical 0.784 0.725 0.754 295 273 ", // as counted from the confusion matrix
		"\n 2 24 16 136 \n",                      // row of the confusion matrix
		"Selective prediction, scope all", "Selective prediction, scope predicted-safe",
		" c_crit_max 0.234 ", // AUSC of golden/ctg-lowrank.evaluate.json
		" c_crit_max 0.097 ± 0.0",
		"Pairwise, scope all", "The paper's rule", " chooses cbec ",
		" 2 1.713 2.609 7.087 8.5% 13.0% 16.7% 23.7% ", // skewness there
		"Approximation", "Pearson 0.958", "Epistemic profiles", "Error signatures", " 1 -> 0 missed 67 ",
		"Epistemic confusion", "Class uncertainty", "Notes",
	} {
		wantFragment(t, collapse(out), fragment)
	}
	if strings.Contains(out, "The policy at its thresholds") {
		t.Error("a policy, but none was given")
	}
	for line := range strings.Lines(out) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if named := runOK(t, "evaluate", "recording", "--passes", recordings+"ctg-lowrank.passes.npy",
		"--labels", recordings+"ctg-lowrank.labels.npy", "--classes", "0,1,2", "--critical", "1,2"); named != out {
		t.Error("the command by its name prints something else")
	}
}

func TestEvaluateSaysHowItWasComputed(t *testing.T) {
	t.Parallel()
	_, stderr, _ := runCommand(t, labelled("ensemble")...)
	// A test has no terminal, so no bar: this is all.
	if want := "ckd: ../../internal/recordings/ctg-ensemble.passes.npy: read as 5 passes of 2126 inputs over 3 classes " +
		"(float32, layout snk)\n"; stderr != want {
		t.Errorf("standard error %q, expected %q", stderr, want)
	}
	report := readReport(t, runOK(t, labelled("ensemble", "--format", "json", "--seed", "7", "--bootstrap", "3",
		"--coverage", "0.5", "--variance", "population", "--reliability-threshold", "0.2")...))
	compare(t, "source", report["source"], map[string]any{
		"kind": "probabilities", "variance": "population", "coverage": 0.5, "bootstrap": 3.0, "seed": 7.0,
		"reliability_threshold": 0.2,
		// sha256sum of the files
		"passes": map[string]any{"name": recordings + "ctg-ensemble.passes.npy", "sha256": sha256Passes},
		"labels": map[string]any{"name": recordings + "ctg-ensemble.labels.npy", "sha256": sha256Labels},
	}, 0, 0)
	wantFragment(t, at(t, report, "source", "software").(string), "ckd ")
}

const (
	sha256Passes = "be0ace7e51a8df22bbf7eb5987af68950083b7897e5bad8714c6d752f222d845"
	sha256Labels = "c7ff0a8e60c0c53c903c05f6a02e42d82d4721282bc04d85990d0af4a8f468df"
)

// handLabels are the true classes of handPasses.
func handLabels(t *testing.T, labels ...int64) string {
	t.Helper()
	var b bytes.Buffer
	if err := record.Write(&b, &record.Array{Shape: []int{len(labels)}, Int64: labels}); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "labels.npy", b.String())
}

// handNames are labels by name.
func handNames(t *testing.T, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	if err := record.Write(&b, &record.Array{Shape: []int{len(names)}, Text: names}); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "names.npy", b.String())
}

// TestLabelForms reads labels by number, by name and one-hot, all with the same
// result.
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
		for name, labels := range map[string]string{
			"names":            handNames(t, "b", "c", "a"),
			"one-hot":          writeNpy(t, "<f8", []int{3, 3}, []float64{0, 1, 0, 0, 0, 1, 1, 0, 0}),
			"one-hot, single":  writeNpy(t, "<f4", []int{3, 3}, []float64{0, 1, 0, 0, 0, 1, 1, 0, 0}),
			"one-hot, Fortran": npyFile(t, "{'descr': '|b1', 'fortran_order': True, 'shape': (3, 3), }", "\x00\x00\x01\x01\x00\x00\x00\x01\x00"),
		} {
			if got := without(labels); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s: another report than of numbers", command, name)
			}
		}
	}
}

// threeInputs are the inputs of handPasses that are not refused.
func threeInputs(t *testing.T) string {
	return writeNpy(t, "<f8", []int{4, 3, 3}, []float64{
		.8, .2, 0 /**/, .8, .2, 0 /**/, .5, .5, 0,
		.6, .4, 0 /**/, .6, .4, 0 /**/, .5, .5, 0,
		.8, .2, 0 /**/, .8, .2, 0 /**/, .5, .5, 0,
		.2, .4, .4 /**/, .6, .4, 0 /**/, .5, .5, 0,
	})
}

// handPolicy retains input 1 alone: see TestDecomposeDecidesByPolicy.
func TestEvaluatePolicy(t *testing.T) {
	t.Parallel()
	policy := writeFile(t, "p.yaml", handPolicy)
	args := []string{"evaluate", "--passes", threeInputs(t), "--labels", handLabels(t, 1, 2, 0), "--policy", policy,
		"--bootstrap", "1"}
	report := readReport(t, runOK(t, append(args, "--format", "json")...))
	compare(t, "policy", report["policy"], readLines(t, `{"model":"hand","scope":"all","observes":false,"retained":1,
		"critical_retained":1,"critical_missed":1,"critical_fnr":1,"critical_deferred_share":0.5,"miss_share":0.5}`)[0], 1e-12, 0)
	names := map[string]bool{}
	for _, row := range report["policies"].([]any) {
		names[at(t, row, "name").(string)] = true
	}
	if !names["policy"] || !names["any-critical"] || !names["deciding-class"] {
		t.Errorf("policies %v", names)
	}
	out := collapse(runOK(t, args...))
	wantFragment(t, out, "Model hand, scope all, hash ")
	wantFragment(t, out, "Retained 1 of 3 inputs: coverage 0.333.")
	wantFragment(t, out, "Critical FNR among the retained: 1.000 (1 of 1; 95% interval 0.025 to 1.000)")

	// Flags may repeat what the policy says.
	again := runOK(t, append(args, "--format", "json", "--classes", "a,b,c", "--critical", "c,b", "--safe", "a",
		"--kind", "probabilities", "--variance", "sample", "--sum-tolerance", "0.001")...)
	if again != runOK(t, append(args, "--format", "json")...) {
		t.Error("flags that say what the policy says change the report")
	}
	// The threshold of reliability is the policy's, unless it is given.
	strict := strings.Replace(handPolicy, "classes:", "reliability_threshold: 0.2\n    classes:", 1)
	args[6] = writeFile(t, "strict.yaml", strict)
	compare(t, "source", readReport(t, runOK(t, append(args, "--format", "json")...))["source"],
		map[string]any{"reliability_threshold": 0.2}, 0, 0)
	compare(t, "source", readReport(t, runOK(t, append(args, "--format", "json", "--reliability-threshold", "0.4")...))["source"],
		map[string]any{"reliability_threshold": 0.4}, 0, 0)
}

// What the passes are and how they are decomposed is the policy's to say.
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
	certified := strings.Replace(handPolicy, "classes:", "calibration: {recording: {passes_sha256: "+file.SHA256+
		"}, certificate: {kind: learn-then-test, target: 0.1, confidence: 0.9}}\n    classes:", 1)
	args := []string{"evaluate", "--passes", three, "--labels", handLabels(t, 1, 2, 0), "--policy",
		writeFile(t, "p.yaml", certified), "--bootstrap", "2"}
	// One input is retained, and missed: at a share of 0.1 that has the chance 0.1.
	compare(t, "certificate", at(t, readReport(t, runOK(t, append(args, "--format", "json")...)), "policy", "certificate"),
		map[string]any{"kind": "learn-then-test", "target": 0.1, "confidence": 0.9, "observed": 1.0, "held": true, "p_value": 0.1}, 1e-12, 0)
	out := strings.Join(strings.Fields(runOK(t, args...)), " ")
	wantFragment(t, out, "The certificate (learn-then-test, at most 0.100, confidence 0.9): 1.000 was observed here, above the target, "+
		"which chance allows (p 0.100).")
	wantFragment(t, out, "this is the recording that the policy was calibrated on")
}

func TestCertificateSays(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for _, c := range []struct {
		check eval.CertificateCheck
		want  string
	}{
		{eval.CertificateCheck{Observed: 0.1, Held: &yes, PValue: 0.6}, "(k, at most 0.150) held here (p 0.600): 0.100 was observed."},
		{eval.CertificateCheck{Observed: 0.15, Held: &yes, PValue: 0.6}, "(k, at most 0.150) held here (p 0.600): 0.150 was observed."},
		{eval.CertificateCheck{Observed: 0.2, Held: &yes, PValue: 0.2, Confidence: 0.95},
			"(k, at most 0.150, confidence 0.95): 0.200 was observed here, above the target, which chance allows (p 0.200)."},
		{eval.CertificateCheck{Observed: 0.4, Held: &no, PValue: 0.01}, "(k, at most 0.150) did not hold here (p 0.010): 0.400 was observed."},
		{eval.CertificateCheck{PValue: 1}, "(k, at most 0.150) has nothing to hold it against here: it bounds a share of no inputs."},
	} {
		c.check.Kind, c.check.Target = "k", 0.15
		if got := certificateSays(&c.check); got != "The certificate "+c.want {
			t.Errorf("%s\nwant The certificate %s", got, c.want)
		}
	}
}

// The score cbec of a report has no weights of pairs, the policy has its own.
func TestEvaluateLeavesWeightsToThePolicy(t *testing.T) {
	t.Parallel()
	rows := func(policy string) map[string]any {
		report := readReport(t, runOK(t, labelled("ensemble", "--policy", writeFile(t, "p.yaml", policy), "--bootstrap", "0",
			"--format", "json")...))
		rows := map[string]any{}
		for _, row := range report["policies"].([]any) {
			rows[at(t, row, "name").(string)+" "+at(t, row, "scope").(string)] = row
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
	wantFragment(t, out, "95% bootstrap band") // the curves with what resamples say of them
	wantFragment(t, out, "</html>")
}

func TestEvaluateWithoutCriticalClasses(t *testing.T) {
	t.Parallel()
	out := runOK(t, "evaluate", "--passes", recordings+"digits-id.passes.npy", "--labels", recordings+"digits-id.labels.npy",
		"--bootstrap", "2")
	wantFragment(t, out, "no critical classes")
	for _, fragment := range []string{"Selective prediction, scope predicted-safe", "The paper's rule", "NaN", "+Inf"} {
		if strings.Contains(out, fragment) {
			t.Errorf("%q is in it", fragment)
		}
	}
}

// With many classes, tables are cut. The critical class, which is the last and
// has no inputs, is shown in all of them.
func TestEvaluateTablesOfManyClasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		classes int
		cut     []string
	}{
		{26, []string{"14 more classes are left out here: --format json has all.", "\n 25 critical ", "\n 25 0 0 "}},
		{130, []string{"90 more classes are left out here: --format json has all.", "\n 129 critical "}},
	} {
		const inputs = 40
		passes := make([]float64, 0, 2*inputs*c.classes)
		labels := make([]int64, inputs)
		for s := range 2 {
			for i := range inputs {
				labels[i] = int64(i % 25)
				row := slices.Repeat([]float64{0.25 / float64(c.classes-1)}, c.classes)
				row[(i+s*(i%2))%25] = 0.75
				passes = append(passes, row...)
			}
		}
		out := collapse(runOK(t, "evaluate", "--passes", writeNpy(t, "<f8", []int{2, inputs, c.classes}, passes),
			"--labels", handLabels(t, labels...), "--critical", strconv.Itoa(c.classes-1), "--bootstrap", "2"))
		for _, fragment := range c.cut {
			wantFragment(t, out, fragment)
		}
		if shown := strings.Contains(out, "Confusion matrix"); shown != (c.classes <= eval.MaxMatrixClasses) {
			t.Errorf("%d classes: a confusion matrix is shown: %v", c.classes, shown)
		}
	}
}

func TestEvaluateErrors(t *testing.T) {
	t.Parallel()
	three, labels := threeInputs(t), handLabels(t, 1, 2, 0)
	policy := writeFile(t, "p.yaml", handPolicy)
	const lowrank = recordings + "ctg-lowrank"
	good := "--passes " + three + " --labels " + labels
	object := npyFile(t, "{'descr': '|O', 'fortran_order': False, 'shape': (4, 3, 3), }", strings.Repeat("\x00", 4*3*3*8))
	truncated := npyFile(t, "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 3, 3), }", strings.Repeat("\x00", 4*3*3*8-8))
	for _, c := range []struct {
		args, message string
		code          int
	}{
		{"", "missing flags: --labels=FILE, --passes=FILE", exitUsage},
		{"--passes x", "missing flags: --labels=FILE", exitUsage},
		{good + " --coverage 0", "--coverage 0: expected a share above 0 and up to 1", exitUsage},
		{good + " --coverage 1.01", "--coverage 1.01: expected", exitUsage},
		{good + " --coverage NaN", "--coverage NaN: expected", exitUsage},
		{good + " --bootstrap=-1", "--bootstrap -1: expected 0 to 100000", exitUsage},
		{good + " --bootstrap 100001", "--bootstrap 100001: expected 0 to 100000", exitUsage},
		{good + " --seed=-1", "--seed", exitUsage},
		{good + " --reliability-threshold 0", "--reliability-threshold 0: expected a finite number above 0", exitUsage},
		{good + " --sum-tolerance 0", "--sum-tolerance 0: expected", exitUsage},
		{good + " --format csv", "--format must be one of", exitUsage},
		{good + " --model hand", "expected --policy too", exitUsage},
		{good + " --safe 0", "--safe without --critical", exitUsage},
		{good + " --classes a,b", "--classes has 2 names, expected 3, the classes of " + three, exitUsage},
		{good + " --critical 3", `--critical: no class "3", expected some of: 0, 1, 2`, exitUsage},
		{good + " --out " + labels, "--out " + labels + " is what is read", exitUsage},
		{good + " --policy " + policy + " --classes a,c,b", "--classes is a, c, b, but model hand of " + policy + " has a, b, c", exitUsage},
		{good + " --policy " + policy + " --critical c", "--critical is c, but model hand of " + policy + " has b, c", exitUsage},
		{good + " --policy " + policy + " --safe b", "--safe is b, but", exitUsage},
		{good + " --policy " + policy + " --kind logits", "--kind is logits, but", exitUsage},
		{good + " --policy " + policy + " --variance population", "--variance is population, but", exitUsage},
		{good + " --policy " + policy + " --sum-tolerance 0.5", "--sum-tolerance is 0.5, but", exitUsage},
		{good + " --policy " + policy + " --model x", "--model x is not in " + policy + ", expected one of: hand", exitUsage},
		{good + " --policy " + policy + " --model hadn", `did you mean "hand"?`, exitUsage},
		{good + " extra", "unexpected argument extra", exitUsage},
		{"--passes " + three + " --labels " + handLabels(t, 1, 2), "2 labels, expected 3: one for each input of " + three, exitFault},
		{"--passes " + three + " --labels " + handLabels(t, 1, 2, 3), "label 2 is 3, expected 0 to 2", exitFault},
		{"--passes " + three + " --labels " + handLabels(t, 1, -2, 0), "label 1 is -2: expected the number of a class", exitFault},
		{"--passes " + three + " --labels " + three, "shape (4, 3, 3) has 3 axes: expected one", exitFault},
		{"--passes " + handPasses(t) + " --labels " + handLabels(t, 0, 0, 0, 0),
			"passes.npy: input 3: pass 1: class 2 is NaN, expected a finite number", exitFault},
		{"--passes " + three + " --labels " + handLabels(t, 1, 3, 1), "(do your labels count from 1?)", exitFault},
		{"--passes " + three + " --labels " + handNames(t, "a", "sick", "c"),
			`names.npy: label 0 is "a": expected one of the classes 0, 1, 2 (--classes gives them names)`, exitFault},
		{"--passes " + three + " --classes well,ill,sick --labels " + handNames(t, "well", "sikc", "ill"),
			`names.npy: label 1 is "sikc": expected one of the classes well, ill, sick, did you mean "sick"?`, exitFault},
		{"--passes " + three + " --labels " + writeNpy(t, "<f8", []int{3, 3}, []float64{1, 0, 0, 0, 1, 1, 1, 0, 0}),
			"passes.npy: row 1 is not one-hot: columns 1 and 2 are both 1", exitFault},
		{"--passes " + three + " --labels " + writeNpy(t, "<f8", []int{3, 2}, []float64{1, 0, 0, 1, 1, 0}),
			"shape (3, 2) has 2 columns: expected one-hot labels with a column for each of 3 classes", exitFault},
		{"--passes " + writeNpy(t, "<f8", []int{2, 1, 3}, []float64{10, 20, 70, 20, 10, 70}) + " --labels " + labels,
			"(a[0,0,:] sums to 100): percentages? divide by 100", exitFault},
		{"--passes " + object + " --labels " + labels, "object", exitFault},
		{"--passes " + truncated + " --labels " + labels, truncated + ": byte ", exitFault},
		{"--passes " + lowrank + ".passes.npy --labels " + policy, "p.yaml", exitFault},
		{"--passes " + lowrank + ".passes.npy --labels " + lowrank + ".labels.npy --policy " +
			strings.Replace(policy, "p.yaml", "no.yaml", 1), "no.yaml", exitFault},
		{"--passes no.npy --labels " + labels, "no.npy: no such file", exitFault},
		{good + " --out " + filepath.Join(t.TempDir(), "no", "file"), "no such file or directory", exitFault},
		{good + " --out " + t.TempDir(), "is a folder, expected a file", exitFault},

		{"settle --policy " + policy + " --passes " + lowrank + ".passes.npy --labels " + handNames(t, "a", "B2"),
			`label 1 is "B2": expected one of the classes a, b, c`, exitFault},
		{"ood --id " + three, "--ood", exitUsage},
		{"ood --id a --ood b --ood c", "1 x --id and 2 x --ood, expected one of each for every seed", exitUsage},
		{"ood --id a --ood b --critical x", "unknown flag --critical", exitUsage},
		{"ood --id " + three + " --ood " + three + " --classes a", "--classes has 1 names, expected 3", exitUsage},
		{"ood --id " + three + " --ood " + three + " --out " + three, "is what is read", exitUsage},
		{"ood --id " + three + " --ood " + recordings + "digits-ood.passes.npy",
			"digits-ood.passes.npy has 7 classes, expected 3, as " + three + " has", exitFault},
		{"ood --id " + three + " --ood no.npy", "no.npy: no such file", exitFault},
		{"ood --id " + three + " --ood " + handPasses(t), "input 3: pass 1: class 2 is NaN", exitFault},
		{"disentangle", "0 x --level, expected it for the baseline and for at least one level above", exitUsage},
		{"disentangle --level 0=a", "1 x --level, expected it for the baseline and", exitUsage},
		{"disentangle --level 0=a --level 0.0=b", "--level 0 is given twice", exitUsage},
		{"disentangle --level a --level 1=b", `"a": expected LEVEL=FILE`, exitUsage},
		{"disentangle --level 0= --level 1=b", `"0=": expected LEVEL=FILE`, exitUsage},
		{"disentangle --level x=a --level 1=b", `level "x": expected a finite number from 0`, exitUsage},
		{"disentangle --level=-1=a --level 1=b", `level "-1": expected a finite number from 0`, exitUsage},
		{"disentangle --level NaN=a --level 1=b", `level "NaN": expected a finite number from 0`, exitUsage},
		{"disentangle --level 0=" + three + " --level 1=" + recordings + "digits-noise-10.passes.npy", "has 10 classes, expected 3", exitFault},
		{"disentangle --level 0=" + three + " --level 1=" + handPasses(t) + " --out " + three, "is what is read", exitUsage},
	} {
		t.Run(c.args, func(t *testing.T) {
			out, stderr, code := runCommand(t, append([]string{"evaluate"}, strings.Fields(c.args)...)...)
			if code != c.code || out != "" {
				t.Errorf("exit code %d, expected %d; output %.80q", code, c.code, out)
			}
			wantFragment(t, stderr, c.message)
		})
	}
}

// npyFile is an .npy file with a header and data of our choice.
func npyFile(t *testing.T, header, data string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\x93NUMPY\x01\x00")
	_ = binary.Write(&b, binary.LittleEndian, uint16(len(header)+1))
	b.WriteString(header + "\n" + data)
	return writeFile(t, "array.npy", b.String())
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
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	folder := t.TempDir()
	var stderr bytes.Buffer
	code := run(&cmdContext{ctx, strings.NewReader(""), io.Discard, &stderr},
		labelled("ensemble", "--out", filepath.Join(folder, "report.txt")))
	if code != exitFault {
		t.Errorf("exit code %d, expected %d", code, exitFault)
	}
	wantFragment(t, stderr.String(), "ckd: interrupted: nothing was written")
	if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
		t.Errorf("the folder has %v (%v), expected nothing", entries, err)
	}
}

func TestEvaluateTablesOfShift(t *testing.T) {
	t.Parallel()
	id, ood := recordings+"digits-id.passes.npy", recordings+"digits-ood.passes.npy"
	out := collapse(runOK(t, "evaluate", "ood", "--id", id, "--ood", ood, "--classes", "zero,one,two,three,four,five,six"))
	for _, fragment := range []string{ // of golden/digits.ood.json
		"The highest AUROC is that of entropy.", "\n sum_c 0.915 ", "\n zero 0.736 10.983 ", "\n one 3.480 1.448 ", " lower \n",
	} {
		wantFragment(t, out, fragment)
	}
	// The second seed is told apart by nothing: AUROC 1/2, so .915/2 + 1/4 = .708 on average.
	out = collapse(runOK(t, "evaluate", "ood", "--id", id, "--ood", ood, "--id", id, "--ood", id))
	wantFragment(t, out, "means over 2 seeds ± their standard deviation")
	wantFragment(t, out, "\n sum_c 0.708 ± 0.294 ")

	noise := func(percent string) string { return recordings + "digits-noise-" + percent + ".passes.npy" }
	out = collapse(runOK(t, "evaluate", "disentangle", "--level", "0="+noise("00"), "--level", "0.1="+noise("10")))
	wantFragment(t, out, "\n 0.1 0.010 0.010 0.033 0.026 sum_c \n") // golden/digits.disentangle.json
	wantFragment(t, out, "2 levels are too few for rank correlations")
	out = collapse(runOK(t, "evaluate", "disentangle", "--level", "0="+noise("00"), "--level", "0.1="+noise("10"),
		"--level", "0.2="+noise("20")))
	wantFragment(t, out, "(consistency, 1 is best): 1.000.")
}

// What is read from a pipe has no hash, and that is no error.
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
	archive := writeNpz(t, map[string]string{"a.npy": threeInputs(t)})
	whole, err := hashFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	member, err := hashFile(archive + ":a")
	if err != nil || member.SHA256 != whole.SHA256 || member.Name != archive+":a" || len(whole.SHA256) != 64 {
		t.Errorf("%+v and %+v, %v", whole, member, err)
	}
}

func TestPValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p, log10 float64
		want     string
	}{{1, 0, "1.000"}, {0.0302, math.Log10(0.0302), "0.030"}, {3e-52, -51.5, "3e-52"}, {0, -574.2, "1e-574"}} {
		if got := pValue(c.p, c.log10); got != c.want {
			t.Errorf("%v: %s, expected %s", c.p, got, c.want)
		}
	}
}

// docs/cli.md names every flag of the commands of evaluate.
func TestDocsNameFlagsOfEvaluate(t *testing.T) {
	t.Parallel()
	section := docsSection(t, "../../docs/cli.md", "## ckd evaluate")
	parser, err := newParser(&cmdContext{})
	if err != nil {
		t.Fatal(err)
	}
	flags := 0
	for _, command := range parser.Model.Children {
		if command.Name != "evaluate" {
			continue
		}
		for _, child := range command.Children {
			wantFragment(t, section, "ckd evaluate")
			for _, flag := range child.Flags {
				flags++
				if !strings.Contains(section, "--"+flag.Name) {
					t.Errorf("%s: nothing on --%s", child.Name, flag.Name)
				}
			}
		}
	}
	if flags < 20 {
		t.Errorf("%d flags are not all", flags)
	}
}

// docs/evaluate.md has a row for every field of the reports, in the section of
// the report, and no row for what is none.
func TestDocsNameFieldsOfReports(t *testing.T) {
	t.Parallel()
	for title, report := range map[string]any{
		"## The JSON of `ckd evaluate`":             eval.Report{},
		"## The JSON of `ckd evaluate ood`":         eval.OODReport{},
		"## The JSON of `ckd evaluate disentangle`": eval.DisentangleReport{},
	} {
		told := map[string]bool{}
		for _, m := range regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_.\\[\\]]+)` \\| ").FindAllStringSubmatch(docsSection(t,
			"../../docs/evaluate.md", title), -1) {
			told[m[1]] = true
		}
		for _, path := range fieldsOf(reflect.TypeOf(report), "") {
			if !told[path] {
				t.Errorf("%s: nothing on %s", title, path)
			}
			delete(told, path)
		}
		if len(told) > 0 {
			t.Errorf("%s: tells of %v, which is no field", title, told)
		}
	}
}

// fieldsOf lists the paths of a type's JSON fields that hold values; [] stands
// for the entries of a list. A list or map of values is one value, and so is an
// interval, and the standard deviations that stand beside figures.
func fieldsOf(of reflect.Type, path string) (paths []string) {
	if of == reflect.TypeFor[eval.Interval]() && !strings.HasSuffix(path, ".bootstrap") { // there it is embedded
		return []string{path}
	}
	if strings.HasSuffix(path, ".sd") {
		return []string{path}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return fieldsOf(of.Elem(), path)
	case reflect.Slice:
		if elem := of.Elem(); elem.Kind() == reflect.Struct {
			return fieldsOf(elem, path+"[]")
		}
		return []string{path}
	case reflect.Map:
		if elem := of.Elem(); elem.Kind() == reflect.Struct {
			return fieldsOf(elem, path+".NAME")
		}
		return []string{path}
	case reflect.Struct:
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-":
			case name == "": // embedded
				paths = append(paths, fieldsOf(f.Type, path)...)
			default:
				paths = append(paths, fieldsOf(f.Type, strings.TrimPrefix(path+"."+name, "."))...)
			}
		}
		return paths
	}
	return []string{path}
}

// docsSection is the text of a file under a title, up to the next of its level.
func docsSection(t *testing.T, file, title string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut("\n"+string(data), "\n"+title+"\n")
	if !ok {
		t.Fatalf("%s: no section %q", file, title)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}
