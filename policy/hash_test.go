package policy

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestHashIsStable guards the encoding: a change would invalidate every recorded hash. The values
// are those of the first build with the fields in question; they have no other source.
func TestHashIsStable(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"defaults", "models: [{name: m, classes: [a, b, c], critical: [c]}]", "b92eba97b420b5673ec28122bdb8bd808eceaab3a29d9d60d12f3aa4e8de0d0c"},
		{"every field", everyField, "8c986269012c6fe1a4b34426f79fe1ee5923f1ea8c2042820c823471358eddd5"},
		{"risk and guard", riskText, "8b3824b4853e3a3e3ee7ce127ea3c248cb3a29d4eb61356af7e8ca4150faad94"},
		{"early stopping", settledText(fullRule), "c850bbf6ff4c9f8e58193f075e51659754923981bda53d79a59bb30eaced54fe"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if p := parseOne(t, test.text); p.Hash != test.want {
				t.Errorf("hash %s, want %s", p.Hash, test.want)
			}
		})
	}
}

// TestHashCoversEveryField checks that a change of any field changes the hash of a policy, except
// for the version, the tensor, the calibration without its lines, the audits, the log, the answer to an alarm and
// what of early stopping decides nothing. A change of those changes the hash of the set.
func TestHashCoversEveryField(t *testing.T) {
	p := parseOne(t, settledText(fullRule, `
models:
  - name: m
    version: v
    classes: [a, b, c]
    critical: [c]
    primary: {threshold: 1}
    fallback: {threshold: 2}
    pair_weights: [{safe: a, critical: c, weight: 2}]
    passes: {expected: 9}
    guard: {score: mi, threshold: 1}
    audit: {rate: 0.02, m: 0.4, predicted-critical: free, cap: 9, due: 36h, on_breach: defer, surge: 100, run_length: 1e5, reader_sensitivity: 0.9,
            slices: [{name: site, values: [north]}]}
    log: {decisions: 0.05, id: hash, vectors: true}
    answers: {alarm: critical miss rate of c 2026-11-03T00:00:00Z, by: ann, reason: other thresholds}
    calibrated:
      expected_coverage: {value: 0.8, low: 0.7, high: 0.9}
      expected_critical_miss_rate: {value: 0.8, low: 0.7, high: 0.9}
      expected_class_miss_rate: [{class: c, value: 0.8, low: 0.7, high: 0.9}]
      certificate: {kind: learn-then-test, bounds: critical-miss-rate, target: 0.1, confidence: 0.9, cases: 9, misses: 1, p_value: 0.1,
                    further: [{bounds: critical-miss-rate, class: c, target: 0.1, cases: 9, misses: 1, p_value: 0.1}]}
      mean_root_risk: 0.1
      lines: {critical_miss_rate: 0.1, classes: [{class: c, critical_miss_rate: 0.05}], by: ann, on: 2026-11-03}
      reference: {inputs: 9, classes: [{class: a, predicted: 0.5, epistemic: `+levels(1)+`, skewness: `+levels(2)+`}]}
      risk:
        called_safe: {intercept: 1, slope: 1}
        called_critical: {intercept: 1, slope: 1}
        quantiles: `+probabilities(0.25)+`
        prevalence: 0.5
`))
	// These fields decide: the rule, the order, and the shares that the daemon watches.
	decides := regexp.MustCompile(`^\.EarlyStopping($|\.(PolicyHash|Order|Rule)|\.Certificate\.(Disagreement|Confidence|Released\.AtMost)$)`)
	outside := regexp.MustCompile(`^\.(Calibration|Audit|Log|Answers|Version|Tensor|Hash)`)
	// Every figure has a stated line. What names a figure gives another one a derived line.
	lines := regexp.MustCompile(`^\.Calibration(\.Lines(\.(CriticalMissRate|Classes.*))?|\.ExpectedClassMissRate\[0\]\.Class|\.Certificate\.(Bounds|Class|Further\[0\]\.(Bounds|Class)))?$`)
	before, beforeSet := p.Hash, newSet([]*Policy{p}).Hash()
	var paths []string
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if path == ".EarlyStopping.Rule.Steps" {
			return // computed from the form
		}
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
			return
		case reflect.Pointer:
			if v.IsNil() {
				return
			}
			walk(path, v.Elem())
			v.SetZero()
		case reflect.Array:
			for i := range v.Len() {
				walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
			return
		case reflect.Slice:
			walk(path+"[0]", v.Index(0))
			v.Set(v.Slice(0, v.Len()-1))
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Int:
			v.SetInt(v.Int() + 1)
		case reflect.Uint64:
			v.SetUint(v.Uint() + 1)
		case reflect.Float64:
			v.SetFloat(v.Float() * (1 + 1e-15))
		case reflect.Bool:
			v.SetBool(!v.Bool())
		default:
			t.Fatalf("%s is a %s, which the test cannot change", path, v.Kind())
		}
		paths = append(paths, path)
		covered := !outside.MatchString(path) || lines.MatchString(path)
		if strings.HasPrefix(path, ".EarlyStopping") {
			covered = decides.MatchString(path)
		}
		if changed := p.hash() != before; changed != covered {
			t.Errorf("changing %s changes the hash: %t, want %t", path, changed, covered)
		}
		if path != ".Hash" && !covered && newSet([]*Policy{p}).Hash() == beforeSet {
			t.Errorf("changing %s does not change the hash of the set", path)
		}
		v.Set(old)
	}
	walk("", reflect.ValueOf(p).Elem())
	if len(paths) < 100 {
		t.Errorf("only %v were changed", paths)
	}
}

