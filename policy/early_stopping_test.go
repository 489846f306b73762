package policy

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/policy/earlystop"
)

const (
	saneText = threeClassesText + "  passes: {fewest: 5, expected: 30}\n  primary: {threshold: 0.02}\n  fallback: {threshold: 0.003}\n"

	// plainRule is a block with only the required keys; HASH stands for the policy's.
	plainRule = `
      early_stopping:
        policy_hash: HASH
        certificate: {disagreement: 0.01, confidence: 0.9, released: {at_most: 0.05}}
        boundaries:
          - {passes: 6, retain: -4, defer: -4}
`
	// fullRule has every key.
	fullRule = `
      early_stopping:
        policy_hash: HASH
        order: recorded
        software: ckd v0.8.0
        passes_file: runs/mc.npy
        passes_sha256: "0000000000000000000000000000000000000000000000000000000000000000"
        inputs: 1063
        seed: 42
        mean_passes: 8.5
        halves_differ: 0.09
        certificate:
          disagreement: 0.01
          confidence: 0.9
          inputs: 1062
          disagreements: 6
          released: {at_most: 0.05, deferred: 200, released: 4}
          critical_released: {at_most: 0.08, deferred: 60, released: 1}
        patience: 8
        boundaries:
          - {passes: 5, retain: -4, defer: -3.5}
          - {passes: 8, retain: -5, defer: -1.0e+06}
        retain:
          - {of: own, times: doubt, weight: 1.5, last: 2}
          - {of: own, weight: 0.75}
        defer:
          - {of: peak, weight: -0.5, last: 0.25}
          - {of: margin, weight: 1, last: 0}
`
)

// settledText returns a file of one model, saneText or another, with a rule for early stopping that
// was learned for it, and further keys of the calibration.
func settledText(block string, model ...string) string {
	text := saneText
	if len(model) > 0 {
		text = model[0]
	}
	set, err := Parse(File{"model.yaml", []byte(text)})
	if err != nil {
		panic(err) // of a constant of the tests
	}
	block = strings.TrimPrefix(block, "\n")
	if !strings.Contains(text, "calibrated:") {
		block = "    calibrated:\n" + block
	}
	if strings.Contains(text, "\n- ") { // the model is an item of a list: indent the block less
		block = strings.ReplaceAll("\n"+block, "\n  ", "\n")[1:]
	}
	return text + strings.ReplaceAll(block, "HASH", set.All()[0].HashWithoutEarlyStop())
}

// TestEarlyStopping checks that a block is read as written, and written back as it was.
func TestEarlyStopping(t *testing.T) {
	p := parseOne(t, settledText(fullRule))
	halves, two, quarter, zero := 0.09, 2.0, 0.25, 0.0
	form := &earlystop.Form{
		Boundaries: []earlystop.Boundary{{Passes: 5, Retain: -4, Defer: -3.5}, {Passes: 8, Retain: -5, Defer: -earlystop.Never}},
		Retain:     []earlystop.Term{{Of: "own", Times: "doubt", Weight: 1.5, Last: &two}, {Of: "own", Weight: 0.75}},
		Defer:      []earlystop.Term{{Of: "peak", Weight: -0.5, Last: &quarter}, {Of: "margin", Weight: 1, Last: &zero}},
	}
	want := &EarlyStopping{
		PolicyHash: parseOne(t, saneText).Hash, Order: MembersOrder, Software: "ckd v0.8.0",
		PassesFile: "runs/mc.npy", PassesSHA256: strings.Repeat("0", 64), Inputs: 1063, Seed: 42,
		MeanPasses: 8.5, HalvesDiffer: &halves,
		Certificate: EarlyStopCertificate{
			Disagreement: 0.01, Confidence: 0.9, Inputs: 1062, Disagreements: 6,
			Released: ReleasedShare{0.05, 200, 4}, CriticalReleased: &ReleasedShare{0.08, 60, 1},
		},
		Rule: form.Rule(30, 8),
	}
	if diff := cmp.Diff(want, p.EarlyStopping); diff != "" {
		t.Errorf("block (-want +got):\n%s", diff)
	}
	if rule := p.EarlyStop(); rule != &p.EarlyStopping.Rule {
		t.Errorf("rule in force %p, want that of the block", rule)
	}
	if without := parseOne(t, saneText); p.HashWithoutEarlyStop() != without.Hash || p.Hash == without.Hash {
		t.Errorf("hash %s, without the block %s, want another and %s", p.Hash, p.HashWithoutEarlyStop(), without.Hash)
	}
	if got := parseOne(t, settledText(plainRule)).EarlyStopping; got.Order != AnyOrder {
		t.Errorf("order %s where it is not given, want %s", got.Order, AnyOrder)
	}
	_, got, _ := strings.Cut(string(p.Marshal()), "        order")
	if _, want, _ := strings.Cut(fullRule, "        order"); got != want {
		t.Errorf("written\n%s\nwant\n%s", got, want)
	}
	checkMarshal(t, p)
	// The order of terms, and of the two statistics of one, mean nothing.
	other := strings.NewReplacer("of: own, times: doubt", "of: doubt, times: own", "weight: 0.75", "weight: 0.75, last: 0.75").Replace(fullRule)
	if got := parseOne(t, settledText(other)); got.Hash != p.Hash {
		t.Errorf("hash %s, want %s", got.Hash, p.Hash)
	}
}

