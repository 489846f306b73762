package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTestdata checks the files of every rule. NAME.bad.yaml breaks the rule, and its first lines
// list all faults in order. NAME.good.yaml only just keeps the rule.
func TestTestdata(t *testing.T) {
	bad, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil {
		t.Fatal(err)
	}
	good, err := filepath.Glob("testdata/*.good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(bad) == 0 || len(good) != len(bad) {
		t.Errorf("%d bad and %d good files, expected one of each for each rule", len(bad), len(good))
	}
	for _, path := range bad {
		t.Run(filepath.Base(path), func(t *testing.T) {
			file := readTestFile(t, path)
			want := wantedFaults(file)
			if want == "" {
				t.Fatal("no line begins with # want:")
			}
			_, err := Parse(file)
			if err == nil {
				t.Fatalf("no fault, want\n%s", want)
			}
			if err.Error() != want {
				t.Errorf("faults\n%v\nwant\n%s", err, want)
			}
		})
		t.Run(strings.Replace(filepath.Base(path), ".bad.", ".good.", 1), func(t *testing.T) {
			set, err := Parse(readTestFile(t, strings.Replace(path, ".bad.", ".good.", 1)))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range set.All() {
				checkInvariants(t, p)
			}
		})
	}
}

func readTestFile(t *testing.T, path string) File {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return File{Name: filepath.Base(path), Data: data}
}

func wantedFaults(f File) string {
	var want []string
	for line := range strings.Lines(string(f.Data)) {
		if fault, ok := strings.CutPrefix(line, "# want: "); ok {
			want = append(want, f.Name+":"+strings.TrimSuffix(fault, "\n"))
		}
	}
	return strings.Join(want, "\n")
}