// levels returns a list of as many numbers as a reference has.
func levels(first float64) string {
	list := make([]string, Levels)
	for i := range list {
		list[i] = fmt.Sprint(first + float64(i)/8)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// TestHashSeparatesTexts checks that lists that look alike when joined have different hashes.
func TestHashSeparatesTexts(t *testing.T) {
	seen := make(map[string]string)
	for _, classes := range []string{`["a b", c]`, `[a, "b c"]`, `[a, b, c]`, `["1:a", b, c]`, `[a, "1:b", c]`} {
		p := parseOne(t, "models: [{name: m, gate: never, primary: {score: mi}, top_classes: 1, safe: [], classes: "+classes+"}]")
		if other, taken := seen[p.Hash]; taken {
			t.Errorf("%s and %s have one hash", classes, other)
		}
		seen[p.Hash] = classes
	}
}

// TestHashIsOfTheMeaning checks that the order of fields and of sets, comments, layout and
// spelled-out defaults do not change the hash.
func TestHashIsOfTheMeaning(t *testing.T) {
	const fixed = "name: m\nclasses: [a, b, c, d]\ncritical: [c, b]\nprimary: {threshold: .5}\nfallback: {threshold: 1.0}"
	spelled := [][2]string{
		{"critical", "[b, c]"},
		{"safe", "[a, d]"},
		{"kind", "probabilities"},
		{"passes", "{fewest: 4}"},
		{"sum_tolerance", "0.001"},
		{"variance", "sample"},
		{"reliability_threshold", "3e-1"},
		{"gate", "any-critical"},
		{"scope", "all"},
		{"primary", "{threshold: 0.5, score: c_crit_max}"},
		{"fallback", "{score: cbec, threshold: 1}"},
		{"pair_weights", "[{safe: d, critical: b, weight: 1}]"},
		{"pairs", "safe-critical"},
		{"top_classes", "4"},
		{"degenerate", "defer"},
		{"saturated", "defer"},
	}
	plain := parseOne(t, "models:\n- "+strings.ReplaceAll(fixed, "\n", "\n  ")).Hash
	rapid.Check(t, func(t *rapid.T) {
		values := map[string]string{}
		for line := range strings.SplitSeq(fixed, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			values[name] = value
		}
		for _, f := range spelled {
			if rapid.Bool().Draw(t, f[0]) {
				values[f[0]] = f[1]
			}
		}
		var fields []string
		for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(values))).Draw(t, "order") {
			fields = append(fields, name+": "+values[name])
		}
		text := "models: # " + rapid.StringMatching(`[a-z: ]*`).Draw(t, "comment") + "\n  -\n      " +
			strings.Join(fields, "\n\n      # and\n      ")
		set, err := Parse(File{"test.yaml", []byte(text)})
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if got := set.All()[0].Hash; got != plain {
			t.Errorf("hash %s, want %s, in\n%s", got, plain, text)
		}
	})
}
