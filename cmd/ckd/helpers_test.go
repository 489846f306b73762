package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

const recordings = "../../internal/recordings/"

// ctg returns the flags for a recording of the fetal heart classifiers.
func ctg(name string) []string {
	return []string{"decompose", "--passes", recordings + "ctg-" + name + ".passes.npy",
		"--classes", "normal,suspect,pathologic", "--critical", "suspect,pathologic"}
}

// labelled returns the flags for a recording of the fetal heart classifiers with its labels.
func labelled(name string, more ...string) []string {
	args := ctg(name)
	args[0] = "evaluate"
	return append(append(args, "--labels", recordings+"ctg-"+name+".labels.npy"), more...)
}

// calibrating returns the flags to calibrate on a recording of the fetal heart classifiers.
func calibrating(name string, more ...string) []string {
	args := labelled(name, more...)
	args[0] = "calibrate"
	return args
}

// handPolicy decides on handPasses.
const handPolicy = `
models:
  - name: hand
    classes: [a, b, c]
    critical: [b, c]
    passes: {fewest: 4}
    top_classes: 1
    primary: {score: c_crit_max, threshold: 0.05}
    fallback: {score: cbec, threshold: 0.14}
`

// handPasses writes 4 passes of 4 inputs, whose figures TestDecomposeDecidesByPolicy works out by hand.
// The last input has a NaN.
func handPasses(t *testing.T) string {
	return writeNpy(t, "<f8", []int{4, 4, 3}, []float64{
		.8, .2, 0 /**/, .8, .2, 0 /**/, .5, .5, 0 /**/, 1, 0, 0,
		.6, .4, 0 /**/, .6, .4, 0 /**/, .5, .5, 0 /**/, 1, 0, math.NaN(),
		.8, .2, 0 /**/, .8, .2, 0 /**/, .5, .5, 0 /**/, 1, 0, 0,
		.2, .4, .4 /**/, .6, .4, 0 /**/, .5, .5, 0 /**/, 1, 0, 0,
	})
}

// threeInputs writes the inputs of handPasses that are not refused.
func threeInputs(t *testing.T) string {
	return writeNpy(t, "<f8", []int{4, 3, 3}, []float64{
		.8, .2, 0 /**/, .8, .2, 0 /**/, .5, .5, 0,
		.6, .4, 0 /**/, .6, .4, 0 /**/, .5, .5, 0,
		.8, .2, 0 /**/, .8, .2, 0 /**/, .5, .5, 0,
		.2, .4, .4 /**/, .6, .4, 0 /**/, .5, .5, 0,
	})
}

// handLabels writes labels by number.
func handLabels(t *testing.T, labels ...int64) string {
	t.Helper()
	return writeArray(t, "labels.npy", &record.Array{Shape: []int{len(labels)}, Int64: labels})
}

// handNames writes labels by name.
func handNames(t *testing.T, names ...string) string {
	t.Helper()
	const most = 8 // characters of a name
	dict := fmt.Sprintf("{'descr': '<U%d', 'fortran_order': False, 'shape': (%d,), }", most, len(names))
	file := "\x93NUMPY\x01\x00" + string([]byte{byte(len(dict)), 0}) + dict
	for _, name := range names {
		for _, r := range name + strings.Repeat("\x00", most-len(name)) {
			file += string([]byte{byte(r), 0, 0, 0})
		}
	}
	return writeFile(t, "names.npy", file)
}

// runCommand runs a command line as main does.
func runCommand(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(&cmdContext{t.Context(), strings.NewReader(""), &out, &errs}, args)
	return out.String(), errs.String(), code
}

// runOK runs a command line that must succeed, and returns its standard output.
func runOK(t *testing.T, args ...string) string {
	t.Helper()
	out, stderr, code := runCommand(t, args...)
	if code != exitOK {
		t.Fatalf("%q: exit code %d: %s", args, code, stderr)
	}
	return out
}

// refusal is a command line that fails before it prints anything on the standard output.
type refusal struct {
	args, message string
	code          int
}

// expectRefusals runs a command with the arguments of each case, and expects its exit code and its
// message.
func expectRefusals(t *testing.T, command string, cases []refusal) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.message, func(t *testing.T) {
			out, stderr, code := runCommand(t, strings.Fields(command+" "+c.args)...)
			if code != c.code || out != "" {
				t.Errorf("%s: exit code %d, expected %d; output %.80q", c.args, code, c.code, out)
			}
			wantFragment(t, stderr, c.message)
		})
	}
}

