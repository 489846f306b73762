package policy

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/policy/earlystop"
)

const (
	saneText = threeClassesText + "  passes: {fewest: 5, expected: 30}\n  primary: {threshold: 0.02}\n  fallback: {threshold: 0.003}\n"

	coefficients21 = "[-7.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 2.0e-05]"

	// plainRule is a block settle with only the required fields; HASH stands for the policy's.
	plainRule = `
    settle:
      policy_hash: HASH
      certificate: {disagreement: 0.01, confidence: 0.9, released: {at_most: 0.05}}
      steps:
        - {passes: 6}
`
	// certifiedRule has the fields of either rule about how it was learned and certified.
	certifiedRule = `      seed: 42
      mean_passes: 8.5
      halves_differ: 0.09
      certificate:
        disagreement: 0.01
        confidence: 0.9
        inputs: 1062
        disagreements: 6
        released: {at_most: 0.05, deferred: 200, released: 4}
        critical_released: {at_most: 0.08, deferred: 60, released: 1}
`
	// fullRule has every field.
	fullRule = `
    settle:
      policy_hash: HASH
      order: recorded
      software: ckd v0.8.0
      passes_file: runs/mc.npy
      passes_sha256: "0000000000000000000000000000000000000000000000000000000000000000"
      inputs: 1063
` + certifiedRule + `      patience: 7.5
      steps:
        - passes: 6
          retain:
            at_most: -3.25
            coefficients: ` + coefficients21 + `
          defer:
            at_most: -5
            coefficients: ` + coefficients21 + `
        - passes: 7
          defer:
            at_most: 0.25
            coefficients: ` + coefficients21 + `
        - passes: 8
          retain:
            at_most: -3
            coefficients: ` + coefficients21 + `
`
	// formRule gives its rule by boundaries.
	formRule = `
    settle:
      policy_hash: HASH
` + certifiedRule + `      patience: 8
      boundaries:
        - {passes: 5, retain: -4, defer: -3.5}
        - {passes: 8, retain: -5}
      retain:
        - {of: own, times: doubt, weight: 1.5, last: 2}
        - {of: own, weight: 0.75}
      defer:
        - {of: peak, weight: -0.5, last: 0.25}
        - {of: margin, weight: 1, last: 0}
`
)

// settledText returns a file of one model, saneText or another, with a block settle that was learned
// for it.
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
	if strings.Contains(text, "\n- ") { // the model is an item of a list: indent the block less
		block = strings.ReplaceAll("\n"+block, "\n  ", "\n")[1:]
	}
	return text + strings.ReplaceAll(block, "HASH", set.All()[0].HashWithoutEarlyStop())
}

// TestSettle checks that a block is read as written: numbers of passes without a step ask nothing.
func TestSettle(t *testing.T) {
	p := parseOne(t, settledText(fullRule))
	halves := 0.09
	side := func(atMost float64) earlystop.Side {
		return earlystop.Side{AtMost: atMost, Coefficients: [earlystop.Terms]float64{
			-7.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 2e-5}}
	}
	want := &EarlyStopping{
		PolicyHash: parseOne(t, saneText).Hash, Order: MembersOrder, Software: "ckd v0.8.0",
		PassesFile: "runs/mc.npy", PassesSHA256: strings.Repeat("0", 64), Inputs: 1063, Seed: 42,
		MeanPasses: 8.5, HalvesDiffer: &halves,
		Certificate: EarlyStopCertificate{
			Disagreement: 0.01, Confidence: 0.9, Inputs: 1062, Disagreements: 6,
			Released: ReleasedShare{0.05, 200, 4}, CriticalReleased: &ReleasedShare{0.08, 60, 1},
		},
		Rule: earlystop.Rule{Passes: 30, Fewest: 6, Patience: 7.5, Steps: make([]earlystop.Step, 24)},
	}
	for i := range want.Rule.Steps {
		want.Rule.Steps[i] = earlystop.NoStep()
	}
	want.Rule.Steps[0] = earlystop.Step{Retain: side(-3.25), Defer: side(-5)}
	want.Rule.Steps[1].Defer, want.Rule.Steps[2].Retain = side(0.25), side(-3)
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
	checkMarshal(t, p)
}

