package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/record"
)

const recordings = "../../internal/recordings/"

// ctg are the flags for a recording of the fetal heart classifiers.
func ctg(name string) []string {
	return []string{"decompose", "--passes", recordings + "ctg-" + name + ".passes.npy",
		"--classes", "normal,suspect,pathologic", "--critical", "suspect,pathologic"}
}

// The golden lines are those of an independent implementation; see the README
// of internal/recordings. 1e-9 relative or 1e-15 absolute.
func TestDecomposeAgreesWithGolden(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mcdropout", "lowrank", "ensemble"} {
		t.Run(name, func(t *testing.T) {
			out := runOK(t, ctg(name)...)
			lines := readLines(t, out)
			golden, err := os.ReadFile(recordings + "golden/ctg-" + name + ".decompose.jsonl")
			if err != nil {
				t.Fatal(err)
			}
			want := readLines(t, string(golden))
			if len(want) != 100 || len(lines) != 2126 {
				t.Fatalf("%d golden lines and %d lines, expected 100 and 2126", len(want), len(lines))
			}
			for _, w := range want {
				i := int(w["index"].(float64))
				compare(t, fmt.Sprintf("input %d", i), lines[i], w, 1e-9, 1e-15)
			}
		})
	}
}

// compare holds got against every key of want.
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

func TestLineKeysAreInOrder(t *testing.T) {
	t.Parallel()
	policy := writeFile(t, "p.yaml", handPolicy)
	out, _, _ := runCommand(t, "decompose", "--passes", handPasses(t), "--policy", policy)
	lines := strings.Split(out, "\n")
	wantKeys := "index predicted mean variance third_moment c skewness m entropy expected_entropy mi sum_c scores " +
		"scores.entropy scores.mi scores.maxprob scores.eu_var scores.var_crit scores.eu_var_crit scores.ova_mi " +
		"scores.c_crit_sum scores.c_crit_max scores.cbec " +
		"degenerate saturated passes dominant c3 sum_c_top sum_c_weighted pairs " +
		"pairs.a pairs.b pairs.confusion pairs.correlation pairs.a pairs.b pairs.confusion pairs.correlation " +
		"decision decision.action decision.score decision.value decision.threshold decision.gate decision.class " +
		"decision.reason"
	if keys := strings.Join(keysOf(t, lines[0]), " "); keys != wantKeys {
		t.Errorf("keys %s\nexpected %s", keys, wantKeys)
	}
	if keys := strings.Join(keysOf(t, lines[3]), " "); keys != "index error error.reason error.message" {
		t.Errorf("keys of a refused input: %s", keys)
	}
}

// keysOf lists the keys of a JSON object as they come, those of objects in it
// under its own.
func keysOf(t *testing.T, text string) (keys []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	var value func(path string)
	value = func(path string) {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		for d.More() && (token == json.Delim('{') || token == json.Delim('[')) {
			inner := path
			if token == json.Delim('{') {
				key, _ := d.Token()
				inner = strings.TrimPrefix(path+"."+key.(string), ".")
				keys = append(keys, inner)
			}
			value(inner)
		}
		if token == json.Delim('{') || token == json.Delim('[') {
			_, _ = d.Token()
		}
	}
	value("")
	return keys
}

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

// handPasses are 4 passes of 4 inputs, whose numbers were worked out by hand
// below. The last input has a NaN.
func handPasses(t *testing.T) string {
	return writeNpy(t, "<f8", []int{4, 4, 3}, []float64{
		.8, .2, 0 /**/, .8, .2, 0 /**/, .5, .5, 0 /**/, 1, 0, 0,
		.6, .4, 0 /**/, .6, .4, 0 /**/, .5, .5, 0 /**/, 1, 0, math.NaN(),
		.8, .2, 0 /**/, .8, .2, 0 /**/, .5, .5, 0 /**/, 1, 0, 0,
		.2, .4, .4 /**/, .6, .4, 0 /**/, .5, .5, 0 /**/, 1, 0, 0,
	})
}

