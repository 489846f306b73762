package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const threeClassesText = "models:\n- name: m\n  classes: [normal, suspect, pathologic]\n  critical: [suspect, pathologic]\n"

// TestExplain checks fragments of each sentence, in their order.
func TestExplain(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       [][]string
	}{
		{
			"thresholds",
			threeClassesText + "  passes: {fewest: 10, expected: 30}\n  primary: {threshold: 0.02}\n  fallback: {threshold: 0.003}\n",
			[][]string{
				{"3 classes", "suspect and pathologic must not be missed (critical)", "normal is safe"},
				{"at least 10 passes of probabilities", "1 within 0.001", "answered when it has 30"},
				{"skewness of every critical class is at most 0.3", "decides is c_crit_max (the model's ignorance", "not trusted and cbec ("},
				{"(defer) when c_crit_max is above 0.02 nats", "when cbec is above 0.003 nats", "retained"},
				{"Any input can be deferred"},
				{"hardly differ is deferred", "the same holds where the passes are one-hot"},
			},
		},
		{
			"observing, logits, population",
			threeClassesText + "  safe: []\n  fallback: {score: mi}\n  kind: logits\n  variance: population\n",
			[][]string{
				{"none is safe; neither: 1"},
				{"at least 3 passes of logits", "answered when its caller says that it is complete"},
				{"skewness of every critical class is at most 0.3", "decides is c_crit_max", "mi (mutual information"},
				{"No thresholds", "nothing is deferred"},
				{"divided by the number of passes", "do not carry over"},
			},
		},
		{
			"never, no critical class, handled apart",
			"models: [{name: m, classes: [a, b], gate: never, primary: {score: maxprob, threshold: 0.5}, saturated: retain}]",
			[][]string{
				{"2 classes, none is critical"},
				{"at least 2 passes of probabilities", "answered when its caller says"},
				{"decides is always maxprob ("},
				{"when maxprob is above 0.5; at or under"},
				{"Any input"},
				{"hardly differ is deferred", "one-hot, it is retained"},
			},
		},
		{
			"dirichlet, predicted safe, weights",
			threeClassesText + "  kind: dirichlet\n  scope: predicted-safe\n  fallback: {threshold: 0.1}\n" +
				"  pair_weights: [{safe: normal, critical: pathologic, weight: 2}]\n",
			[][]string{
				{"3 classes"},
				{"one row of positive Dirichlet concentrations"},
				{"always the fallback, cbec ("},
				{"when cbec is above 0.1 nats"},
				{"predicted critical is never deferred"},
				{"normal with pathologic counts 2 times"},
			},
		},
		{
			"observing, calibrated dirichlet",
			threeClassesText + "  kind: dirichlet\n  calibrated: {software: ckd v0.4.0, recording: {inputs: 90}}\n",
			[][]string{
				{"normal is safe"}, {"Dirichlet"}, {"always the fallback"}, {"No thresholds"},
				{"calibrated by ckd v0.4.0 on 90 inputs (0 critical)", "not carry over to another model"},
				{"no certificate"},
			},
		},
		{"long lists", manyClasses(1000, 12), [][]string{
			{"1000 classes, c0, c1,", "c9 and 2 more must not be missed (critical)", "c20, c21 and 978 more are safe"}, {}, {}, {},
		}},
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

// TestExplainCalibration checks that an explanation ends with what the policy was calibrated for.
func TestExplainCalibration(t *testing.T) {
	plain := parseOne(t, threeClassesText)
	const of30 = "recording: {passes: 30}, posterior: x, "
	for _, test := range []struct {
		name, calibration string
		want              [][]string
	}{
		{"nothing given", "{seed: 1}", [][]string{{"unknown number of passes from an unknown posterior", "not carry over"}, {"no certificate"}}},
		{
			"learn then test",
			"{software: ckd v0.4.0, recording: {inputs: 2126, critical_inputs: 471, passes: 30}, posterior: mc-dropout, " +
				"objective: coverage 0.8, expected_coverage: {value: 0.8, low: 0.785, high: 0.8125}, " +
				"expected_critical_miss_rate: {value: 0.03, low: 0, high: 1}, certificate: {kind: learn-then-test, bounds: critical-fnr, target: 0.05, confidence: 0.95, " +
				"cases: 200, misses: 3, p_value: 0.03}}",
			[][]string{
				{"by ckd v0.4.0 for coverage 0.8 on 2126 inputs (471 critical) of 30 passes from mc-dropout"},
				{"80% (95% interval 78.5% to 81.2%) of the inputs", "3% of all critical inputs"},
				{"learn-then-test: with confidence 0.95, at most 5%", "3 of 200 cases"},
				{"more than: critical FNR 5% (certified)"},
			},
		},
		{
			"a statement of its own",
			"{" + of30 + "certificate: {kind: learn-then-test, bounds: critical-miss-rate, target: 0.02, confidence: 0.9, statement: All is well.}}",
			[][]string{{"of 30 passes from x"}, {"learn-then-test", "All is well."}, {"critical miss rate 2% (certified)"}},
		},
		{
			"as it was calibrated, at a second attempt",
			"{" + of30 + "policy_hash: " + plain.Hash + ", expected_coverage: {value: 0.8, low: 0, high: 1}, earlier_attempt: for critical FNR 0.04}",
			[][]string{{"of 30 passes from x"}, {"expect 80%"}, {"no certificate"}, {"for critical FNR 0.04", "void"}},
		},
		{
			"with a reference",
			"{" + of30 + "reference: {inputs: 2126, classes: [" +
				"{class: suspect, predicted: 0.5, epistemic: " + levels(0) + ", skewness: " + levels(0) + "}, " +
				"{class: normal, predicted: 0.25, epistemic: " + levels(0) + ", skewness: " + levels(0) + "}]}}",
			[][]string{{"of 30 passes from x"}, {"no certificate"}, {"of suspect and normal are compared with 2126 calibration inputs"}},
		},
		{
			"changed since",
			"{" + of30 + "policy_hash: " + strings.Repeat("0", 64) + ", expected_coverage: {value: 0.8, low: 0, high: 1}, " +
				"certificate: {kind: learn-then-test, bounds: critical-miss-rate, target: 0.02, confidence: 0.9, statement: All is well.}, earlier_attempt: for critical FNR 0.04}",
			[][]string{{"of 30 passes from x"}, {"changed after its calibration", "nothing is guaranteed"}, {"for critical FNR 0.04"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := parseOne(t, threeClassesText+"  calibrated: "+test.calibration+"\n").Explain()
			checkSentences(t, got[len(plain.Explain()):], test.want)
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
		{"observing", threeClassesText + expected, "thresholds: none are given"},
		{"certified and observing", threeClassesText + expected + told + "{kind: learn-then-test, bounds: critical-fnr, target: 0.1, confidence: 0.9}}\n",
			"calibrated.certificate: the policy has no thresholds\nthresholds: none are given"},
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
			"passes.fewest: 4 passes cannot show a skewness above 0.5, near the reliability threshold of 0.3: few " +
				"unreliable classes are found, ask for at least 5"},
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

		{"primary threshold out of reach", sane + "  gate: always\n", "primary.threshold: has no effect: with gate always"},
		{"fallback threshold out of reach", sane + "  gate: never\n", "fallback.threshold: has no effect: with gate never"},

		{"dirichlet with skewness", threeClassesText + thresholds + "  kind: dirichlet\n  gate: any-critical\n",
			"gate: any-critical with dirichlet"},
		{"dirichlet", threeClassesText + "  fallback: {threshold: 1}\n  kind: dirichlet\n  degenerate: retain\n", ""},

		{"degenerate retained", sane + "  degenerate: retain\n", "degenerate: retain: if dropout is off"},
		{"degenerate by score", sane + "  degenerate: score\n", "degenerate: score: where passes hardly differ"},
		{"saturated retained", sane + "  saturated: retain\n", ""},

		{"p_critical", twoClasses + "  gate: never\n  primary: {score: p_critical, threshold: 0.1}\n  scope: predicted-safe\n" +
			"  guard: {score: mi, threshold: 0.4}\n", ""},
		{"p_critical without a guard", twoClasses + "  gate: never\n  primary: {score: p_critical, threshold: 0.1}\n  scope: predicted-safe\n",
			""},
		{"p_critical over all inputs", twoClasses + "  gate: never\n  primary: {score: p_critical, threshold: 0.1}\n" +
			"  guard: {score: mi, threshold: 0.4}\n", "primary.score: p_critical with scope all defers first"},

		{"p_critical above any probability", twoClasses + "  gate: never\n  primary: {score: p_critical, threshold: 1.5}\n" +
			"  scope: predicted-safe\n", "primary.threshold: 1.5 defers nothing"},
		{"weights that are all zero", sane + "  pair_weights: [{safe: normal, critical: suspect, weight: 0}, " +
			"{safe: normal, critical: pathologic, weight: 0}]\n", "pair_weights: all are 0"},

		{"loose sum tolerance", sane + "  sum_tolerance: 0.02\n", "sum_tolerance: 0.02 lets rows pass"},
		{"sum tolerance for half precision", sane + "  sum_tolerance: 0.01\n", ""},
		{"sum tolerance of logits", sane + "  sum_tolerance: 0.1\n  kind: logits\n", ""},

		{"five critical classes", manyClasses(10, 5) + expected + thresholds, "gate: any-critical with 5 critical classes"},
		{"four critical classes", manyClasses(10, 4) + expected + thresholds, ""},

		{"calibrated", sane + told + "{kind: learn-then-test, bounds: critical-fnr, target: 0.1, confidence: 0.9, p_value: 0.1}}\n", ""},
		{"calibrated on other passes", strings.Replace(sane, "expected: 30", "expected: 29", 1) + told +
			"{kind: learn-then-test, bounds: critical-miss-rate, target: 0.1, confidence: 0.9}}\n", "calibrated.recording.passes: calibrated on inputs of 30 passes, but an " +
			"input is answered when it has 29"},
		{"calibrated on passes that are not told", sane + "  calibrated: {posterior: ensemble}\n",
			"calibrated.recording.passes: not given"},
		{"calibrated on a posterior that is not told", sane + "  calibrated: {recording: {passes: 30}}\n",
			"calibrated.posterior: not given"},
		{"as it was calibrated", sane + hashed + parseOne(t, sane).Hash + "}\n", ""},
		{"changed since it was calibrated", sane + hashed + strings.Repeat("0", 64) + "}\n",
			"calibrated.policy_hash: the policy was changed after its calibration (without lines its hash is now " + parseOne(t, sane).Hash +
				"): what is expected and certified is not of it"},
		{"calibrated dirichlet", threeClassesText + "  fallback: {threshold: 1}\n  kind: dirichlet\n  calibrated: {seed: 1}\n", ""},

		{"a reference of the critical classes", sane + referred(2126, "suspect", "pathologic"), ""},
		{"a reference without a critical class", sane + referred(2126, "suspect", "normal"),
			"calibrated.reference.classes: pathologic is not among them though critical"},
		{"a reference of few inputs", sane + referred(10, "suspect", "pathologic"),
			"calibrated.reference.inputs: beside 10 inputs no C_k is an alarm"},
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
