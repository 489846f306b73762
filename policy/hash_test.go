package policy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/drift"
)

// The encoding must not change unnoticed: every recorded hash would be void.
// The value is that of the first build; it has no other source.
func TestHashIsStable(t *testing.T) {
	const want = "b92eba97b420b5673ec28122bdb8bd808eceaab3a29d9d60d12f3aa4e8de0d0c"
	p := parseOne(t, "models: [{name: m, classes: [a, b, c], critical: [c]}]")
	if p.Hash != want {
		t.Errorf("hash %s, want %s", p.Hash, want)
	}

	// That of the last build whose policies had no rule to settle by.
	const wantOfAll = "9e9e12ec8b7363ba1a67c427c69911d1fe12c22dd31950e789fbb2736a48812b"
	p = parseOne(t, `
models:
  - name: m
    version: v
    classes: [a, b, c, d]
    critical: [d]
    safe: [c, a]
    kind: logits
    passes: {fewest: 10, expected: 30}
    sum_tolerance: 1e-4
    variance: population
    reliability_threshold: 0.4
    gate: deciding-class
    scope: predicted-safe
    primary: {score: c_crit_sum, threshold: 0.02}
    fallback: {score: maxprob, threshold: 3e-3}
    pair_weights: [{safe: c, critical: d, weight: 2}]
    pairs: all
    top_classes: 2
    degenerate: retain
    saturated: score
    calibration: {posterior: mc-dropout}
`)
	if p.Hash != wantOfAll {
		t.Errorf("hash of a policy with every field %s, want %s", p.Hash, wantOfAll)
	}
	const wantOfSettled = "b43377da1bb8de68f73aec1f82fcd97f2d91679c4d195f8ff37cbeb5c12d467a"
	if p := parseOne(t, settledText(strings.Replace(fullRule, "      patience: 7.5\n", "", 1))); p.Hash != wantOfSettled {
		t.Errorf("hash with a rule to settle by %s, want %s", p.Hash, wantOfSettled)
	}
	const wantOfPatient = "98aa1c878805d6d2b842dc38e6285997c5f602a15439fe90026f9013d31b15e4"
	if p := parseOne(t, settledText(fullRule)); p.Hash != wantOfPatient {
		t.Errorf("hash with one that has patience %s, want %s", p.Hash, wantOfPatient)
	}
}

// A change of any field of a policy changes its hash, but for the version, the
// tensor, the calibration, and what of the block settle decides nothing; that of any of
// these changes the hash of the set.
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
    calibration:
      expected_coverage: {value: 0.8, low: 0.7, high: 0.9}
      expected_critical_fnr: {value: 0.8, low: 0.7, high: 0.9}
      certificate: {kind: learn-then-test, target: 0.1, confidence: 0.9, cases: 9, misses: 1, p_value: 0.1}
      reference: {inputs: 9, classes: [{class: a, predicted: 0.5, epistemic: `+levels(1)+`, skewness: `+levels(2)+`}]}
`))
	// What the daemon acts on: all steps, the order, and the shares that it watches.
	decides := regexp.MustCompile(`^\.Settle($|\.(PolicyHash|Order|Rule)|\.Certificate\.(Disagreement|Confidence|Released\.AtMost)$)`)
	before, beforeSet := p.Hash, newSet([]*Policy{p}).Hash()
	var paths []string
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
			return
		case reflect.Pointer:
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
		inCalibration := strings.HasPrefix(path, ".Calibration")
		covered := !inCalibration && path != ".Version" && path != ".Tensor" && path != ".Hash"
		if strings.HasPrefix(path, ".Settle") {
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

// levels is as many numbers as a reference has, in a list.
func levels(first float64) string {
	list := make([]string, drift.Levels)
	for i := range list {
		list[i] = fmt.Sprint(first + float64(i)/8)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// Lists that look alike when joined are told apart.
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

// The order of fields and of sets, comments, layout and the spelling out of
// defaults do not change the hash; another value of any field does.
func TestHashIsOfTheMeaning(t *testing.T) {
	type choice struct {
		name     string
		standard string // spelt out
		other    string // of another meaning
	}
	choices := []choice{
		{"critical", "[b, c]", "[b]"},
		{"safe", "[a, d]", "[d]"},
		{"kind", "probabilities", "logits"},
		{"passes", "{fewest: 4}", "{fewest: 5}"},
		{"sum_tolerance", "0.001", "0.002"},
		{"variance", "sample", "population"},
		{"reliability_threshold", "3e-1", "0.31"},
		{"gate", "any-critical", "deciding-class"},
		{"scope", "all", "predicted-safe"},
		{"primary", "{threshold: 0.5, score: c_crit_max}", "{threshold: 0.5, score: mi}"},
		{"fallback", "{score: cbec, threshold: 1}", "{score: cbec, threshold: 2}"},
		{"pair_weights", "[{safe: d, critical: b, weight: 1}]", "[{safe: d, critical: b, weight: 1.5}]"},
		{"pairs", "safe-critical", "all"},
		{"top_classes", "4", "3"},
		{"degenerate", "defer", "score"},
		{"saturated", "defer", "retain"},
	}
	const fixed = "name: m\nclasses: [a, b, c, d]\ncritical: [c, b]\nprimary: {threshold: .5}\nfallback: {threshold: 1.0}"
	plain := parseOne(t, "models:\n- "+strings.ReplaceAll(fixed, "\n", "\n  ")).Hash

	rapid.Check(t, func(t *rapid.T) {
		lines := map[string]string{}
		for _, line := range strings.Split(fixed, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			lines[name] = value
		}
		for _, c := range choices {
			if rapid.Bool().Draw(t, c.name) {
				lines[c.name] = c.standard
			}
		}
		changed := rapid.IntRange(-1, len(choices)-1).Draw(t, "changed")
		if changed >= 0 {
			lines[choices[changed].name] = choices[changed].other
			if choices[changed].name == "critical" {
				lines["safe"] = "[a, d]" // or it would change as well
			}
		}
		var fields []string
		for name, value := range lines {
			fields = append(fields, fmt.Sprintf("%s: %s", name, value))
		}
		seed := rapid.Uint64().Draw(t, "order")
		order := rand.New(rand.NewPCG(seed, 0))
		order.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		text := "models: # " + rapid.StringMatching(`[a-z: ]*`).Draw(t, "comment") + "\n  -\n      " +
			strings.Join(fields, "\n\n      # and\n      ")
		set, err := Parse(File{"test.yaml", []byte(text)})
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if same := set.All()[0].Hash == plain; same != (changed < 0) {
			t.Errorf("hash is the same: %t, in\n%s", same, text)
		}
	})
}