// By hand, with the sample variance (S-1 = 3) and Epsilon left out, which is
// 1e-9 of the smallest mean here:
//
// Input 0: class c is 0, 0, 0, .4: mu = .1, Var = (3*.01+.09)/3 = .04,
// m3 = (3*-.001+.027)/4 = .006, skewness = .006/(3*.1*.04) = .5 > .3: fallback.
// Class a is .8, .6, .8, .2: Var = .08, m3 = -.012, skewness = .012/(3*.6*.08).
// mu_a = .6, mu_b = .3; Cov_ab = -.08/3, Cov_ac = -.16/3;
// cbec = (.08/3)/(2 sqrt(.18)) + (.16/3)/(2 sqrt(.06)) = .03142697 + .10886621,
// above .14, and most of it comes from class c. C = .08/1.2, (.04/3)/.6, .04/.2;
// C - m3/(6 mu^2) adds .012/2.16 to a and takes .006/.06 from c; the sum over the
// one most probable class is C_a, the sum of mu C is .04 + .02/3 + .02.
//
// Input 1: class b is .2, .4, .2, .4: mu = .3, Var = .04/3, m3 = 0; C_b =
// (.04/3)/(2*.3) = .0222222, under .05. Class c is 0.
//
// Input 2: all passes are the same, but not one-hot.
func TestDecomposeDecidesByPolicy(t *testing.T) {
	t.Parallel()
	policy := writeFile(t, "p.yaml", handPolicy)
	out, stderr, code := runCommand(t, "decompose", "--passes", handPasses(t), "--policy", policy)
	if code != exitFault {
		t.Errorf("exit code %d, expected %d", code, exitFault)
	}
	wantFragment(t, stderr, "ckd: 1 of 4 inputs were refused; the first: input 3: pass 1: class 2 is NaN")
	lines := readLines(t, out)
	for i, want := range []string{
		`{"action":"defer","score":"cbec","value":0.14029318,"threshold":0.14,"gate":"fallback","class":2,` +
			`"reason":"above_threshold"}`,
		`{"action":"retain","score":"c_crit_max","value":0.02222222,"threshold":0.05,"gate":"primary","class":null,` +
			`"reason":"under_threshold"}`,
		`{"action":"defer","score":"c_crit_max","value":0,"threshold":0.05,"gate":"primary","class":null,` +
			`"reason":"degenerate"}`,
	} {
		compare(t, fmt.Sprintf("input %d", i), lines[i]["decision"], readLines(t, want)[0], 1e-6, 0)
	}
	compare(t, "input 0", lines[0], readLines(t, `{"skewness":[0.08333333,0,0.5],"c":[0.06666667,0.02222222,0.2],
		"c3":[0.07222222,0.02222222,0.1],"sum_c_top":0.06666667,"sum_c_weighted":0.06666667,"dominant":2}`)[0], 1e-6, 1e-12)
	compare(t, "input 3", lines[3], readLines(t, `{"index":3,"error":{"reason":"not_finite",`+
		`"message":"pass 1: class 2 is NaN, expected a finite number"}}`)[0], 0, 0)
	if lines[2]["degenerate"] != true || lines[2]["saturated"] != false || lines[2]["dominant"] != nil {
		t.Errorf("identical passes: degenerate %v, saturated %v, dominant %v",
			lines[2]["degenerate"], lines[2]["saturated"], lines[2]["dominant"])
	}
}

func TestDecomposeObservesWithoutThresholds(t *testing.T) {
	t.Parallel()
	observing := strings.NewReplacer(", threshold: 0.05", "", ", threshold: 0.14", "").Replace(handPolicy)
	policy := writeFile(t, "p.yaml", observing)
	out, _, _ := runCommand(t, "decompose", "--passes", handPasses(t), "--policy", policy)
	compare(t, "input 1", readLines(t, out)[1]["decision"], map[string]any{
		"action": "observe", "threshold": nil, "class": nil, "reason": "observing",
	}, 0, 0)
}

