package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDecomposeAgreesWithGolden compares with an independent implementation, to 1e-9 relative or
// 1e-15 absolute. See the README of internal/recordings.
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

// keysOf lists the keys of a JSON object in their order. Keys of inner objects come after their own
// path.
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

// TestDecomposeDecidesByPolicy expects figures worked out by hand, with the sample variance
// (S-1 = 3). They leave out Epsilon, which is
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

func TestDecomposeRefusesInputsOneByOne(t *testing.T) {
	t.Parallel()
	rows := func(values ...float64) string {
		return writeNpy(t, "<f8", []int{2, len(values) / 4, 2}, values)
	}
	bad := func(a, b float64) string { // the last of four inputs, in its first pass
		return rows(.5, .5, .5, .5, .5, .5, a, b, .5, .5, .5, .5, .5, .5, .5, .5)
	}
	for _, c := range []struct {
		reason, message string
		refused         []int
		args            []string
	}{
		{"not_finite", "pass 0: class 0 is +Inf", []int{3}, []string{"--passes", bad(math.Inf(1), 0)}},
		{"not_finite", "class 1 is NaN", []int{1}, []string{"--kind", "logits", "--passes", rows(-2, 1, 7, math.NaN(), 3, 1, 1, 0)}},
		{"not_positive", "class 1 is 0", []int{1},
			[]string{"--kind", "dirichlet", "--passes", writeNpy(t, "<f8", []int{2, 2}, []float64{3, 1, 2, 0})}},
		{"too_few_passes", "1 passes, expected at least 2", []int{0, 1},
			[]string{"--passes", writeNpy(t, "<f8", []int{1, 2, 2}, []float64{.5, .5, 1, 0})}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			out, stderr, code := runCommand(t, append([]string{"decompose"}, c.args...)...)
			if code != exitFault {
				t.Errorf("exit code %d, expected %d", code, exitFault)
			}
			lines := readLines(t, out)
			wantFragment(t, stderr, fmt.Sprintf("ckd: %d of %d inputs were refused; the first: input %d: ", len(c.refused), len(lines), c.refused[0]))
			for i, l := range lines {
				e, refused := l["error"].(map[string]any)
				if l["index"] != float64(i) || refused != slices.Contains(c.refused, i) {
					t.Fatalf("line %d: %v", i, l)
				}
				if !refused {
					continue
				}
				if e["reason"] != c.reason {
					t.Errorf("reason %v, expected %s", e["reason"], c.reason)
				}
				wantFragment(t, e["message"].(string), c.message)
			}
		})
	}
}