// TestSettleForm checks that boundaries and terms make a rule, and are written back as they are.
func TestSettleForm(t *testing.T) {
	p := parseOne(t, settledText(formRule))
	rule := p.EarlyStop()
	if rule == nil {
		t.Fatal("no rule in force")
	}
	two, quarter, zero := 2.0, 0.25, 0.0
	want := &earlystop.Form{
		Boundaries: []earlystop.Boundary{{Passes: 5, Retain: -4, Defer: -3.5}, {Passes: 8, Retain: -5, Defer: -earlystop.Never}},
		Retain:     []earlystop.Term{{Of: "own", Times: "doubt", Weight: 1.5, Last: &two}, {Of: "own", Weight: 0.75}},
		Defer:      []earlystop.Term{{Of: "peak", Weight: -0.5, Last: &quarter}, {Of: "margin", Weight: 1, Last: &zero}},
	}
	if diff := cmp.Diff(want, rule.Form); diff != "" {
		t.Errorf("form (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Rule(30, 8), *rule); diff != "" {
		t.Errorf("rule (-want +got):\n%s", diff)
	}
	checkMarshal(t, p)
	text := string(p.Marshal())
	_, got, _ := strings.Cut(text, "      patience")
	if _, want, _ := strings.Cut(formRule, "      patience"); got != want {
		t.Errorf("written\n%s", text)
	}
	// The order of terms, and of the two statistics of one, mean nothing.
	other := strings.NewReplacer("of: own, times: doubt", "of: doubt, times: own", "weight: 0.75", "weight: 0.75, last: 0.75").Replace(formRule)
	if got := parseOne(t, settledText(other)); got.Hash != p.Hash {
		t.Errorf("hash %s, want %s", got.Hash, p.Hash)
	}
}

// TestMarshalSettle checks how the block is written: without steps that ask nothing, except the
// last step, which says how far the rule reaches.
func TestMarshalSettle(t *testing.T) {
	text := string(parseOne(t, settledText(fullRule)).Marshal())
	_, got, _ := strings.Cut(text, "    settle:\n")
	want := strings.ReplaceAll(strings.SplitN(fullRule, "\n", 3)[2], "HASH", parseOne(t, saneText).Hash) + "        - passes: 29\n"
	if got = strings.ReplaceAll(got, `"`, ""); got != strings.ReplaceAll(want, `"`, "") { // a hash may need them
		t.Errorf("written\n%s\nwant\n%s", got, want)
	}
}

// TestMarshalSettleThatWasMade checks rules that were not parsed, which may have coefficients
// without a boundary, and negative zeros. Their hash is the one that they have when read back.
func TestMarshalSettleThatWasMade(t *testing.T) {
	sane := parseOne(t, saneText)
	rapid.Check(t, func(t *rapid.T) {
		copied := *sane
		p := &copied
		p.ExpectedPasses = rapid.IntRange(6, 40).Draw(t, "expected passes")
		p.EarlyStopping = drawSettle(t, p)
		p.EarlyStopping.PolicyHash = p.HashWithoutEarlyStop()
		first := rapid.IntRange(p.FewestPasses, p.ExpectedPasses-1).Draw(t, "first")
		p.EarlyStopping.MeanPasses = float64(first)
		p.EarlyStopping.Rule = earlystop.Rule{Passes: p.ExpectedPasses, Fewest: first, Steps: drawSteps(t, p.ExpectedPasses-first)}
		p.EarlyStopping.Rule.Steps[0].Retain.Coefficients[3] = math.Copysign(0, -1)
		p.EarlyStopping.Rule.Steps[0].Defer.AtMost = math.Copysign(0, -1)
		set, err := Parse(File{"written.yaml", p.Marshal()})
		if err != nil {
			t.Fatalf("%v in\n%s", err, p.Marshal())
		}
		again := set.All()[0]
		if again.Hash != p.hash() || again.EarlyStop() == nil {
			t.Fatalf("hash %s, rule %v, want %s and one", again.Hash, again.EarlyStop(), p.hash())
		}
		for i := range p.EarlyStopping.Rule.Steps {
			if got, want := again.EarlyStopping.Rule.Steps[i], meant(p.EarlyStopping.Rule.Steps[i]); got != want {
				t.Fatalf("step %d\n%v\nwant\n%v", i, got, want)
			}
		}
	})
}

// TestSettleOfAnotherPolicy checks that a policy that was changed since its rule was learned has no
// rule in force and says so: all passes decide, as if there were no block.
func TestSettleOfAnotherPolicy(t *testing.T) {
	settled := settledText(fullRule)
	for name, change := range map[string][2]string{
		"threshold":     {"threshold: 0.02}", "threshold: 0.021}"},
		"gate":          {"  passes:", "  gate: deciding-class\n  passes:"},
		"scope":         {"  passes:", "  scope: predicted-safe\n  passes:"},
		"name":          {"name: m", "name: n"},
		"more passes":   {"expected: 30", "expected: 31"},
		"fewer passes":  {"expected: 30", "expected: 7"}, // than steps
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
			without, _, _ := strings.Cut(text, "  settle:")
			plain := parseOne(t, without)
			if p.EarlyStop() != nil {
				t.Error("the rule is in force")
			}
			if p.Hash != plain.Hash || p.HashWithoutEarlyStop() != plain.Hash {
				t.Errorf("hashes %s and %s, want %s", p.Hash, p.HashWithoutEarlyStop(), plain.Hash)
			}
			checkSentences(t, p.Explain()[len(plain.Explain()):], [][]string{{"learned for another policy", "all passes decide"}})
			fragment := "settle.policy_hash: the policy was changed since its early-stopping rule was learned (its hash without it is now " + plain.Hash + ")"
			if got, rest := p.Warnings(), plain.Warnings(); len(got) != len(rest)+1 ||
				!slices.ContainsFunc(got, func(w string) bool { return strings.HasPrefix(w, fragment) }) {
				t.Errorf("warnings %q, want one more than %q, with %q", got, rest, fragment)
			}
			checkInvariants(t, p)
			checkMarshal(t, p)
		})
	}
}