func TestDecomposeRefusesInputsOneByOne(t *testing.T) {
	t.Parallel()
	rows := func(values ...float64) string {
		return writeNpy(t, "<f8", []int{2, len(values) / 4, 2}, values)
	}
	good := []float64{.5, .5, .5, .5, .5, .5} // three inputs of one pass
	bad := func(a, b float64) string {
		return rows(append(slices.Clone(good), append([]float64{a, b}, append(good, .5, .5)...)...)...)
	}
	for _, c := range []struct {
		reason, message string
		args            []string
	}{
		{"not_finite", "pass 0: class 0 is +Inf", []string{"--passes", bad(math.Inf(1), 0)}},
		{"negative", "pass 0: class 0 is -0.5", []string{"--passes", bad(-.5, 1.5)}},
		{"above_one", "pass 0: class 1 is 1.5", []string{"--passes", bad(0, 1.5)}},
		{"sum_not_one", "pass 0: values sum to 0.75", []string{"--passes", bad(.5, .25)}},
		{"not_finite", "class 1 is NaN", []string{"--kind", "logits", "--passes", bad(7, math.NaN())}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			out, stderr, code := runCommand(t, append([]string{"decompose"}, c.args...)...)
			if code != exitFault {
				t.Errorf("exit code %d, expected %d", code, exitFault)
			}
			wantFragment(t, stderr, "ckd: 1 of 4 inputs were refused; the first: input 3: ")
			lines := readLines(t, out)
			if len(lines) != 4 {
				t.Fatalf("%d lines, expected 4", len(lines))
			}
			for i, l := range lines {
				e, refused := l["error"].(map[string]any)
				if int(l["index"].(float64)) != i || refused != (i == 3) {
					t.Fatalf("line %d: %v", i, l)
				}
				if refused && e["reason"] != c.reason {
					t.Errorf("reason %v, expected %s", e["reason"], c.reason)
				}
				if refused {
					wantFragment(t, e["message"].(string), c.message)
				}
			}
		})
	}
	t.Run("not_positive", func(t *testing.T) {
		file := writeNpy(t, "<f8", []int{2, 2}, []float64{3, 1, 2, 0})
		out, _, code := runCommand(t, "decompose", "--kind", "dirichlet", "--passes", file)
		compare(t, "line", readLines(t, out)[1]["error"], map[string]any{"reason": "not_positive"}, 0, 0)
		if code != exitFault {
			t.Errorf("exit code %d, expected %d", code, exitFault)
		}
	})
	t.Run("too_few_passes", func(t *testing.T) {
		file := writeNpy(t, "<f8", []int{1, 2, 2}, []float64{.5, .5, 1, 0})
		out, stderr, code := runCommand(t, "decompose", "--passes", file)
		for i, l := range readLines(t, out) {
			compare(t, fmt.Sprintf("line %d", i), l["error"], map[string]any{
				"reason": "too_few_passes", "message": "1 passes, expected at least 2"}, 0, 0)
		}
		wantFragment(t, stderr, "2 of 2 inputs were refused")
		if code != exitFault {
			t.Errorf("exit code %d, expected %d", code, exitFault)
		}
	})
}

// One row of Dirichlet concentrations (2, 1, 1): mu = .5, .25, .25, alpha_0 = 4,
// so C = (1-mu)/(2*5) and the pair (0,1) is sqrt(.125)/10.
func TestDecomposeDirichlet(t *testing.T) {
	t.Parallel()
	file := writeNpy(t, "<f4", []int{1, 3}, []float64{2, 1, 1})
	out := runOK(t, "decompose", "--kind", "dirichlet", "--passes", file, "--critical", "1,2")
	compare(t, "line", readLines(t, out)[0], readLines(t, `{"index":0,"predicted":0,"mean":[0.5,0.25,0.25],
		"c":[0.05,0.075,0.075],"passes":1,"degenerate":false,
		"pairs":[{"a":0,"b":1,"confusion":0.03535533905932738},{"a":0,"b":2,"confusion":0.03535533905932738}]}`)[0], 1e-12, 0)
}

