package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/bench/internal/host"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
)

// TestNumpyAgrees compares every number of a report with that of the script, an independent
// implementation, to 1e-9.
func TestNumpyAgrees(t *testing.T) {
	p, err := host.FindPython(t.Context(), "")
	if errors.As(err, new(*host.NoPythonError)) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	const resamples = 100
	for name, s := range map[string]shape{
		"as the paper":                  {inputs: 1500, passes: 30, classes: 4, seed: 1},
		"two classes, no skewness":      {inputs: 500, passes: 2, classes: 2, seed: 2},
		"many classes, some never seen": {inputs: 1000, passes: 6, classes: 26, seed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := writeRecording(folder, s); err != nil {
				t.Fatal(err)
			}
			script := filepath.Join(folder, "evaluate.py")
			if err := os.WriteFile(script, evaluateScript, 0o600); err != nil {
				t.Fatal(err)
			}
			theirs, _, err := execute(t.Context(), nil, p.Path, script, filepath.Join(folder, passesName),
				filepath.Join(folder, labelsName), "--critical", s.critical(), "--bootstrap", strconv.Itoa(resamples))
			if err != nil {
				t.Fatal(err)
			}
			a, err := compare(report(t, folder, s, resamples), theirs, resamples)
			if err != nil {
				t.Fatal(err)
			}
			if a.compared < 20_000 || a.resampled < 500 { // 26 curves of 6 x 200 counts; 26 x 21 figures and the pairs of different rankings
				t.Errorf("compared %d numbers and %d over resamples, expected more", a.compared, a.resampled)
			}
		})
	}
}

// report returns the report of a recording as JSON, by package eval.
func report(t *testing.T, folder string, s shape, resamples int) []byte {
	t.Helper()
	passes, err := record.ReadPasses(filepath.Join(folder, passesName), record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	labels, err := record.ReadLabels(filepath.Join(folder, labelsName))
	if err != nil {
		t.Fatal(err)
	}
	spec := decomp.Spec{Classes: s.classes}
	for k := range s.classes {
		if k < s.classes/2 {
			spec.Safe = append(spec.Safe, k)
		} else {
			spec.Critical = append(spec.Critical, k)
		}
	}
	recording := eval.Recording{Name: passes.Name, Classes: passes.K, Passes: decomp.Tensor{
		Passes: passes.S, Inputs: passes.N, Float32: passes.Float32, Float64: passes.Float64,
	}}
	table, err := eval.NewTable(t.Context(), recording, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := eval.Evaluate(t.Context(), table, labels, eval.Options{Coverage: 0.8, Bootstrap: resamples, Seed: 42})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestCompare(t *testing.T) {
	const ours = `{"source": {}, "notes": [], "summary": {"inputs": 2126, "mi": 0.25}, "matrix": [[1, 2], [3, 4]],
		"bootstrap": {"mean": 0.5, "sd": 0.1, "low": 0.3, "high": 0.7, "win_share": 0.5},
		"pairwise": [{"row": "mi", "p": 0.5}], "up_to": null}`
	theirs := `{"summary": {"inputs": 2126, "mi": 0.25}, "matrix": [[1, 2], [3, 4]],
		"bootstrap": {"mean": 0.5, "sd": 0.1, "low": 0.3, "high": 0.7, "win_share": 0.5},
		"pairwise": [{"row": "mi", "p": 0.5}], "up_to": null}`
	for _, test := range []struct{ name, from, to, fault string }{
		{name: "equal"},
		{"within the tolerance", `"mi": 0.25`, `"mi": 0.2500000009`, ""},
		{"a number", `"mi": 0.25`, `"mi": 0.2500000011`, "summary.mi: 0.25 and 0.2500000011"},
		{"a count", "2126", "2127", "summary.inputs: 2126 and 2127"},
		{"no number", `"mi": 0.25`, `"mi": null`, "summary.mi: 0.25 and <nil>"},
		{"a missing key", `"mi"`, `"sum_c"`, "summary: keys inputs,mi and inputs,sum_c"},
		{"a missing row", "[3, 4]", "[3]", "matrix[1]: 2 entries and 1"},
		{"a cell", "[3, 4]", "[3, 5]", "matrix[1][1]: 4 and 5"},
		{"a name", `"row": "mi"`, `"row": "cbec"`, "pairwise[0].row: mi and cbec"},
		{"not null", "null", "0", "up_to: <nil> and 0"},
		{"no object", `{"inputs": 2126, "mi": 0.25}`, "1", "summary: keys inputs,mi and "},
		{"no JSON", "}", "", "report of numpy"},
		// Six standard errors of the difference of two means over 200 resamples are 0.6 sd.
		{"a mean by chance", `"mean": 0.5`, `"mean": 0.555`, ""},
		{"a mean", `"mean": 0.5`, `"mean": 0.565`, "bootstrap.mean"},
		{"a deviation by chance", `"sd": 0.1`, `"sd": 0.12`, ""},
		{"a deviation", `"sd": 0.1`, `"sd": 0.2`, "bootstrap.sd"},
		{"an end by chance", `"low": 0.3`, `"low": 0.35`, ""},
		{"ends exchanged", `"low": 0.3, "high": 0.7`, `"low": 0.7, "high": 0.3`, "bootstrap.high"},
		{"a share by chance", `"p": 0.5`, `"p": 0.7`, ""},
		{"a share", `"p": 0.5`, `"p": 0.9`, "pairwise[0].p"},
		{"wins", `"win_share": 0.5`, `"win_share": 0.1`, "bootstrap.win_share"},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := theirs
			if test.from != "" {
				if changed = strings.Replace(theirs, test.from, test.to, 1); changed == theirs {
					t.Fatalf("%q is not in the report", test.from)
				}
			}
			a, err := compare([]byte(ours), []byte(changed), 200)
			switch {
			case test.fault == "" && err != nil:
				t.Error(err)
			case test.fault == "" && (a.compared != 6 || a.resampled != 6):
				t.Errorf("compared %d numbers and %d over resamples, expected 6 and 6", a.compared, a.resampled)
			case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
				t.Errorf("error %v, expected %q", err, test.fault)
			}
		})
	}
}

func TestSummarise(t *testing.T) {
	run := func(wall, cpu, peak int) usage {
		return usage{time.Duration(wall), time.Duration(cpu), int64(peak)}
	}
	for _, test := range []struct {
		runs     []usage
		expected usage
	}{
		{[]usage{run(30, 3, 7), run(10, 1, 9), run(20, 9, 8)}, run(20, 3, 9)},
		{[]usage{run(40, 1, 1), run(10, 2, 1), run(20, 3, 1), run(30, 4, 1)}, run(25, 2, 1)}, // 2.5 of whole nanoseconds
	} {
		if got := summarise(slices.Clone(test.runs)); got != test.expected {
			t.Errorf("summary of %v is %v, expected %v", test.runs, got, test.expected)
		}
	}
}