// TestSettleStays checks that a new version or calibration leaves the rule in force.
func TestSettleStays(t *testing.T) {
	for _, more := range []string{"  version: another\n", "  calibration: {posterior: mc-dropout}\n", "  sum_tolerance: 0.001\n"} {
		t.Run(more, func(t *testing.T) {
			if p := parseOne(t, settledText(plainRule)+more); p.EarlyStop() == nil {
				t.Error("not in force")
			}
		})
	}
}

// TestSettleIsBounded checks that a small file leads to a small policy, whatever numbers of passes
// it names.
func TestSettleIsBounded(t *testing.T) {
	model := strings.Replace(saneText, "expected: 30", "expected: 1000000", 1)
	for name, text := range map[string]string{
		"a rule for it":      settledText(plainRule, model),
		"a rule for another": model + strings.Replace(strings.TrimPrefix(settledText(plainRule), saneText), "passes: 6", "passes: 2", 1),
		"steps far apart":    settledText(plainRule) + "    - {passes: 999999}\n",
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

func TestExplainSettle(t *testing.T) {
	for _, test := range []struct {
		name, block string
		want        [][]string
	}{
		{"plain", plainRule, [][]string{
			{"before its 30 passes, which come in any order", "after 6 passes or more."},
			{"With confidence 0.9, at most 1% of the inputs", "at most 5% of those that all passes defer"},
		}},
		{"full", fullRule, [][]string{
			{"in the order of the ensemble's members", "after 8.5 on average"},
			{"at most 1% of the inputs", "(6 of 1062 were)", "at most 5%", "(4 of 200 were)", "at most 8% of the critical ones", "(1 of 60 were)"},
			{"halves of the passes", "9% of the inputs"},
		}},
		{"nothing of the deferred", strings.NewReplacer("at_most: 0.05", "at_most: 1", "steps:", "halves_differ: 0\n      steps:").Replace(plainRule), [][]string{
			{"in any order"}, {"nothing is certified of how many of those that all passes defer"}, {"0% of the inputs"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := parseOne(t, settledText(test.block)).Explain()
			checkSentences(t, got[len(parseOne(t, saneText).Explain()):], test.want)
		})
	}
}

// TestWarningsOfSettle checks each warning about a rule in force, on a policy that causes it and on
// one that just does not. The bounds are scipy.stats.binom.cdf(k, n, p) against 1 - confidence =
// 0.1: 0.0991 for 0 of 230 and 0.1001 for 0 of 229 at 1%, 0.0940 for 6 of 1063 and 0.1010 for 6 of
// 1049.
func TestWarningsOfSettle(t *testing.T) {
	certificate := func(with string) string {
		return strings.Replace(plainRule, "confidence: 0.9, released: {at_most: 0.05}", "confidence: 0.9, "+with, 1)
	}
	for _, test := range []struct{ name, text, want string }{
		{"plain", settledText(plainRule), ""},
		{"as it was certified", settledText(certificate("inputs: 230, disagreements: 0, released: {at_most: 0.49}")), ""},
		{"too few inputs", settledText(certificate("inputs: 229, disagreements: 0, released: {at_most: 0.05}")),
			"settle.certificate.disagreements: 0 of 229 do not bear out a share of at most 0.01 with confidence 0.9"},
		{"six of enough", settledText(certificate("inputs: 1063, disagreements: 6, released: {at_most: 0.05}")), ""},
		{"six of too few", settledText(certificate("inputs: 1049, disagreements: 6, released: {at_most: 0.05}")),
			"settle.certificate.disagreements: 6 of 1049"},
		{"many", settledText(certificate("inputs: 2147483647, disagreements: 2147483647, released: {at_most: 0.05}")),
			"settle.certificate.disagreements: 2147483647 of 2147483647"},
		{"released", settledText(certificate("released: {at_most: 0.05, deferred: 44, released: 0}")),
			"settle.certificate.released.released: 0 of 44 do not bear out a share of at most 0.05"}, // 0.95^44 = 0.1047
		{"one more deferred", settledText(certificate("released: {at_most: 0.05, deferred: 45, released: 0}")), ""},
		{"critical ones released", settledText(certificate("released: {at_most: 0.05}, critical_released: {at_most: 0.05, deferred: 44, released: 0}")),
			"settle.certificate.critical_released.released: 0 of 44"},
		{"half released", settledText(certificate("released: {at_most: 0.5, deferred: 5, released: 0}")),
			"settle.certificate.released.at_most: up to 0.5 of the inputs that all passes defer may be retained instead"},
		{"nothing certified of those released", settledText(certificate("released: {at_most: 1, deferred: 3, released: 3}")),
			"settle.certificate.released.at_most: up to 1 of"},
		{"an ensemble in any order", settledText(plainRule) + "  calibration: {posterior: ensemble, recording: {passes: 30}}\n",
			"settle.order: any, but the passes are of an ensemble"},
		{"an ensemble in its order", settledText(strings.Replace(plainRule, "steps:", "order: recorded\n      steps:", 1)) +
			"  calibration: {posterior: ensemble, recording: {passes: 30}}\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkWarnings(t, parseOne(t, test.text), test.want)
		})
	}
}

func drawSettle(t *rapid.T, p *Policy) *EarlyStopping {
	given := func(what string) bool { return rapid.Bool().Draw(t, what) }
	count := func(most int, what string) int { return rapid.IntRange(0, most).Draw(t, what) }
	share := rapid.Float64Range(1e-9, 1-1e-9)
	released := func() ReleasedShare {
		r := ReleasedShare{AtMost: rapid.OneOf(share, rapid.Just(1.0)).Draw(t, "at most")}
		if given("counts of the released") {
			r.Deferred = count(maxCount, "deferred")
			r.Released = count(r.Deferred, "released")
		}
		return r
	}
	s := &EarlyStopping{
		Order:       rapid.SampledFrom([]PassOrder{AnyOrder, MembersOrder}).Draw(t, "order"),
		Certificate: EarlyStopCertificate{Disagreement: share.Draw(t, "share"), Confidence: share.Draw(t, "confidence"), Released: released()},
	}
	if given("provenance") {
		s.Software, s.PassesFile, s.PassesSHA256 = drawText(t, "software"), drawText(t, "passes file"), strings.Repeat("1e", 32)
		s.Inputs, s.Seed = count(maxCount, "inputs"), rapid.Uint64Max(math.MaxInt).Draw(t, "seed")
		halves := rapid.Float64Range(0, 1).Draw(t, "halves")
		s.HalvesDiffer = &halves
	}
	if given("counts") {
		s.Certificate.Inputs = count(maxCount, "certified on")
		s.Certificate.Disagreements = count(s.Certificate.Inputs, "disagreements")
	}
	if given("critical") {
		critical := released()
		s.Certificate.CriticalReleased = &critical
	}

	var first, passes int
	if p.WhyNoEarlyStop() == "" && given("in force") {
		s.PolicyHash = p.HashWithoutEarlyStop()
		first, passes = rapid.IntRange(p.FewestPasses, p.ExpectedPasses-1).Draw(t, "first"), p.ExpectedPasses
		s.MeanPasses = rapid.Float64Range(0, float64(passes)).Draw(t, "mean passes")
	} else {
		s.PolicyHash = strings.Repeat("5", 64)
		first = rapid.IntRange(2, MaxEarlyStopPasses-1).Draw(t, "first")
		passes = rapid.IntRange(first+1, min(first+9, MaxEarlyStopPasses)).Draw(t, "passes")
	}
	s.Rule = earlystop.Rule{Passes: passes, Fewest: first, Steps: drawSteps(t, passes-first)}
	if given("patience") {
		s.Rule.Patience = rapid.Float64Range(0, earlystop.Never).Draw(t, "patience")
	}
	for i := range s.Rule.Steps {
		s.Rule.Steps[i] = meant(s.Rule.Steps[i])
	}
	return s
}

// drawSteps draws steps of which some ask nothing, and some of these have coefficients.
func drawSteps(t *rapid.T, n int) []earlystop.Step {
	steps := make([]earlystop.Step, n)
	boundary := rapid.Float64Range(-earlystop.Never, earlystop.Never)
	for i := range steps {
		steps[i] = earlystop.NoStep()
		for at, side := range []*earlystop.Side{&steps[i].Retain, &steps[i].Defer} {
			name := []string{"retain", "defer"}[at]
			draws := func(what string) bool { return rapid.Bool().Draw(t, fmt.Sprintf("%s of %s after %d", what, name, i)) }
			if draws("boundary") {
				side.AtMost = boundary.Draw(t, "at most")
			}
			if draws("coefficients") {
				for j := range side.Coefficients {
					side.Coefficients[j] = boundary.Draw(t, "coefficient")
				}
			}
		}
	}
	return steps
}