// TestDecomposeDirichlet has one row of concentrations (2, 1, 1): mu = .5, .25, .25 and alpha_0 =
// 4, so that C = (1-mu)/(2*5) and the pair (0,1) is sqrt(.125)/10.
func TestDecomposeDirichlet(t *testing.T) {
	t.Parallel()
	file := writeNpy(t, "<f4", []int{1, 3}, []float64{2, 1, 1})
	out := runOK(t, "decompose", "--kind", "dirichlet", "--passes", file, "--critical", "1,2")
	compare(t, "line", readLines(t, out)[0], readLines(t, `{"index":0,"predicted":0,"mean":[0.5,0.25,0.25],
		"c":[0.05,0.075,0.075],"passes":1,"degenerate":false,
		"pairs":[{"a":0,"b":1,"confusion":0.03535533905932738},{"a":0,"b":2,"confusion":0.03535533905932738}]}`)[0], 1e-12, 0)
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
	expectRefusals(t, "decompose", []refusal{
		{"", "--passes", exitUsage},
		{"--passes x --layout kns", `layout "kns": expected snk`, exitUsage},
		{"--passes x --kind counts", "--kind must be one of", exitUsage},
		{"--passes x --sum-tolerance 0", "--sum-tolerance 0: expected a finite number above 0", exitUsage},
		{"--passes x --model hand", "expected --policy too", exitUsage},
		{"--passes x --policy p --classes a,b", "--policy says already what --classes would", exitUsage},
		{"--passes x --policy p --safe a --critical b --kind logits --variance sample --sum-tolerance 1",
			"--policy says already what --critical, --safe, --kind, --variance, --sum-tolerance would", exitUsage},
		{"--passes " + passes + " --policy " + two, "has 2 models, expected --model with one of: foot, hand", exitUsage},
		{"--passes " + passes + " --policy " + policy + " --model head", "--model head is not in", exitUsage},
		{"--passes " + passes + " --classes a,b", "--classes has 2 names, expected 3", exitUsage},
		{"--passes " + passes + " --classes a,b,c --critical d", `no class "d", expected some of: a, b, c`, exitUsage},
		{"--passes " + passes + " --critical 1 --safe 3", `--safe: no class "3", expected some of: 0, 1, 2`, exitUsage},
		{"--passes " + passes + " --safe 0", "--safe without --critical", exitUsage},
		{"--passes " + passes + " --out " + passes, "is the recording itself", exitUsage},
		{"--passes " + passes + " --critical 1,1", `--critical has "1" twice`, exitUsage},
		{"--passes " + passes + " --policy " + passes, passes, exitFault},
		{"--passes " + filepath.Join(t.TempDir(), "no.npy"), "no.npy", exitFault},
		{"--passes " + mcdropout + " --policy " + writeFile(t, "k.yaml", `
models:
  - {name: m, classes: [a, b], gate: never, primary: {score: mi}}
`), "has 3 classes, but model m has 2: a, b", exitFault},
		{"--passes " + writeNpy(t, "<f8", []int{2, 1, 1}, []float64{1, 1}), "shape (2, 1, 1) has one class", exitFault},
		{"--passes " + mcdropout + " --out " + filepath.Join(t.TempDir(), "no", "file"), "no such file", exitFault},
	})
}

func TestDecomposeStopsWhenInterrupted(t *testing.T) {
	t.Parallel()
	expectInterrupted(t, ctg("ensemble"), "interrupted after 0 of 2126 inputs")
}

// TestDecomposeCSV expects figures that TestDecomposeDecidesByPolicy expects in JSON, under their names.
func TestDecomposeCSV(t *testing.T) {
	t.Parallel()
	policy := writeFile(t, "p.yaml", strings.Replace(handPolicy, "[a, b, c]", `["a, or \"b\"", b, c]`, 1))
	text, _, code := runCommand(t, "decompose", "--passes", handPasses(t), "--policy", policy, "--format", "csv")
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || code != exitFault || len(records) != 5 {
		t.Fatalf("%v, exit code %d, %d records, expected none, %d, and a header and 4", err, code, len(records), exitFault)
	}
	for name, want := range map[string][4]string{
		"index": {"0", "1", "2", "3"}, `mean_a, or "b"`: {"0.6", "0.7", "0.5"}, "c3_c": {"0.1", "0", "0"},
		"mi": {"0.2157615543", "0.0241572567", "0"}, "score_cbec": {"0.1402931787", "0.0145478593", "0"},
		"degenerate": {"false", "false", "true"}, "dominant": {"2", "1"}, `confusion_a, or "b"_c`: {"0.1088662107", "0", "0"},
		"action": {"defer", "retain", "defer"}, "value": {"0.1402931787", "0.0222222222", "0"}, "class": {"2"},
		"error_reason": {3: "not_finite"}, "error_message": {3: "pass 1: class 2 is NaN, expected a finite number"},
	} {
		column := slices.Index(records[0], name)
		for i := range want {
			if column < 0 || !strings.HasPrefix(records[i+1][column], want[i]) || want[i] == "" && records[i+1][column] != "" {
				t.Errorf("%s of input %d, in column %d: expected %q of %v", name, i, column, want[i], records[i+1])
			}
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

func TestDecomposeChoosesTheModel(t *testing.T) {
	t.Parallel()
	two := writeFile(t, "two.yaml", handPolicy+`
  - {name: foot, classes: [a, b, c], gate: never, primary: {score: mi}}
`)
	out, _, _ := runCommand(t, "decompose", "--passes", handPasses(t), "--policy", two, "--model", "foot")
	compare(t, "line", readLines(t, out)[0], readLines(t,
		`{"scores":{"cbec":null,"c_crit_max":null},"pairs":[],"decision":{"score":"mi"}}`)[0], 0, 0)
}
