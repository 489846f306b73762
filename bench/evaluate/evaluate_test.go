package evaluate

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/bench/internal/host"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
)

// TestNumpyAgrees compares every number of a report with that of the script, an independent
// implementation, to 1e-9.
func TestNumpyAgrees(t *testing.T) {
	python, _, err := host.FindPython(t.Context())
	if err != nil {
		t.Skip(err)
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
			var told bytes.Buffer
			c := exec.CommandContext(t.Context(), python, "evaluate.py", filepath.Join(folder, passesName),
				filepath.Join(folder, labelsName), "--critical", s.critical(), "--bootstrap", strconv.Itoa(resamples))
			c.Stderr = &told
			theirs, err := c.Output()
			if err != nil {
				t.Fatal(err, told.String())
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
		{"a number", `"mi": 0.25`, `"mi": 0.2500000011`, "summary.mi: 0.25 and 0.2500000011"},
		{"a missing key", `"mi"`, `"sum_c"`, "summary: keys inputs,mi and inputs,sum_c"},
		// Six standard errors of the difference of two means over 200 resamples are 0.6 sd.
		{"a mean", `"mean": 0.5`, `"mean": 0.565`, "bootstrap.mean"},
		{"a share", `"p": 0.5`, `"p": 0.9`, "pairwise[0].p"},
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