// TestEarlyStoppingOfAnotherPolicy checks that a policy that was changed since its rule was learned
// has no rule in force and says so: all passes decide, as if there were no block.
func TestEarlyStoppingOfAnotherPolicy(t *testing.T) {
	settled := settledText(fullRule)
	for name, change := range map[string][2]string{
		"threshold":     {"threshold: 0.02}", "threshold: 0.021}"},
		"gate":          {"  passes:", "  gate: always\n  passes:"},
		"scope":         {"  passes:", "  scope: predicted-safe\n  passes:"},
		"name":          {"name: m", "name: n"},
		"more passes":   {"expected: 30", "expected: 31"},
		"fewer passes":  {"expected: 30", "expected: 7"}, // than boundaries
		"a million":     {"expected: 30", "expected: 1000000"},
		"fewest passes": {"fewest: 5", "fewest: 20"},
		"observing":     {"  primary: {threshold: 0.02}\n  fallback: {threshold: 0.003}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(settled, change[0], change[1], 1)
			if text == settled {
				t.Fatal("nothing was changed")
			}
			p := parseOne(t, text)
			without, _, _ := strings.Cut(text, "  calibrated:")
			plain := parseOne(t, without)
			if p.EarlyStop() != nil {
				t.Error("the rule is in force")
			}
			if p.Hash != plain.Hash || p.HashWithoutEarlyStop() != plain.Hash {
				t.Errorf("hashes %s and %s, want %s", p.Hash, p.HashWithoutEarlyStop(), plain.Hash)
			}
			checkSentences(t, p.explainEarlyStopping(), [][]string{{"Early stopping is off", "All passes decide"}})
			fragment := "calibrated.early_stopping.policy_hash: early stopping is off, since the policy was changed after its rule was learned " +
				"(its hash without the rule is now " + plain.Hash + ")"
			if got, rest := p.Warnings(), plain.Warnings(); len(got) != len(rest)+1 ||
				!slices.ContainsFunc(got, func(w string) bool { return strings.HasPrefix(w, fragment) }) {
				t.Errorf("warnings %q, want one more than %q, with %q", got, rest, fragment)
			}
			checkInvariants(t, p)
			checkMarshal(t, p)
		})
	}
}

// TestEarlyStoppingStays checks that a new version or calibration leaves the rule in force.
func TestEarlyStoppingStays(t *testing.T) {
	for _, more := range []string{"  version: another\n", "    posterior: mc-dropout\n", "  sum_tolerance: 0.001\n"} {
		t.Run(more, func(t *testing.T) {
			if p := parseOne(t, settledText(plainRule)+more); p.EarlyStop() == nil {
				t.Error("not in force")
			}
		})
	}
}

// TestEarlyStoppingIsBounded checks that a small file leads to a small policy, whatever numbers of
// passes it names.
func TestEarlyStoppingIsBounded(t *testing.T) {
	model := strings.Replace(saneText, "expected: 30", "expected: 1000000", 1)
	for name, text := range map[string]string{
		"a rule for it":        settledText(plainRule, model),
		"a rule for another":   model + strings.Replace(strings.TrimPrefix(settledText(plainRule), saneText), "passes: 6", "passes: 2", 1),
		"boundaries far apart": settledText(plainRule) + "        - {passes: 999999, retain: -4, defer: -4}\n",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(File{"f.yaml", []byte(text)})
			runtime.ReadMemStats(&after)
			if most := uint64(4 << 20); after.TotalAlloc-before.TotalAlloc > most {
				t.Errorf("%d bytes allocated, want at most %d", after.TotalAlloc-before.TotalAlloc, most)
			}
			if name != "a rule for another" && err == nil {
				t.Error("no fault")
			}
		})
	}
}

