package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const threeClassesText = "models:\n- name: m\n  classes: [normal, suspect, pathologic]\n  critical: [suspect, pathologic]\n"

// TestSummary checks that the first sentence says when an input is deferred, and the second what is expected.
func TestSummary(t *testing.T) {
	const (
		thresholds = "  primary: {threshold: 0.02}\n  fallback: {threshold: 0.003}\n"
		expected   = "expected_coverage: {value: 0.801, low: 0.78, high: 0.82}, expected_critical_miss_rate: {value: 0.0191, low: 0.009, high: 0.036}"
	)
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"observes": {threeClassesText, []string{"Policy m observes: every input is answered, none is deferred."}},
		"gate": {threeClassesText + thresholds, []string{
			"Policy m: defer when the largest C_k of a critical class is above 0.02 nats or, where the skewness of a critical class is above 0.3",
			"when the confusion between safe and critical classes is above 0.003 nats", "not known", "not calibrated",
		}},
		"calibrated": {threeClassesText + thresholds + "  calibrated: {" + expected + "}\n", []string{
			"nats. Expected: 1.9% of critical inputs missed (95%: 0.9 to 3.6) with 199 reviews per 1,000 inputs.",
		}},
		"without reviews":  {threeClassesText + thresholds + "  calibrated: {expected_critical_miss_rate: {value: 0.03, low: 0, high: 1}}\n", []string{"3% of critical inputs missed."}},
		"nothing expected": {threeClassesText + thresholds + "  calibrated: {seed: 1}\n", []string{"not known: its calibration does not say"}},
		"changed": {threeClassesText + thresholds + "  calibrated: {policy_hash: " + strings.Repeat("0", 64) + ", " + expected + "}\n", []string{
			"not known: the policy was changed after",
		}},
		"never": {"models: [{name: m, classes: [a, b], gate: never, primary: {score: maxprob, threshold: 0.057}}]", []string{
			"defer when the largest probability is below 94.3%. ",
		}},
		"always": {threeClassesText + "  kind: dirichlet\n  fallback: {threshold: 0.1}\n", []string{"defer when the confusion between safe and critical classes is above 0.1 nats."}},
	} {
		t.Run(name, func(t *testing.T) {
			got := parseOne(t, test.text).Summary()
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q lacks %q", got, want)
				}
			}
		})
	}
}

// TestNoIdentifiersInProse checks that no text about a policy names a score, a field or a reason as programs do.
func TestNoIdentifiersInProse(t *testing.T) {
	for _, score := range RuleScores() {
		if words := score.Words(); words == "" || strings.Contains(strings.ReplaceAll(words, "C_k", ""), "_") || words == string(score) && score != RiskScore {
			t.Errorf("%s: %q", score, words)
		}
	}
	p := parseOne(t, threeClassesText+"  scope: predicted-safe\n  primary: {threshold: 0.02}\n  fallback: {score: eu_var_crit, threshold: 0.003}\n  audit: {rate: 0.1}\n")
	identifier := regexp.MustCompile(`[a-z]+_[a-z_]+|gate never|predicted-safe`)
	for _, text := range append(p.Explain(), p.Summary()) {
		if found := identifier.FindString(strings.ReplaceAll(text, "C_k", "")); found != "" {
			t.Errorf("%q in %q", found, text)
		}
	}
}

