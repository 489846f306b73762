package policy

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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

// TestMarshalLongList checks that a long list is wrapped, and read back unchanged.
func TestMarshalLongList(t *testing.T) {
	p := parseOne(t, manyClasses(1000, 12))
	for line := range strings.Lines(string(p.Marshal())) {
		if len(line) > 112 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	checkMarshal(t, p)
}

// TestMarshalIsRead checks that Parse reads back what Marshal writes, for any policy.
func TestMarshalIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkMarshal(t, drawWholePolicy(t)) })
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
	for _, text := range texts {
		var back any
		if err := yaml.Unmarshal([]byte("["+quoted(text)+"]"), &back); err != nil || !cmp.Equal(back, any([]any{text})) {
			t.Errorf("%q is written %s, which is read as %#v (%v)", text, quoted(text), back, err)
		}
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

// drawName draws a name that YAML may take for something else.
var drawName = rapid.OneOf(
	rapid.SampledFrom([]string{"no", "yes", "1", "~", "1e3", "a: b", "it's", `"`, `\`, "[", "# x"}),
	rapid.StringN(1, 20, 80).Filter(func(s string) bool { return isPrintable(s, maxText) }),
)

// drawWholePolicy draws a policy that Parse could return.
func drawWholePolicy(t *rapid.T) *Policy {
	p := &Policy{
		Name:                 rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,9}`).Draw(t, "name"),
		Version:              drawText(t, "version"),
		Kind:                 rapid.SampledFrom([]Kind{Probabilities, Logits, Dirichlet}).Draw(t, "kind"),
		SumTolerance:         rapid.OneOf(rapid.Just(1e-3), rapid.Float64Range(1e-7, 0.1)).Draw(t, "sum tolerance"),
		Tensor:               rapid.OneOf(rapid.Just(DefaultTensor), drawName).Draw(t, "tensor"),
		Variance:             rapid.SampledFrom([]Variance{Sample, Population}).Draw(t, "variance"),
		ReliabilityThreshold: rapid.Float64Range(1e-9, 5).Draw(t, "reliability threshold"),
		Gate:                 rapid.SampledFrom([]Gate{AnyCritical, Always, Never}).Draw(t, "gate"),
		Scope:                rapid.SampledFrom([]Scope{AllInputs, PredictedSafe}).Draw(t, "scope"),
		Pairs:                rapid.SampledFrom([]Pairs{SafeCriticalPairs, AllPairs}).Draw(t, "pairs"),
		Degenerate:           rapid.SampledFrom(handlings).Draw(t, "degenerate"),
		Saturated:            rapid.SampledFrom(handlings).Draw(t, "saturated"),
	}
	p.Classes = rapid.SliceOfNDistinct(drawName, 2, 12, func(s string) string { return s }).Draw(t, "classes")
	p.TopClasses = rapid.IntRange(1, len(p.Classes)).Draw(t, "top classes")
	for k := range p.Classes {
		switch set := rapid.IntRange(0, 4).Draw(t, "set"); {
		case k == 0 || k > 1 && set < 2:
			p.Critical = append(p.Critical, k)
		case k == 1 || set < 4:
			p.Safe = append(p.Safe, k)
		}
	}
	p.FewestPasses, p.ExpectedPasses = 1, 1
	if p.Kind != Dirichlet {
		p.FewestPasses = p.leastPasses(p.ReliabilityThreshold) + rapid.IntRange(0, 20).Draw(t, "fewest passes")
		p.ExpectedPasses = rapid.SampledFrom([]int{0, p.FewestPasses, p.FewestPasses + 7}).Draw(t, "expected passes")
	}
	thresholds := rapid.Bool().Draw(t, "thresholds")
	scores := Scores()
	if rapid.Bool().Draw(t, "has risk") {
		p.Risk, scores = drawRisk(t), RuleScores()
	}
	for _, r := range []*Rule{&p.Primary, &p.Fallback} {
		*r = Rule{Score: rapid.SampledFrom(scores).Draw(t, "score")}
		if thresholds {
			r.HasThreshold, r.Threshold = true, rapid.Float64Range(0, 1e9).Draw(t, "threshold")
			if r.Score == RiskScore {
				r.Threshold /= 1e9
			}
		}
	}
	if rapid.Bool().Draw(t, "guarded") {
		p.Guard = &Guard{rapid.SampledFrom(GuardScores()).Draw(t, "guard"), rapid.Float64Range(0, 1e9).Draw(t, "guard threshold")}
	}
	for _, s := range p.Safe {
		for _, c := range p.Critical {
			if weight := rapid.SampledFrom([]float64{0, 1, 1, 2, 1e-9, 1e300}).Draw(t, "weight"); weight != 1 {
				p.PairWeights = append(p.PairWeights, PairWeight{s, c, weight})
			}
		}
	}
	if rapid.Bool().Draw(t, "calibrated") {
		p.Calibration = drawCalibration(t, p)
	}
	if rapid.Bool().Draw(t, "audited") {
		p.Audit = drawAudit(t)
	}
	if rapid.Bool().Draw(t, "settled") {
		p.EarlyStopping = drawEarlyStopping(t, p)
	}
	p.Hash = p.hash()
	return p
}

// drawAudit draws any block audit.
func drawAudit(t *rapid.T) *Audit {
	a := &Audit{
		Rate: rapid.Float64Range(1e-5, 1).Draw(t, "rate"), M: rapid.Float64Range(0.01, 1).Draw(t, "m"),
		PredictedCritical: rapid.SampledFrom([]AuditedCritical{CriticalAudited, CriticalFree}).Draw(t, "predicted critical"),
		Cap:               rapid.SampledFrom([]float64{0, 0.5, 100}).Draw(t, "cap"),
		Due:               Period(rapid.IntRange(1, int(maxPeriod)).Draw(t, "due")),
		OnBreach:          AlarmOnBreach,
		RunLength:         rapid.Float64Range(1000, 1e15).Draw(t, "run length"),
		ReaderSensitivity: rapid.Float64Range(0.01, 1).Draw(t, "reader sensitivity"),
		Surge:             rapid.SampledFrom([]float64{0, 0.5, 1000}).Draw(t, "surge"),
	}
	values := rapid.SliceOfNDistinct(drawName, 1, 3, func(s string) uint16 { return SliceHash("", s) })
	for i := range rapid.IntRange(0, MaxSlices).Draw(t, "slices") {
		s := Slice{fmt.Sprintf("slice%d", i), values.Draw(t, "values")}
		a.Slices = append(a.Slices, s)
	}
	return a
}

func drawCalibration(t *rapid.T, p *Policy) *Calibration {
	given := func(what string) bool { return rapid.Bool().Draw(t, what) }
	count := func(least int, what string) int { return rapid.IntRange(least, math.MaxInt32).Draw(t, what) }
	interval := func(what string) *Interval {
		if !given(what) {
			return nil
		}
		low := rapid.Float64Range(0, 1).Draw(t, "low")
		value := rapid.Float64Range(low, 1).Draw(t, "value")
		return &Interval{Value: value, Low: low, High: rapid.Float64Range(value, 1).Draw(t, "high")}
	}
	c := &Calibration{Objective: "coverage 0.8", ExpectedCoverage: interval("coverage"), ExpectedCriticalFNR: interval("critical FNR"),
		ExpectedCriticalMissRate: interval("critical miss rate")}
	if given("texts") {
		c.Software, c.Objective, c.Scope = drawText(t, "software"), drawText(t, "objective"), p.Scope
		c.PolicyHash = rapid.SampledFrom([]string{p.hash(), strings.Repeat("1", 64), "0e" + strings.Repeat("1", 62)}).Draw(t, "policy hash")
		c.EarlierAttempt = drawText(t, "earlier attempt")
		c.Posterior, c.Seed = rapid.StringMatching(`[0-9][a-z.-]{0,9}`).Draw(t, "posterior"), rapid.Uint64Max(math.MaxInt).Draw(t, "seed")
	}
	r := &c.Recording
	if given("files") {
		r.PassesFile, r.LabelsFile = drawText(t, "passes file"), drawText(t, "labels file")
		r.PassesSHA256, r.LabelsSHA256 = strings.Repeat("1", 64), fmt.Sprintf("1e%062x", count(0, "hash"))
	}
	if given("counts") {
		r.Inputs = count(1, "inputs")
		r.CriticalInputs, r.Passes = rapid.IntRange(0, r.Inputs).Draw(t, "critical inputs"), p.FewestPasses
	}
	if given("reference") {
		c.Reference = drawReference(t, p)
	}
	if !given("certificate") {
		return c
	}
	share := rapid.Float64Range(1e-6, 1-1e-6)
	c.Certificate = &Certificate{
		Kind:      LearnThenTest,
		Bounds:    CriticalMissRate,
		Target:    share.Draw(t, "target"),
		Statement: drawText(t, "statement"),
	}
	if given("cases") {
		c.Certificate.Cases = count(1, "cases")
		c.Certificate.Misses = rapid.IntRange(0, c.Certificate.Cases).Draw(t, "misses")
	}
	c.Certificate.Confidence = share.Draw(t, "confidence")
	c.Certificate.PValue = rapid.Float64Range(0, 1).Draw(t, "p-value")
	c.Certificate.Groups = count(0, "groups")
	figures := []Figure{CriticalMissRate, CriticalFNR}
	c.Certificate.Bounds = rapid.SampledFrom(figures).Draw(t, "bounds")
	for range rapid.IntRange(0, 2).Draw(t, "further") {
		c.Certificate.Further = append(c.Certificate.Further, CertifiedLimit{
			Bounds: rapid.SampledFrom(figures).Draw(t, "bounds"), Target: share.Draw(t, "target"),
			Cases: 9, Misses: rapid.IntRange(0, 9).Draw(t, "misses"), PValue: rapid.Float64Range(0, 1).Draw(t, "p-value"),
		})
	}
	return c
}

func drawReference(t *rapid.T, p *Policy) *Reference {
	ref := &Reference{Inputs: rapid.IntRange(1, math.MaxInt32).Draw(t, "inputs of the reference")}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "values"), 0))
	quantiles := func() []float64 {
		list := make([]float64, Levels)
		for i := range list {
			list[i] = math.Exp(20*rng.NormFloat64()) * float64(rng.IntN(3))
		}
		slices.Sort(list)
		return list
	}
	for _, k := range rng.Perm(len(p.Classes))[rng.IntN(len(p.Classes)):] {
		ref.Classes = append(ref.Classes, ClassReference{
			Class: k, Predicted: rng.Float64() / float64(len(p.Classes)), Epistemic: quantiles(), Skewness: quantiles(),
		})
	}
	return ref
}

func drawText(t *rapid.T, what string) string {
	return rapid.StringN(0, 20, 80).Filter(func(s string) bool { return isPrintable(s, maxText) }).Draw(t, what)
}