func TestDecomposeLogitsAreProbabilitiesAfterSoftmax(t *testing.T) {
	t.Parallel()
	p := []float64{.7, .2, .1 /**/, .1, .1, .8 /**/, .5, .3, .2 /**/, .3, .25, .45}
	z := make([]float64, len(p))
	for i, v := range p {
		z[i] = math.Log(v) + 3
	}
	want := readLines(t, runOK(t, "decompose", "--passes", writeNpy(t, "<f8", []int{2, 2, 3}, p), "--critical", "2"))
	got := readLines(t, runOK(t, "decompose", "--passes", writeNpy(t, "<f8", []int{2, 2, 3}, z), "--critical", "2",
		"--kind", "logits"))
	for i := range want {
		compare(t, fmt.Sprintf("input %d", i), got[i], want[i], 1e-9, 1e-15)
	}
}

func TestDecomposePopulationVariance(t *testing.T) {
	t.Parallel()
	sample := readLines(t, runOK(t, ctg("ensemble")...))
	population := readLines(t, runOK(t, append(ctg("ensemble"), "--variance", "population")...))
	for i := range sample {
		for k, v := range sample[i]["variance"].([]any) {
			compare(t, fmt.Sprintf("input %d, class %d", i, k), population[i]["variance"].([]any)[k], v.(float64)*4/5, 1e-12, 0)
		}
	}
}

func TestDecomposeSumTolerance(t *testing.T) {
	t.Parallel()
	file := writeNpy(t, "<f8", []int{2, 3, 2}, []float64{.5, .5, .5, .5, .5, .505, .5, .5, .5, .5, .5, .5})
	if _, _, code := runCommand(t, "decompose", "--passes", file); code != exitFault {
		t.Errorf("sum 1.005 at the default tolerance: exit code %d, expected %d", code, exitFault)
	}
	runOK(t, "decompose", "--passes", file, "--sum-tolerance", "0.01")
}

// The same passes, transposed, are the same passes; so are those of an archive
// and, where the values are exact in all of them, of every width.
func TestDecomposeReadsTheSamePassesFromEveryFile(t *testing.T) {
	t.Parallel()
	const passes, inputs = 3, 4
	snk := make([]float64, passes*inputs*3)
	for i := range passes * inputs {
		a, b := float64(i%7)/16, float64(i%5)/16
		copy(snk[3*i:], []float64{a, b, 1 - a - b})
	}
	nsk := make([]float64, 0, len(snk))
	for n := range inputs {
		for s := range passes {
			nsk = append(nsk, snk[3*(s*inputs+n):][:3]...)
		}
	}
	shape := []int{passes, inputs, 3}
	want := runOK(t, "decompose", "--critical", "2", "--passes", writeNpy(t, "<f8", shape, snk))
	for name, args := range map[string][]string{
		"f4":  {writeNpy(t, "<f4", shape, snk)},
		"f2":  {writeNpy(t, "<f2", shape, snk)},
		"npz": {writeNpz(t, map[string]string{"passes.npy": writeNpy(t, "<f4", shape, snk)})},
		"one of two in npz": {writeNpz(t, map[string]string{
			"p.npy": writeNpy(t, "<f4", shape, snk), "q.npy": writeNpy(t, "<f4", shape, nsk)}) + ":p"},
		"nsk": {writeNpy(t, "<f8", []int{inputs, passes, 3}, nsk), "--layout", "nsk"},
	} {
		if got := runOK(t, append([]string{"decompose", "--critical", "2", "--passes"}, args...)...); got != want {
			t.Errorf("%s: lines differ:\n%s\nexpected\n%s", name, got, want)
		}
	}
}