// TestExplain checks fragments of each point, in their order.
func TestExplain(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       [][]string
	}{
		{
			"thresholds",
			threeClassesText + "  passes: {fewest: 10, expected: 30}\n  primary: {threshold: 0.02}\n  fallback: {threshold: 0.003}\n",
			[][]string{
				{"2 of 3 classes", "suspect and pathologic", "Safe: normal."},
				{"Any input can be deferred"},
				{"10 or more passes of probabilities", "1 within 0.001", "answered at 30"},
				{"hardly differ are deferred."},
			},
		},
		{
			"observing, logits, population",
			threeClassesText + "  safe: []\n  fallback: {score: mi}\n  kind: logits\n  variance: population\n",
			[][]string{
				{"None is safe"},
				{"3 or more passes of logits", "answered when its caller says that it is complete"},
				{"divided by the number of passes", "do not carry over"},
			},
		},
		{
			"never, no critical class, handled apart",
			"models: [{name: m, classes: [a, b], gate: never, primary: {score: maxprob, threshold: 0.5}, saturated: retain}]",
			[][]string{
				{"None of the 2 classes is critical"}, {"Any input"}, {"2 or more passes of probabilities", "answered when its caller says"},
				{"hardly differ are deferred", "one-hot are retained"},
			},
		},
		{
			"dirichlet, predicted safe, weights",
			threeClassesText + "  kind: dirichlet\n  scope: predicted-safe\n  fallback: {threshold: 0.1}\n" +
				"  pair_weights: [{safe: normal, critical: pathologic, weight: 2}]\n",
			[][]string{
				{"3 classes"}, {"Inputs called critical are never deferred"}, {"one row of positive Dirichlet concentrations"},
				{"normal with pathologic 2 times"},
			},
		},
		{
			"observing, calibrated dirichlet",
			threeClassesText + "  kind: dirichlet\n  calibrated: {software: ckd v0.4.0, recording: {inputs: 90}}\n",
			[][]string{{"no certificate"}, {"on 90 inputs, with ckd v0.4.0", "not carry over to another model."}, {"normal"}, {"Dirichlet"}},
		},
		{"long lists", manyClasses(1000, 400), [][]string{{"400 of 1,000 classes", "c0, c1,", "more. Safe: c400", " more."}, {}}},
	} {
		t.Run(test.name, func(t *testing.T) { checkSentences(t, parseOne(t, test.text).Explain(), test.want) })
	}
}