func TestDefaults(t *testing.T) {
	p := parseOne(t, "models: [{name: m, classes: [a, b, c], critical: [c, b]}]")
	want := &Policy{
		Name: "m", Hash: p.Hash, Classes: []string{"a", "b", "c"}, Critical: []int{1, 2}, Safe: []int{0},
		Kind: Probabilities, FewestPasses: 4, SumTolerance: 1e-3, Tensor: "passes", Variance: Sample, TopClasses: 3,
		ReliabilityThreshold: 0.3, Gate: AnyCritical, Scope: AllInputs,
		Primary: Rule{Score: CCritMax}, Fallback: Rule{Score: CBEC},
		Pairs: SafeCriticalPairs, Degenerate: HandleDefer, Saturated: HandleDefer,
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	if !p.Observes() {
		t.Error("a policy without thresholds does not observe")
	}
}

// everyField has every key but a reference, a model of risk and an early-stopping rule, as Marshal
// writes them.
const everyField = `models:
  - name: m
    version: "2026-11-21"
    classes: [a, b, c, d]
    critical: [d]
    safe: [a, c]
    kind: logits
    passes: {fewest: 10, expected: 30}
    sum_tolerance: 0.0001
    tensor: "dense/Softmax:0"
    variance: population
    reliability_threshold: 0.4
    gate: any-critical
    scope: predicted-safe
    primary: {score: c_crit_sum, threshold: 0.02}
    fallback: {score: maxprob, threshold: 0.003}
    pair_weights:
      - {safe: c, critical: d, weight: 2}
    pairs: all
    top_classes: 2
    degenerate: retain
    saturated: score
    audit:
      rate: 0.02
      m: 0.25
      predicted-critical: free
      cap: 40
      due: 36h
      on_breach: defer
      surge: 150
      run_length: 100000
      reader_sensitivity: 0.9
      slices:
        - {name: site, values: [north, "1"]}
    answers: {alarm: "critical FNR of a: b 2026-11-03T04:05:06Z", by: ann, reason: "trained on the cases of \"d\""}
    calibrated:
      software: ckd v0.4.0
      policy_hash: "2222222222222222222222222222222222222222222222222222222222222222"
      recording: {passes_file: runs/mc.npy, passes_sha256: "1111111111111111111111111111111111111111111111111111111111111111", labels_file: y true.npy, labels_sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855, inputs: 2126, critical_inputs: 471, passes: 20}
      posterior: mc-dropout
      objective: coverage 0.8
      scope: predicted-safe
      seed: 42
      expected_coverage: {value: 0.8, low: 0.78, high: 0.82}
      expected_critical_miss_rate: {value: 0.04, low: 0.02, high: 0.06}
      expected_class_miss_rate:
        - {class: d, value: 0.25, low: 0.125, high: 0.5}
      mean_root_risk: 0.125
      lines:
        critical_miss_rate: 0.08
        classes:
          - {class: d, critical_miss_rate: 0.2}
        by: Ann Lee
        on: "2026-11-02"
      certificate:
        kind: learn-then-test
        bounds: critical-fnr
        target: 0.05
        confidence: 0.95
        cases: 200
        p_value: 0.03
        statement: "With confidence 0.95, at most 5% of \"d\" are missed."
      earlier_attempt: "critical FNR 0.04: seed 7"
`

func TestEveryField(t *testing.T) {
	p := parseOne(t, everyField)
	want := &Policy{
		Name: "m", Version: "2026-11-21", Hash: p.Hash,
		Classes: []string{"a", "b", "c", "d"}, Critical: []int{3}, Safe: []int{0, 2},
		Kind: Logits, FewestPasses: 10, ExpectedPasses: 30, SumTolerance: 1e-4, Tensor: "dense/Softmax:0", Variance: Population, TopClasses: 2,
		ReliabilityThreshold: 0.4, Gate: AnyCritical, Scope: PredictedSafe,
		Primary: Rule{CCritSum, 0.02, true}, Fallback: Rule{MaxProb, 3e-3, true},
		PairWeights: []PairWeight{{2, 3, 2}},
		Pairs:       AllPairs, Degenerate: HandleRetain, Saturated: HandleByScore,
		Answers: &Answers{AlarmName{CriticalFNR, "a: b", "2026-11-03T04:05:06Z"}, "ann", `trained on the cases of "d"`},
		Calibration: &Calibration{
			Software: "ckd v0.4.0", PolicyHash: strings.Repeat("2", 64),
			Recording: Recording{
				PassesFile: "runs/mc.npy", PassesSHA256: strings.Repeat("1", 64),
				LabelsFile: "y true.npy", LabelsSHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
				Inputs: 2126, CriticalInputs: 471, Passes: 20,
			},
			Posterior: "mc-dropout", Objective: "coverage 0.8", Scope: PredictedSafe, Seed: 42,
			ExpectedCoverage: &Interval{0.8, 0.78, 0.82}, ExpectedCriticalMissRate: &Interval{0.04, 0.02, 0.06},
			ExpectedClassMissRate: []ClassInterval{{"d", Interval{0.25, 0.125, 0.5}}},
			MeanRootRisk:          0.125,
			Lines:                 &StatedLines{0.08, []ClassLine{{"d", 0.2}}, "Ann Lee", "2026-11-02"},
			Certificate: &Certificate{
				Kind: LearnThenTest, Bounds: CriticalFNR, Target: 0.05, Confidence: 0.95, Cases: 200, PValue: 0.03,
				Statement: `With confidence 0.95, at most 5% of "d" are missed.`,
			},
			EarlierAttempt: "critical FNR 0.04: seed 7",
		},
		Audit: &Audit{
			Rate: 0.02, M: 0.25, PredictedCritical: CriticalFree, Cap: 40, Due: 36 * hour, OnBreach: DeferOnBreach, Surge: 150,
			RunLength: 100_000, ReaderSensitivity: 0.9,
			Slices: []Slice{{"site", []string{"north", "1"}}},
		},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
}

// TestDependentDefaults checks the defaults that depend on other fields.
func TestDependentDefaults(t *testing.T) {
	const model = "models:\n  - name: m\n    classes: [a, b, c, d, e, f, g, h, i, j, k]\n    critical: [b]\n"
	tests := []struct {
		name, fields string
		got          func(*Policy) any
		want         any
	}{
		{"top classes of eleven", "", func(p *Policy) any { return p.TopClasses }, 10},
		// (S-1)(S-2)/(3S) is 2/9 for 3 passes, 1/2 for 4; (S-2)/3 is 1/3 for 3.
		{"fewest under a gate", "", func(p *Policy) any { return p.FewestPasses }, 4},
		{"fewest, population", "variance: population", func(p *Policy) any { return p.FewestPasses }, 3},
		{"fewest, high threshold", "reliability_threshold: 0.5", func(p *Policy) any { return p.FewestPasses }, 5},
		{"fewest, no gate", "gate: never", func(p *Policy) any { return p.FewestPasses }, 2},
		{"fewest, fallback only", "gate: always", func(p *Policy) any { return p.FewestPasses }, 2},
		{"gate of dirichlet", "kind: dirichlet", func(p *Policy) any { return p.Gate }, Always},
		{"gate of logits", "kind: logits", func(p *Policy) any { return p.Gate }, AnyCritical},
		{"gate of dirichlet, given", "{kind: dirichlet, gate: never}", func(p *Policy) any { return p.Gate }, Never},
		{"fewest of dirichlet", "kind: dirichlet", func(p *Policy) any { return p.FewestPasses }, 1},
		{"expected of dirichlet", "kind: dirichlet", func(p *Policy) any { return p.ExpectedPasses }, 1},
		{"safe given empty", "{safe: [], gate: never}", func(p *Policy) any { return len(p.Safe) }, 0},
		{"safe not given", "", func(p *Policy) any { return len(p.Safe) }, 10},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			fields := strings.NewReplacer("{", "", "}", "", ", ", "\n    ").Replace(test.fields)
			p := parseOne(t, model+"    "+fields+"\n")
			if got := test.got(p); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// TestManyFiles checks that all faults of all files are reported at once, ordered by file and
// place, and that a name used in two files is reported with both places.
func TestManyFiles(t *testing.T) {
	model := func(name string) string {
		return fmt.Sprintf("  - {name: %s, classes: [a, b], critical: [b]}\n", name)
	}
	files := []File{
		{"b.yaml", []byte("models:\n" + model("x") + model("y"))},
		{"a.yaml", []byte("models:\n" + model("z") + model("x") + "  - {name: w, classes: [a]}\n")},
		{"c.yaml", []byte("models: {\n")},
		{"d.yaml", []byte("models:\n" + model("w"))},
	}
	_, err := Parse(files...)
	want := strings.Join([]string{
		`a.yaml:3:12: model "x": name: already the name of the model at b.yaml:2:12, expected one of its own`,
		`a.yaml:4:24: model "w": classes: expected 2 to 100000 names, found 1`,
		`c.yaml:1:1: not YAML near here: did not find expected node content`,
		`d.yaml:2:12: model "w": name: already the name of the model at a.yaml:4:12, expected one of its own`,
	}, "\n")
	var faults Faults
	if !errors.As(err, &faults) || err.Error() != want {
		t.Fatalf("%T\n%v\nwant Faults\n%s", err, err, want)
	}
	first := Fault{File: "a.yaml", Line: 3, Col: 12, Entry: `model "x"`, Field: "name", Reason: faults[0].Reason}
	if faults[0] != first {
		t.Errorf("fault %+v, want %+v", faults[0], first)
	}
}

func TestBounds(t *testing.T) {
	list := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		return "[" + strings.Join(names, ",") + "]"
	}
	model := func(classes, critical int, more string) string {
		return "models:\n- name: m\n  classes: " + list(classes) + "\n  critical: " + list(critical) + more + "\n"
	}
	comment := func(size int) string {
		return "\n#" + strings.Repeat("x", size-len(model(2, 1, "\n#")))
	}
	attempt := func(size int) string {
		return "\n  calibrated: {earlier_attempt: " + strings.Repeat("x", size) + "}"
	}
	tests := []struct {
		name, data, want string
	}{
		{"largest file", model(2, 1, comment(MaxFileBytes)), ""},
		{"file too large", model(2, 1, comment(MaxFileBytes+1)),
			"f.yaml:1:1: too large, expected at most 4194304 bytes"},
		{"most classes", model(maxClasses, 1, ""), ""},
		{"too many classes", model(maxClasses+1, 1, ""),
			`f.yaml:3:12: model "m": classes: expected 2 to 100000 names, found 100001`},
		{"most pairs", model(2000, 1000, ""), ""},
		{"too many pairs", model(2001, 1000, ""), `f.yaml:4:13: model "m": critical: 1001 safe x 1000 critical classes, ` +
			`expected at most 1000000 such pairs: name fewer critical classes, or the safe ones that matter`},
		{"fewer pairs by the safe set", model(2001, 1000, "\n  safe: [2000]"), ""},
		{"longest attempt", model(2, 1, attempt(2048)), ""},
		{"attempt too long", model(2, 1, attempt(2049)), `f.yaml:5:33: model "m": calibrated.earlier_attempt: expected at ` +
			`most 2048 bytes of printable text, found "` + strings.Repeat("x", 80) + `..."`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse(File{"f.yaml", []byte(test.data)})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("faults\n%.500s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestSet(t *testing.T) {
	if set, err := Parse(); err != nil || len(set.All()) != 0 {
		t.Errorf("of no files %v, %v: want an empty set", set, err)
	}
	const data = "models:\n- {name: b, version: 1, classes: [x, y], critical: [y]}\n- {name: a, classes: [x, y], critical: [y]}\n"
	set := parse(t, data)
	all := set.All()
	if len(all) != 2 || all[0].Name != "a" || all[1].Name != "b" {
		t.Fatalf("policies %v, want a and b", all)
	}
	all[0] = nil
	if set.All()[0] == nil {
		t.Error("who writes to All changes the set")
	}
	if p, ok := set.Get("b"); !ok || p != all[1] {
		t.Errorf("Get(b) is %v, %t", p, ok)
	}
	if p, ok := set.Get("c"); ok || p != nil {
		t.Errorf("Get(c) is %v, %t", p, ok)
	}

	same := parse(t, "models:\n- {classes: [x, y], critical: [y], name: a, gate: any-critical}\n"+
		"- {name: b, version: \"1\", classes: [x, y], critical: [y]}\n")
	if same.Hash() != set.Hash() {
		t.Error("sets that mean the same have other hashes")
	}
	for name, other := range map[string]string{
		"version": strings.Replace(data, "version: 1", "version: 2", 1),
		"policy":  strings.Replace(data, "critical: [y]}\n-", "critical: [x]}\n-", 1),
		"name":    strings.Replace(data, "name: a", "name: c", 1),
		"fewer":   "models:\n- {name: b, version: 1, classes: [x, y], critical: [y]}\n",
	} {
		if parse(t, other).Hash() == set.Hash() {
			t.Errorf("another %s does not change the hash of the set", name)
		}
	}
}

// parse parses a text that must have no faults.
func parse(t testing.TB, text string) *Set {
	t.Helper()
	set, err := Parse(File{"test.yaml", []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// parseOne parses one model that must have no faults.
func parseOne(t testing.TB, text string) *Policy {
	t.Helper()
	all := parse(t, text).All()
	if len(all) != 1 {
		t.Fatalf("%d models, want 1", len(all))
	}
	return all[0]
}