func TestDecomposeSaysHowTheFileWasRead(t *testing.T) {
	t.Parallel()
	_, stderr, _ := runCommand(t, ctg("ensemble")...)
	wantFragment(t, stderr, "ensemble.passes.npy: read as 5 passes of 2126 inputs over 3 classes (float32, layout snk)")

	// [S,K,N]: the class axis is not the last one.
	skn := make([]float64, 0, 2*3*4)
	for range 2 {
		skn = append(skn, .1, .1, .3, .3, .5, .6, .5, .5, .4, .3, .2, .2)
	}
	_, stderr, code := runCommand(t, "decompose", "--passes", writeNpy(t, "<f8", []int{2, 3, 4}, skn))
	wantFragment(t, stderr, "a.transpose(0,2,1)")
	if code != exitFault {
		t.Errorf("exit code %d, expected %d", code, exitFault)
	}
}

func TestDecomposeRefusesFlags(t *testing.T) {
	t.Parallel()
	policy := writeFile(t, "p.yaml", handPolicy)
	second := strings.Replace(strings.TrimPrefix(handPolicy, "\nmodels:\n"), "hand", "foot", 1)
	two := writeFile(t, "two.yaml", handPolicy+second)
	passes := handPasses(t)
	mcdropout := recordings + "ctg-mcdropout.passes.npy"
	for _, c := range []struct {
		args, message string
		code          int
	}{
		{"", "--passes", exitUsage},
		{"--passes x --layout kns", `layout "kns": expected snk`, exitUsage},
		{"--passes x --kind counts", "--kind must be one of", exitUsage},
		{"--passes x --variance none", "--variance must be one of", exitUsage},
		{"--passes x --format xml", "--format must be one of", exitUsage},
		{"--passes x --sum-tolerance 0", "--sum-tolerance 0: expected a finite number above 0", exitUsage},
		{"--passes x --sum-tolerance NaN", "--sum-tolerance NaN: expected", exitUsage},
		{"--passes x --sum-tolerance +Inf", "--sum-tolerance +Inf: expected", exitUsage},
		{"--passes x --model hand", "expected --policy too", exitUsage},
		{"--passes x --policy p --classes a,b", "--policy says already what --classes would", exitUsage},
		{"--passes x --policy p --safe a --critical b --kind logits --variance sample --sum-tolerance 1",
			"--policy says already what --critical, --safe, --kind, --variance, --sum-tolerance would", exitUsage},
		{"--passes " + passes + " --policy " + two, "has 2 models, expected --model with one of: foot, hand", exitUsage},
		{"--passes " + passes + " --policy " + policy + " --model head", "--model head is not in", exitUsage},
		{"--passes " + passes + " --classes a,b", "--classes has 2 names, expected 3", exitUsage},
		{"--passes " + passes + " --classes a,b,a", `--classes has "a" twice, as classes 0 and 2`, exitUsage},
		{"--passes " + passes + " --classes a,,c", "class 1 has no name", exitUsage},
		{"--passes " + passes + " --classes a,b,c --critical d", `no class "d", expected some of: a, b, c`, exitUsage},
		{"--passes " + passes + " --critical 1 --safe 3", `--safe: no class "3", expected some of: 0, 1, 2`, exitUsage},
		{"--passes " + passes + " --safe 0", "--safe without --critical", exitUsage},
		{"--passes " + passes + " --out " + passes, "is the recording itself", exitUsage},
		{"--passes " + passes + " --critical 1,1", `--critical has "1" twice`, exitUsage},
		{"--passes " + passes + " --critical 1 --safe 0,1", `class "1" is in both --critical and --safe`, exitUsage},
		{"--passes " + passes + " --policy " + passes, "hand", exitFault},
		{"--passes " + filepath.Join(t.TempDir(), "no.npy"), "no.npy", exitFault},
		{"--passes " + mcdropout + " --policy " + writeFile(t, "k.yaml", `
models:
  - {name: m, classes: [a, b], gate: never, primary: {score: mi}}
`), "has 3 classes, but model m has 2: a, b", exitFault},
		{"--passes " + writeNpy(t, "<f8", []int{2, 1, 1}, []float64{1, 1}), "1 classes: at least 2", exitFault},
		{"--passes " + mcdropout + " --out " + filepath.Join(t.TempDir(), "no", "file"), "no such file", exitFault},
	} {
		t.Run(c.message, func(t *testing.T) {
			out, stderr, code := runCommand(t, append([]string{"decompose"}, strings.Fields(c.args)...)...)
			if code != c.code || out != "" {
				t.Errorf("exit code %d, expected %d; output %q", code, c.code, out)
			}
			if c.message != "hand" {
				wantFragment(t, stderr, c.message)
			}
		})
	}
}