// expectInterrupted runs a command line whose context has ended, and expects its message.
func expectInterrupted(t *testing.T, args []string, message string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	if code := run(&cmdContext{ctx, strings.NewReader(""), io.Discard, &stderr}, args); code != exitFault {
		t.Errorf("exit code %d, expected %d", code, exitFault)
	}
	wantFragment(t, stderr.String(), message)
}

// wantFragment expects a text to contain a fragment.
func wantFragment(t *testing.T, text, fragment string) {
	t.Helper()
	if !strings.Contains(text, fragment) {
		t.Errorf("%q\nexpected in it: %q", text, fragment)
	}
}

// wantFragments expects all the fragments in a text whose spaces are collapsed.
func wantFragments(t *testing.T, text string, fragments ...string) {
	t.Helper()
	for _, f := range fragments {
		wantFragment(t, collapse(text), f)
	}
}

// collapse replaces every run of spaces by one.
func collapse(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = " " + strings.Join(strings.Fields(l), " ") + " "
	}
	return strings.Join(lines, "\n")
}

// readLines reads JSON values, one after another.
func readLines(t *testing.T, text string) (lines []map[string]any) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

// readReport reads a single JSON value.
func readReport(t *testing.T, text string) map[string]any {
	t.Helper()
	lines := readLines(t, text)
	if len(lines) != 1 {
		t.Fatalf("%d JSON values, expected 1", len(lines))
	}
	return lines[0]
}

// valueAt returns a value inside JSON values, by keys and positions.
func valueAt(t *testing.T, v any, keys ...any) any {
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

// compare expects got to have every key of want, with an equal value.
func compare(t *testing.T, path string, got, want any, relative, absolute float64) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for key, v := range w {
			if _, there := g[key]; !there {
				t.Errorf("%s: no %s", path, key)
				continue
			}
			compare(t, path+"."+key, g[key], v, relative, absolute)
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			t.Errorf("%s: %d values, expected %d", path, len(g), len(w))
			return
		}
		for i := range w {
			compare(t, fmt.Sprintf("%s[%d]", path, i), g[i], w[i], relative, absolute)
		}
	case float64:
		g, ok := got.(float64)
		if d := math.Abs(g - w); !ok || !(d <= absolute || d <= relative*math.Abs(w)) {
			t.Errorf("%s: %v, expected %v", path, got, w)
		}
	default:
		if got != want {
			t.Errorf("%s: %v, expected %v", path, got, want)
		}
	}
}

// readGolden reads what an independent implementation computed. See the README of
// internal/recordings.
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

// readPasses reads a recording of the project by its name, or else a file.
func readPasses(t *testing.T, path string) *record.Passes {
	t.Helper()
	if !strings.Contains(path, "/") {
		path = recordings + path + ".passes.npy"
	}
	passes, err := record.ReadPasses(path, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return passes
}

// readTruth reads the labels of a recording of the project by number.
func readTruth(t *testing.T, name string) []int {
	t.Helper()
	labels, err := record.ReadLabels(recordings + name + ".labels.npy")
	if err != nil {
		t.Fatal(err)
	}
	return labels
}

// writePasses writes the first inputs of a recording in a layout, as float32 or float64.
func writePasses(t *testing.T, dtype string, p *record.Passes, layout record.Layout, inputs int) string {
	t.Helper()
	var values []float64
	if layout == record.NSK {
		for n := range inputs {
			for s := range p.S {
				values = p.Row(values, s, n)
			}
		}
		return writeNpy(t, dtype, []int{inputs, p.S, p.K}, values)
	}
	for s := range p.S {
		for n := range inputs {
			values = p.Row(values, s, n)
		}
	}
	return writeNpy(t, dtype, []int{p.S, inputs, p.K}, values)
}

// readPolicy reads the policy of a file.
func readPolicy(t *testing.T, path string) *policy.Policy {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return outcometest.Policy(t, string(data))
}

// writeFile writes a text to a new file.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeNpy writes values to a new file, as float32 or float64.
func writeNpy(t *testing.T, dtype string, shape []int, values []float64) string {
	t.Helper()
	a := &record.Array{Shape: shape}
	if dtype == "<f8" {
		a.Float64 = values
	} else {
		for _, v := range values {
			a.Float32 = append(a.Float32, float32(v))
		}
	}
	return writeArray(t, "passes.npy", a)
}

// writeArray writes an array to a new file.
func writeArray(t *testing.T, name string, a *record.Array) string {
	t.Helper()
	var b bytes.Buffer
	if err := record.Write(&b, a); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, name, b.String())
}