func TestWhyNoEarlyStop(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"sane":            {saneText, ""},
		"dirichlet":       {threeClassesText + "  kind: dirichlet\n  fallback: {threshold: 1}\n", "kind is dirichlet"},
		"observing":       {threeClassesText + "  passes: {expected: 30}\n", "no thresholds"},
		"no end":          {strings.Replace(saneText, ", expected: 30", "", 1), "passes.expected is not given"},
		"most passes":     {strings.Replace(saneText, "expected: 30", "expected: 1000", 1), ""},
		"too many passes": {strings.Replace(saneText, "expected: 30", "expected: 1001", 1), "passes.expected is 1001, above 1000"},
		"a pass less":     {strings.Replace(saneText, "fewest: 5", "fewest: 29", 1), ""},
		"no pass less":    {strings.Replace(saneText, "fewest: 5", "fewest: 30", 1), "as passes.fewest is"},
		"ova_mi":          {saneText + "  gate: always\n", ""},
		"ova_mi decides": {strings.Replace(saneText, "fallback: {", "fallback: {score: ova_mi, ", 1),
			"fallback.score is ova_mi"},
		"ova_mi out of reach": {strings.Replace(saneText, "fallback: {", "gate: never\n  fallback: {score: ova_mi, ", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := parseOne(t, test.text).WhyNoEarlyStop()
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestExplainEarlyStopping(t *testing.T) {
	for _, test := range []struct {
		name, block string
		want        [][]string
	}{
		{"plain", plainRule, [][]string{
			{"after 6 to 30 passes", "With confidence 90%, at most 1% of the inputs"}, {"at most 5% of the inputs that all passes defer"},
		}},
		{"full", fullRule, [][]string{
			{"in the order of the ensemble's members", "8.5 on average", "at most 1% of the inputs", "(6 of 1,062 were)"},
			{"at most 5%", "(4 of 200)", "at most 8% of the critical ones", "(1 of 60)"},
			{"halves of the passes", "9% of the inputs"},
		}},
		{"nothing of the deferred", strings.NewReplacer("at_most: 0.05", "at_most: 1", "boundaries:", "halves_differ: 0\n        boundaries:").Replace(plainRule), [][]string{
			{"Early stopping"}, {"an unknown share of the inputs that all passes defer"}, {"0% of the inputs"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkSentences(t, parseOne(t, settledText(test.block)).explainEarlyStopping(), test.want)
		})
	}
}

// TestWarningsOfEarlyStopping checks each warning about a rule in force, on a policy that causes it and on
// one that just does not.
func TestWarningsOfEarlyStopping(t *testing.T) {
	certificate := func(with string) string {
		return strings.Replace(plainRule, "confidence: 0.9, released: {at_most: 0.05}", "confidence: 0.9, "+with, 1)
	}
	for _, test := range []struct{ name, text, want string }{
		{"plain", settledText(plainRule), ""},
		{"nearly half released", settledText(certificate("inputs: 230, disagreements: 0, released: {at_most: 0.49}")), ""},
		{"half released", settledText(certificate("released: {at_most: 0.5, deferred: 5, released: 0}")),
			"calibrated.early_stopping.certificate.released.at_most: early stopping may retain up to 50% of the inputs"},
		{"nothing certified of those released", settledText(certificate("released: {at_most: 1, deferred: 3, released: 3}")),
			"calibrated.early_stopping.certificate.released.at_most: early stopping may retain up to 100%"},
		{"an ensemble in any order", settledText(plainRule) + "    posterior: ensemble\n    recording: {passes: 30}\n",
			"calibrated.early_stopping.order: the passes are of an ensemble"},
		{"an ensemble in its order", settledText(strings.Replace(plainRule, "boundaries:", "order: recorded\n        boundaries:", 1)) +
			"    posterior: ensemble\n    recording: {passes: 30}\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkWarnings(t, parseOne(t, test.text), test.want)
		})
	}
}