// checkSentences wants a sentence for each list of fragments that it must have.
func checkSentences(t *testing.T, got []string, want [][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d sentences, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i, fragments := range want {
		for _, fragment := range fragments {
			if !strings.Contains(got[i], fragment) {
				t.Errorf("%q lacks %q", got[i], fragment)
			}
		}
	}
}

// TestExplainCalibration checks that an explanation begins with what is guaranteed and what the policy was calibrated on.
func TestExplainCalibration(t *testing.T) {
	plain := parseOne(t, threeClassesText)
	const of30 = "recording: {passes: 30}, posterior: x, "
	for _, test := range []struct {
		name, calibration string
		want              [][]string
	}{
		{"nothing given", "{seed: 1}", [][]string{{"no certificate"}, {"unknown number of inputs of an unknown number of passes", "not carry over"}, {"2 of 3"}}},
		{
			"learn then test",
			"{software: ckd v0.4.0, recording: {inputs: 2126, critical_inputs: 471, passes: 30}, posterior: mc-dropout, " +
				"objective: coverage 0.8, certificate: {kind: learn-then-test, bounds: critical-fnr, target: 0.05, confidence: 0.95, " +
				"cases: 200, misses: 3, p_value: 0.03}}",
			[][]string{
				{"Certified with confidence 95%: at most 5% of the retained critical inputs", "3 of 200"},
				{"on 2,126 inputs (471 critical) of 30 passes by mc-dropout, with ckd v0.4.0, for coverage 0.8."},
				{"2 of 3"}, {"alarm", "5% (certified)"},
			},
		},
		{
			"a statement of its own",
			"{" + of30 + "certificate: {kind: learn-then-test, bounds: critical-miss-rate, target: 0.02, confidence: 0.9, statement: All is well.}}",
			[][]string{{"Certified: All is well."}, {"of 30 passes by x"}, {"2 of 3"}, {"critical miss rate 2% (certified)"}},
		},
		{
			"as it was calibrated, at a second attempt",
			"{" + of30 + "policy_hash: " + plain.Hash + ", expected_coverage: {value: 0.8, low: 0, high: 1}, earlier_attempt: for critical FNR 0.04}",
			[][]string{{"no certificate"}, {"of 30 passes by x"}, {"for critical FNR 0.04", "void"}, {"2 of 3"}},
		},
		{
			"changed since",
			"{" + of30 + "policy_hash: " + strings.Repeat("0", 64) + ", expected_coverage: {value: 0.8, low: 0, high: 1}, " +
				"certificate: {kind: learn-then-test, bounds: critical-miss-rate, target: 0.02, confidence: 0.9, statement: All is well.}, earlier_attempt: for critical FNR 0.04}",
			[][]string{{"Nothing is guaranteed", "changed after its calibration"}, {"of 30 passes by x"}, {"for critical FNR 0.04"}, {"2 of 3"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := parseOne(t, threeClassesText+"  calibrated: "+test.calibration+"\n").Explain()
			checkSentences(t, got[:len(got)-1], test.want) // without that of the passes
		})
	}
}

// TestWarnings checks each warning by a fragment, on a policy that causes it and on one that just
// does not.
func TestWarnings(t *testing.T) {
	const (
		expected   = "  passes: {fewest: 5, expected: 30}\n"
		thresholds = "  primary: {threshold: 0.02}\n  fallback: {threshold: 0.003}\n"
		sane       = threeClassesText + expected + thresholds
		told       = "  calibrated: {posterior: ensemble, recording: {passes: 30}, certificate: "
		hashed     = "  calibrated: {posterior: ensemble, recording: {passes: 30}, policy_hash: "
		twoClasses = "models:\n- name: m\n  classes: [a, b]\n  critical: [b]\n" + expected
	)
	referred := func(inputs int, classes ...string) string {
		var list []string
		for _, class := range classes {
			list = append(list, "{class: "+class+", predicted: 0.1, epistemic: "+levels(0)+", skewness: "+levels(0)+"}")
		}
		return fmt.Sprintf("  calibrated: {posterior: ensemble, recording: {passes: 30}, reference: {inputs: %d, classes: [%s]}}\n",
			inputs, strings.Join(list, ", "))
	}
	tests := []struct{ name, text, want string }{ // each line of want is a warning
		{"sane", sane, ""},
		{"observing", threeClassesText + expected, ""},
		{"certified and observing", threeClassesText + expected + told + "{kind: learn-then-test, bounds: critical-fnr, target: 0.1, confidence: 0.9}}\n",
			"calibrated.certificate: nothing is guaranteed"},
		{"nothing in scope", "models:\n- name: m\n  classes: [a, b]\n  critical: [a, b]\n" + expected +
			"  gate: never\n  primary: {threshold: 1}\n  scope: predicted-safe\n",
			"critical: 2 of 2 classes are critical and 0 safe\nscope: every class is critical"},
		{"no expected passes", threeClassesText + "  passes: {fewest: 5}\n" + thresholds, "passes.expected: not given"},

		{"two classes, cbec as fallback", twoClasses + thresholds, "fallback.score: with two classes"},
		{"two classes, cbec as primary", twoClasses + "  gate: never\n  primary: {score: cbec, threshold: 1}\n",
			"primary.score: with two classes"},
		{"two classes, cbec out of reach", twoClasses + "  gate: never\n  primary: {threshold: 1}\n", ""},
		{"two classes, another fallback", twoClasses + "  primary: {threshold: 1}\n  fallback: {score: mi, threshold: 1}\n", ""},

		// The caps are (S-1)(S-2)/(3S): 0.5 at 4 passes, 0.8 at 5.
		{"skewness cap near the threshold", threeClassesText + "  passes: {fewest: 4, expected: 30}\n" + thresholds,
			"passes.fewest: the skewness of 4 passes cannot exceed 0.5, which is near the reliability threshold of 0.3: few " +
				"unreliable classes are found; ask for 5 passes or more"},
		{"skewness cap of twice the threshold", sane + "  reliability_threshold: 0.4\n", ""},
		{"skewness cap, no passes suffice", threeClassesText + "  passes: {fewest: 999999, expected: 1000000}\n" + thresholds +
			"  reliability_threshold: 300000\n", "few unreliable classes are found"},
		{"skewness cap that no gate reads", twoClasses + "  gate: never\n  primary: {threshold: 1}\n" +
			"  variance: population\n", ""},

		{"all but one of four critical", manyClasses(4, 3) + expected + thresholds,
			"critical: 3 of 4 classes are critical and 1 safe"},
		{"all but two of four critical", manyClasses(4, 2) + expected + thresholds, ""},
		{"no safe class", threeClassesText + "  safe: []\n" + expected + "  gate: never\n  primary: {threshold: 1}\n",
			"critical: 2 of 3 classes are critical and 0 safe"},

		{"primary threshold out of reach", sane + "  gate: always\n", "primary.threshold: has no effect: the primary score never decides with gate: always"},
		{"fallback threshold out of reach", sane + "  gate: never\n", "fallback.threshold: has no effect: the fallback score never decides with gate: never"},

		{"dirichlet with skewness", threeClassesText + thresholds + "  kind: dirichlet\n  gate: any-critical\n",
			"gate: at a fixed sum of concentrations"},
		{"dirichlet", threeClassesText + "  fallback: {threshold: 1}\n  kind: dirichlet\n  degenerate: retain\n", ""},

		{"degenerate retained", sane + "  degenerate: retain\n", "degenerate: inputs whose passes hardly differ are retained: if dropout is off"},
		{"degenerate by score", sane + "  degenerate: score\n", "degenerate: inputs whose passes hardly differ score about 0"},
		{"saturated retained", sane + "  saturated: retain\n", ""},

		{"p_critical", twoClasses + "  gate: never\n  primary: {score: p_critical, threshold: 0.1}\n  scope: predicted-safe\n" +
			"  guard: {score: mi, threshold: 0.4}\n", ""},
		{"p_critical without a guard", twoClasses + "  gate: never\n  primary: {score: p_critical, threshold: 0.1}\n  scope: predicted-safe\n",
			""},
		{"p_critical over all inputs", twoClasses + "  gate: never\n  primary: {score: p_critical, threshold: 0.1}\n" +
			"  guard: {score: mi, threshold: 0.4}\n", "primary.score: inputs that are called critical most surely are deferred first"},

		{"p_critical above any probability", twoClasses + "  gate: never\n  primary: {score: p_critical, threshold: 1.5}\n" +
			"  scope: predicted-safe\n", "primary.threshold: 1.5 defers nothing"},
		{"weights that are all zero", sane + "  pair_weights: [{safe: normal, critical: suspect, weight: 0}, " +
			"{safe: normal, critical: pathologic, weight: 0}]\n", "pair_weights: all are 0"},

		{"loose sum tolerance", sane + "  sum_tolerance: 0.02\n", "sum_tolerance: 0.02 accepts rows"},
		{"sum tolerance for half precision", sane + "  sum_tolerance: 0.01\n", ""},
		{"sum tolerance of logits", sane + "  sum_tolerance: 0.1\n  kind: logits\n", ""},

		{"five critical classes", manyClasses(10, 5) + expected + thresholds, "gate: one of 5 critical classes"},
		{"four critical classes", manyClasses(10, 4) + expected + thresholds, ""},

		{"calibrated", sane + told + "{kind: learn-then-test, bounds: critical-fnr, target: 0.1, confidence: 0.9, p_value: 0.1}}\n", ""},
		{"calibrated on other passes", strings.Replace(sane, "expected: 30", "expected: 29", 1) + told +
			"{kind: learn-then-test, bounds: critical-miss-rate, target: 0.1, confidence: 0.9}}\n", "calibrated.recording.passes: calibrated on inputs of 30 passes, but an " +
			"input is answered at 29"},
		{"calibrated on passes that are not told", sane + "  calibrated: {posterior: ensemble}\n",
			"calibrated.recording.passes: missing"},
		{"calibrated on a posterior that is not told", sane + "  calibrated: {recording: {passes: 30}}\n",
			""},
		{"as it was calibrated", sane + hashed + parseOne(t, sane).Hash + "}\n", ""},
		{"changed since it was calibrated", sane + hashed + strings.Repeat("0", 64) + "}\n",
			"calibrated.policy_hash: the policy was changed after its calibration (its hash without lines is now " + parseOne(t, sane).Hash +
				"): what was expected and certified is not of it"},
		{"calibrated dirichlet", threeClassesText + "  fallback: {threshold: 1}\n  kind: dirichlet\n  calibrated: {seed: 1}\n", ""},

		{"a reference of the critical classes", sane + referred(2126, "suspect", "pathologic"), ""},
		{"a reference without a critical class", sane + referred(2126, "suspect", "normal"),
			"calibrated.reference.classes: critical classes are missing, and their drift is not looked for: pathologic"},
		{"a reference of few inputs", sane + referred(10, "suspect", "pathologic"),
			"calibrated.reference.inputs: beside 10 inputs no drift can raise an alarm, expected 11 or more"},
		{"a reference of some more inputs", sane + referred(11, "suspect", "pathologic"), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			checkWarnings(t, parseOne(t, test.text), test.want)
		})
	}
}

// checkWarnings wants a warning with each line of want, and no others.
func checkWarnings(t *testing.T, p *Policy, want string) {
	t.Helper()
	got := p.Warnings()
	fragments := strings.FieldsFunc(want, func(r rune) bool { return r == '\n' })
	if !slices.EqualFunc(got, fragments, strings.Contains) {
		t.Errorf("warnings %q, want %q", got, fragments)
	}
}

// manyClasses returns a model of classes c0, c1, ..., the first ones critical.
func manyClasses(classes, critical int) string {
	list := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("c%d", i)
		}
		return "[" + strings.Join(names, ", ") + "]"
	}
	return fmt.Sprintf("models:\n- name: m\n  classes: %s\n  critical: %s\n", list(classes), list(critical))
}