func TestDecomposeChoosesTheModel(t *testing.T) {
	t.Parallel()
	two := writeFile(t, "two.yaml", handPolicy+`
  - {name: foot, classes: [a, b, c], gate: never, primary: {score: mi}}
`)
	out, _, _ := runCommand(t, "decompose", "--passes", handPasses(t), "--policy", two, "--model", "foot")
	compare(t, "line", readLines(t, out)[0], readLines(t,
		`{"scores":{"cbec":null,"c_crit_max":null},"pairs":[],"decision":{"score":"mi"}}`)[0], 0, 0)
}

func TestDecomposeWritesToAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	if out := runOK(t, append(ctg("ensemble"), "--out", path)...); out != "" {
		t.Errorf("standard output has %q", out)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != runOK(t, ctg("ensemble")...) {
		t.Error("the file has other lines than the standard output")
	}
}

func TestDecomposeStopsWhenInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stderr bytes.Buffer
	code := run(&cmdContext{ctx, strings.NewReader(""), io.Discard, &stderr}, ctg("ensemble"))
	if code != exitFault {
		t.Errorf("exit code %d, expected %d", code, exitFault)
	}
	wantFragment(t, stderr.String(), "interrupted after 0 of 2126 inputs")
}

// Every number of the JSON lines is in the CSV, under its name.
func TestDecomposeCSV(t *testing.T) {
	t.Parallel()
	policy := writeFile(t, "p.yaml", strings.Replace(handPolicy, "[a, b, c]", `["a, or \"b\"", b, c]`, 1))
	args := []string{"decompose", "--passes", handPasses(t), "--policy", policy}
	jsonl, _, _ := runCommand(t, args...)
	text, _, code := runCommand(t, append(args, "--format", "csv")...)
	if code != exitFault {
		t.Errorf("exit code %d, expected %d", code, exitFault)
	}
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	lines := readLines(t, jsonl)
	if len(records) != 1+len(lines) {
		t.Fatalf("%d records, expected a header and %d", len(records), len(lines))
	}
	classes := []string{`a, or "b"`, "b", "c"}
	for i, l := range lines {
		want := flatten(l, classes)
		for c, name := range records[0] {
			if got := records[i+1][c]; got != want[name] {
				t.Errorf("input %d, %s: %q, expected %q", i, name, got, want[name])
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Errorf("input %d: no columns for %v", i, want)
		}
	}
}

// flatten is a JSON line as the columns of a CSV file.
func flatten(line map[string]any, classes []string) map[string]string {
	columns := map[string]string{}
	text := func(v any) string {
		switch v := v.(type) {
		case nil:
			return ""
		case float64:
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
		return fmt.Sprint(v)
	}
	for key, v := range line {
		switch v := v.(type) {
		case []any:
			for k := range v {
				if pair, ok := v[k].(map[string]any); ok {
					names := "_" + classes[int(pair["a"].(float64))] + "_" + classes[int(pair["b"].(float64))]
					columns["confusion"+names] = text(pair["confusion"])
					columns["correlation"+names] = text(pair["correlation"])
					continue
				}
				columns[key+"_"+classes[k]] = text(v[k])
			}
		case map[string]any:
			prefix := map[string]string{"scores": "score_", "decision": "", "error": "error_"}[key]
			for inner := range v {
				columns[prefix+inner] = text(v[inner])
			}
		default:
			columns[key] = text(v)
		}
	}
	return columns
}

func TestDecomposeTable(t *testing.T) {
	t.Parallel()
	// By hand: MI of input 0 is H(.6,.3,.1) - (2 H(.8,.2) + H(.6,.4) + H(.2,.4,.4))/4 = .8979 - .6822, of input 1
	// H(.7,.3) - (H(.8,.2) + H(.6,.4))/2 = .6109 - .5867.
	policy := writeFile(t, "p.yaml", handPolicy)
	out, _, _ := runCommand(t, "decompose", "--passes", handPasses(t), "--policy", policy, "--format", "table")
	for _, row := range []string{
		" index predicted mi sum_c c a c b c c unreliable decision ",
		" 0 a 0.2158 0.2889 0.06667 0.02222 0.2 c defer: cbec 0.1403 > 0.14 ",
		" 1 a 0.02416 0.03175 0.009524 0.02222 0 retain: c_crit_max 0.02222 <= 0.05 ",
		" 2 a 0 0 0 0 0 defer: degenerate ",
		" 3 refused: not_finite ",
	} {
		wantFragment(t, collapse(out), row)
	}

	// With many classes, the dominant one alone. MI is H(.85,.15) - (H(.9,.1) + H(.8,.2))/2 = .4227 - .4127.
	many := make([]float64, 2*12)
	many[0], many[1], many[12], many[13] = .9, .1, .8, .2
	out = runOK(t, "decompose", "--passes", writeNpy(t, "<f8", []int{2, 1, 12}, many), "--format", "table")
	wantFragment(t, collapse(out), " index predicted mi sum_c dominant c unreliable ")
	wantFragment(t, collapse(out), " 0 0 0.009966 0.01961 1 0.01667 ")
}

// collapse makes every run of spaces one.
func collapse(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = " " + strings.Join(strings.Fields(l), " ") + " "
	}
	return strings.Join(lines, "\n")
}

// runCommand runs a command line as main does.
func runCommand(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(&cmdContext{t.Context(), strings.NewReader(""), &out, &errs}, args)
	return out.String(), errs.String(), code
}

func runOK(t *testing.T, args ...string) string {
	t.Helper()
	out, stderr, code := runCommand(t, args...)
	if code != exitOK {
		t.Fatalf("%q: exit code %d: %s", args, code, stderr)
	}
	return out
}

func wantFragment(t *testing.T, text, fragment string) {
	t.Helper()
	if !strings.Contains(text, fragment) {
		t.Errorf("%q\nexpected in it: %q", text, fragment)
	}
}

func readLines(t *testing.T, text string) (lines []map[string]any) {
	t.Helper()
	d := json.NewDecoder(bufio.NewReader(strings.NewReader(text)))
	for {
		var line map[string]any
		err := d.Decode(&line)
		if err == io.EOF {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeNpy writes values, which must be exact in the type, to a new file.
func writeNpy(t *testing.T, dtype string, shape []int, values []float64) string {
	t.Helper()
	var b bytes.Buffer
	a := &record.Array{Shape: shape}
	switch dtype {
	case "<f8":
		a.Float64 = values
	case "<f4":
		for _, v := range values {
			a.Float32 = append(a.Float32, float32(v))
		}
	case "<f2":
		text := fmt.Sprintf("{'descr': '<f2', 'fortran_order': False, 'shape': (%d, %d, %d), }\n",
			shape[0], shape[1], shape[2])
		b.WriteString("\x93NUMPY\x01\x00")
		_ = binary.Write(&b, binary.LittleEndian, uint16(len(text)))
		b.WriteString(text)
		for _, v := range values {
			_ = binary.Write(&b, binary.LittleEndian, half(v))
		}
		return writeFile(t, "passes.npy", b.String())
	}
	if err := record.Write(&b, a); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "passes.npy", b.String())
}

// half is a value in [0,1] with few bits as float16.
func half(v float64) uint16 {
	if v == 0 {
		return 0
	}
	fraction, exponent := math.Frexp(v) // v = fraction 2^exponent, fraction in [1/2,1)
	return uint16(exponent+14)<<10 | uint16(2048*fraction)&0x3ff
}

func writeNpz(t *testing.T, members map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, path := range members {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		member, err := w.Create(name)
		if err == nil {
			_, err = member.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "passes.npz", b.String())
}
