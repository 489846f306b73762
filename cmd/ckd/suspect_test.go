package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/record"
)

// shifted writes a recording of which one member has its classes in another order, as one saved by a
// script that sorts their names has.
func shifted(t *testing.T) string {
	t.Helper()
	p, err := record.ReadPasses(recordings+"ctg-ensemble.passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.N {
		row := p.Float32[p.Offset(3, i):][:p.K]
		row[0], row[1], row[2] = row[1], row[2], row[0]
	}
	return writeArray(t, "shifted.npy", &record.Array{Shape: []int{p.S, p.N, p.K}, Float32: p.Float32})
}

// TestSuspectRecording checks that a recording that is not what it seems is called so before anything
// else, in every form of a report, and that nothing is certified on it. Such a recording was certified
// without a word.
func TestSuspectRecording(t *testing.T) {
	t.Parallel()
	passes := shifted(t)
	labelled := []string{"--passes", passes, "--labels", recordings + "ctg-ensemble.labels.npy", "--critical", "1,2"}
	const sign, text = `"signs":[{"sign":"foreign_passes","count":1,"of":5,"passes":[3],`, "Warning: Pass 3 is unlike the others"
	evaluate := func(format string) string {
		return runOK(t, append([]string{"evaluate", "--bootstrap", "0", "--format", format}, labelled...)...)
	}
	if out := evaluate("json"); !strings.HasPrefix(out, "{"+sign) {
		t.Errorf("JSON begins %.200s", out)
	}
	if out := evaluate("table"); !strings.HasPrefix(out, text) {
		t.Errorf("text begins %.200s", out)
	}
	if out := evaluate("html"); !strings.Contains(strings.Split(out, "critical inputs")[0], `<strong>Warning:</strong> Pass 3`) {
		t.Error("HTML has no warning at its head")
	}
	for _, objective := range [][]string{{"--max-critical-fnr", "0.2"}, {"--coverage", "0.8"}} {
		output := filepath.Join(t.TempDir(), "policy.yaml")
		out, _, code := runCommand(t, append(append([]string{"calibrate", "--out", output}, objective...), labelled...)...)
		if _, err := os.Stat(output); code != exitUncertified || err == nil || !strings.HasPrefix(out, text) {
			t.Errorf("%v: exit code %d, policy %v, report begins %.300s", objective, code, err == nil, out)
		}
	}
	for _, args := range [][]string{{"decompose", "--passes", passes}, {"evaluate", "ood", "--id", passes, "--ood", passes}} {
		if _, stderr, code := runCommand(t, args...); code != exitOK || !strings.Contains(stderr, "ckd: warning: "+passes+": Pass 3 is") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}

// TestOversampledRecording checks that copies of inputs are one group. Copied critical inputs stood on both
// sides of the split, and certificates at 0.9 were violated in 10 of 25 draws.
func TestOversampledRecording(t *testing.T) {
	t.Parallel()
	p, err := record.ReadPasses(recordings+"ctg-mcdropout.passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	labels, err := record.ReadLabels(recordings + "ctg-mcdropout.labels.npy")
	if err != nil {
		t.Fatal(err)
	}
	var inputs []int
	for i, label := range labels {
		for range 1 + 4*min(label, 1) {
			inputs = append(inputs, i)
		}
	}
	copied := &record.Array{Shape: []int{p.S, len(inputs), p.K}}
	groupArray := &record.Array{Shape: []int{len(inputs)}}
	for s := range p.S {
		for _, i := range inputs {
			copied.Float32 = append(copied.Float32, p.Float32[p.Offset(s, i):][:p.K]...)
		}
	}
	for _, i := range inputs {
		groupArray.Int64 = append(groupArray.Int64, int64(labels[i]))
	}
	files := []string{"--passes", writeArray(t, "copied.npy", copied), "--labels", writeArray(t, "of.npy", groupArray), "--critical", "1,2"}
	calibrated := readReport(t, runOK(t, append([]string{"calibrate", "--max-critical-fnr", "0.12", "--confidence", "0.9", "--format", "json"}, files...)...))
	evaluated := readReport(t, runOK(t, append([]string{"evaluate", "--bootstrap", "0", "--format", "json"}, files...)...))
	for what, groups := range map[string]any{"calibrate": valueAt(t, calibrated, "groups"), "evaluate": valueAt(t, evaluated, "source", "groups")} {
		if groups != float64(p.N) {
			t.Errorf("%s counts %v groups, want the %d distinct inputs", what, groups, p.N)
		}
	}
	if sign := valueAt(t, calibrated, "signs", 0, "sign"); sign != "equal_inputs" {
		t.Errorf("sign %v", sign)
	}
	if groups := valueAt(t, calibrated, "certificate", "groups"); groups == float64(0) {
		t.Errorf("the certificate rests on %v groups", groups)
	}
}
