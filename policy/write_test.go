package policy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// TestMarshal checks how a policy is written: what thresholds depend on is spelled out, defaults of
// other fields are left out, and texts that a YAML reader could take for another type have quotes.
func TestMarshal(t *testing.T) {
	const defaults = `models:
  - name: m
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    kind: probabilities
    passes: {fewest: 4}
    variance: sample
    reliability_threshold: 0.3
    gate: any-critical
    scope: all
    primary: {score: c_crit_max}
    fallback: {score: cbec}
    degenerate: defer
    saturated: defer
`
	tests := []struct{ name, text, want string }{
		{"defaults", threeClassesText, defaults},
		{"everything else", everyField, everyField},
		{"risk and guard", riskText, riskText},
		{"an empty block", threeClassesText + "  calibrated: {}\n", defaults},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := parseOne(t, test.text)
			if diff := cmp.Diff(test.want, string(p.Marshal())); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
			checkMarshal(t, p)
		})
	}
}

// TestMarshalIsRead checks that Parse reads back what Marshal writes, for any texts and numbers.
func TestMarshalIsRead(t *testing.T) {
	name := rapid.OneOf(
		rapid.SampledFrom([]string{"no", "yes", "1", "~", "1e3", "a: b", "it's", `"`, `\`, "[", "# x"}),
		rapid.StringN(1, 20, 80).Filter(func(s string) bool { return isPrintable(s, maxText) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		set, err := Parse(File{"every.yaml", []byte(everyField)})
		if err != nil {
			t.Fatal(err)
		}
		d := set.All()[0].Draft()
		number := func(least, most float64) float64 { return rapid.Float64Range(least, most).Draw(t, "number") }
		d.Version, d.Tensor, d.Calibration.Objective = name.Draw(t, "version"), name.Draw(t, "tensor"), name.Draw(t, "objective")
		d.Classes = rapid.SliceOfNDistinct(name, 4, 4, func(s string) string { return s }).Draw(t, "classes")
		d.Critical, d.Safe, d.Calibration.Lines.Classes[0].Class = []int{3}, []int{0, 1}, d.Classes[3]
		d.Calibration.ExpectedClassMissRate[0].Class, d.Answers.Alarm.Class, d.Calibration.Lines.By = d.Classes[3], d.Classes[3], "x"+d.Classes[3]
		d.PairWeights = []PairWeight{{0, 3, number(1.5, 1e300)}}
		d.SumTolerance, d.ReliabilityThreshold, d.Audit.RunLength = number(1e-7, 0.1), number(1e-9, 2), number(1000, 1e15)
		d.Primary.Threshold, d.Fallback.Threshold = number(0, 1e9), number(0, 1)
		p, err := Build(d)
		if err != nil {
			t.Fatal(err)
		}
		checkMarshal(t, p)
	})
}

// TestMarshalTexts checks that texts with characters or words that mean something in YAML are read
// back as texts, also by a reader that is not strict.
func TestMarshalTexts(t *testing.T) {
	texts := []string{
		"y", "n", "yes", "no", "on", "off", "~", "1", "1.5", "null", "1:30", // see below
		"N", "No", "OFF", "true", "False", "-1", "1e3", "1_000", "0x10", "010",
		".inf", ".nan", "2026-11-21", "<<", "=", "-", "- a", "a: b", "a:", "a #b", "#a", "[a]", "{a}", "a, b", "&a", "*a", "!a",
		"|", ">", "%", "@", "`", "'", "\"", "\\", " a", "a ", "a  b", "é", "\u00a0", "\ufeff", "\ufffe", "\U0001F600", "\U000E0001",
		"---", "...", "?", "? a",
	}
	p := parseOne(t, "models: [{name: m, gate: never, primary: {score: mi}, classes: "+literalList(texts)+"}]")
	checkMarshal(t, p)
	written := p.Marshal()
	var file any
	if err := yaml.Unmarshal(written, &file); err != nil {
		t.Fatalf("%v in\n%s", err, written)
	}
	classes := file.(map[string]any)["models"].([]any)[0].(map[string]any)["classes"].([]any)
	if len(classes) != len(texts) {
		t.Fatalf("%d classes, want %d, in\n%s", len(classes), len(texts), written)
	}
	for i, text := range texts {
		if classes[i] != text {
			t.Errorf("class %q is read as %#v", text, classes[i])
		}
	}
	// Readers of YAML 1.1 take these for booleans, null and numbers: quotes alone
	// keep them texts.
	for _, text := range texts[:11] {
		if !strings.Contains(string(written), `"`+text+`"`) {
			t.Errorf("class %s has no quotes in\n%s", text, written)
		}
	}
}

// literalList returns texts in single quotes, by other means than those under test.
func literalList(texts []string) string {
	var list []string
	for _, text := range texts {
		list = append(list, "'"+strings.ReplaceAll(text, "'", "''")+"'")
	}
	return strings.ReplaceAll("["+strings.Join(list, ", ")+"]", "'\ufffe'", `"\ufffe"`)
}

// checkMarshal writes a policy that Parse returned and reads it again.
func checkMarshal(t rapid.TB, p *Policy) {
	t.Helper()
	text := p.Marshal()
	set, err := Parse(File{"written.yaml", text})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if diff := cmp.Diff(p, set.All()[0]); diff != "" {
		t.Fatalf("read again (-want +got):\n%s\nfrom\n%s", diff, text)
	}
	built, err := Build(p.Draft())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, built); diff != "" || !bytes.Equal(built.Marshal(), text) {
		t.Fatalf("built of its draft (-want +got):\n%s", diff)
	}
}
