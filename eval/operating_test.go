package eval_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// tinyPolicy returns a policy that retains inputs 0, 1 and 2 of tiny, with its decisions. The
// fallback score decided input 1.
func tinyPolicy() (*policy.Policy, []policy.Decision) {
	p := &policy.Policy{
		Name: "m", Hash: "h", Classes: abc, Critical: []int{1, 2}, Safe: []int{0}, Kind: policy.Probabilities,
		Scope:   policy.AllInputs,
		Primary: policy.Rule{Score: policy.Entropy, Threshold: 0.35, HasThreshold: true},
		// The last input is degenerate; by these settings its score decides it, as the decisions
		// below say.
		Degenerate: policy.HandleByScore, Saturated: policy.HandleByScore,
	}
	decisions := make([]policy.Decision, 5)
	for i := range decisions {
		value := float64(i+1) / 10
		d := policy.Decision{Action: policy.Retain, Value: value, Threshold: 0.35, HasThreshold: true, Gate: policy.ByPrimary}
		if value > 0.35 {
			d.Action = policy.Defer
		}
		decisions[i] = d
	}
	decisions[1].Gate = policy.ByFallback
	return p, decisions
}

func TestOperatingPointByHand(t *testing.T) {
	table, labels := tiny()
	p, decisions := tinyPolicy()
	r := evaluate(t, table, labels, eval.Options{Classes: abc, Coverage: 0.6, Policy: p, Decisions: decisions})
	want := eval.OperatingPoint{
		Model: "m", Hash: "h", Scope: policy.AllInputs,
		At:                  row(t, r, "entropy", policy.AllInputs).At,            // the same three inputs
		CriticalFNRInterval: &[2]float64{0.01257911709342505, 0.9874208829065749}, // SciPy: beta.ppf, 1 of 2
		ByFallback:          0.2,
	}
	same(t, "operating point", *r.Policy, want)
	same(t, "path", row(t, r, "policy", policy.AllInputs).At, want.At)
	row(t, r, "policy", policy.PredictedSafe)
}

// TestPolicyThatObserves expects everything to be retained.
func TestPolicyThatObserves(t *testing.T) {
	table, labels := tiny()
	p, decisions := tinyPolicy()
	p.Primary.HasThreshold = false
	for i := range decisions {
		decisions[i].Action, decisions[i].HasThreshold, decisions[i].Threshold = policy.Observe, false, 0
	}
	r := evaluate(t, table, labels, eval.Options{Policy: p, Decisions: decisions})
	if got := r.Policy; !got.Observes || got.Retained != 5 || got.CriticalFNR != 1./3 || got.Certificate != nil {
		t.Errorf("%+v", got)
	}
}

func TestCertificateByHand(t *testing.T) {
	const sha, fnr, miss = "0123456789abcdef", policy.CriticalFNR, policy.CriticalMissRate
	const shown, open, contradicted = eval.Shown, eval.NotContradicted, eval.Contradicted
	deferAll := func(_ *policy.Policy, o *eval.Options) {
		for i := range o.Decisions {
			o.Decisions[i].Action = policy.Defer
		}
	}
	for _, c := range []struct {
		name    string
		bounds  policy.Figure
		target  float64
		cases   int
		misses  int
		verdict eval.Verdict
		pValue  float64
		pShown  float64
		power   eval.Figure
		change  func(*policy.Policy, *eval.Options)
		differs []string // fragments
	}{
		// 1 of 2 retained critical inputs is missed: the p-value is 1 - (1-target)^2, and p_shown is
		// 1 - target^2. Where even 2 of 2 have a chance of 0.05 or more, nothing could be seen.
		{"of the retained", fnr, 0.3, 2, 1, open, 0.51, 0.91, 0, nil, nil},
		{"at the target", fnr, 0.5, 2, 1, open, 0.75, 0.75, na, nil, nil},
		// 1 of 2 contradicts; at 0.05 that has the chance 1 - 0.95^2.
		{"not by chance", fnr, 0.025, 2, 1, contradicted, 0.049375, 0.999375, 0.0975, nil, nil},
		// Only 2 of 2 would contradict; at 0.052 that has the chance 0.052^2.
		{"barely by chance", fnr, 0.026, 2, 1, open, 0.051324, 0.999324, 0.002704, nil, nil},
		{"nothing retained", fnr, 0.3, 0, 0, "", 1, 1, na, deferAll, nil},
		// 1 of all 3 critical inputs is missed: the p-value is 1 - (1-target)^3.
		{"of all", miss, 0.4, 3, 1, open, 0.784, 0.648, 0, nil, nil},
		{"exceeded by chance", miss, 0.2, 3, 1, open, 0.488, 0.896, 0.064, nil, nil}, // 3 of 3: 0.4^3
		{"exceeded clearly", miss, 0.01, 3, 1, contradicted, 0.029701, 0.999702, 0.058808, nil, nil},
		{"nothing retained, of all", miss, 0.3, 3, 0, open, 1, 0.343, 0.216, deferAll, nil},
		{"few enough", miss, 0.7, 3, 0, shown, 1, 0.027, na, deferAll, nil},
		{
			"other data", fnr, 0.5, 2, 1, open, 0.75, 0.75, na, func(p *policy.Policy, o *eval.Options) {
				p.Kind, p.Critical = policy.Logits, []int{2}
				p.Calibration.Recording.Passes = 30
				o.PassesSHA256 = "fedcba9876543210"
			},
			[]string{"read as probabilities, those of the policy are logits",
				"have 2 passes, those that the policy was calibrated on had 30",
				"critical classes are b, c, those of the policy c"},
		},
		{
			"the same data", fnr, 0.5, 2, 1, open, 0.75, 0.75, na,
			func(_ *policy.Policy, o *eval.Options) { o.PassesSHA256 = strings.ToUpper(sha) },
			[]string{"this is the recording that the policy was calibrated on"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, labels := tiny()
			p, decisions := tinyPolicy()
			p.Calibration = &policy.Calibration{
				Certificate: &policy.Certificate{Kind: policy.LearnThenTest, Bounds: c.bounds, Target: c.target, Confidence: 0.95, Groups: 7},
				Recording:   policy.Recording{PassesSHA256: sha, Passes: 2},
			}
			o := eval.Options{Classes: abc, Policy: p, Decisions: decisions}
			if c.change != nil {
				c.change(p, &o)
			}
			got := *evaluate(t, table, labels, o).Policy.Certificate
			if got.Differs == nil || len(got.Differs) != len(c.differs) {
				t.Fatalf("differs %q, want %q", got.Differs, c.differs)
			}
			for i, fragment := range c.differs {
				if !strings.Contains(got.Differs[i], fragment) {
					t.Errorf("differs %q, want %q", got.Differs[i], fragment)
				}
			}
			got.Differs = nil
			want := eval.CertificateCheck{Kind: string(policy.LearnThenTest), Confidence: 0.95, Groups: 7, BoundCheck: eval.BoundCheck{
				Bounds: c.bounds, Target: c.target, Cases: c.cases, Misses: c.misses,
				Observed: eval.Figure(float64(c.misses) / float64(c.cases)), Verdict: c.verdict,
				PValue: c.pValue, PShown: c.pShown, PowerAtDouble: c.power,
			}}
			same(t, "certificate", got, want)
		})
	}
}

// TestCertificateOfClasses expects a verdict on each bound, on the inputs of its class alone.
func TestCertificateOfClasses(t *testing.T) {
	table, labels := tiny()
	p, decisions := tinyPolicy()
	const fnr, rate = policy.CriticalFNR, policy.CriticalMissRate
	p.Calibration = &policy.Calibration{Certificate: &policy.Certificate{
		Kind: policy.LearnThenTest, Bounds: rate, Target: 0.2, Confidence: 0.9,
		Further: []policy.CertifiedLimit{
			{Bounds: rate, Class: "b", Target: 0.02}, {Bounds: fnr, Class: "b", Target: 0.2},
			{Bounds: rate, Class: "c", Target: 0.9}, {Bounds: fnr, Class: "c", Target: 0.1},
		},
	}}
	got := evaluate(t, table, labels, eval.Options{Classes: abc, Policy: p, Decisions: decisions}).Policy.Certificate
	// The only missed input is of class b, whose other input is deferred. The one input of class c is
	// retained and called critical.
	same(t, "first", got.BoundCheck, eval.BoundCheck{Bounds: rate, Target: 0.2, Cases: 3, Misses: 1, Observed: 1. / 3,
		Verdict: eval.NotContradicted, PValue: 0.488, PShown: 0.896, PowerAtDouble: 0.064})
	same(t, "further", got.Further, []eval.BoundCheck{
		{Bounds: rate, Class: "b", Target: 0.02, Cases: 2, Misses: 1, Observed: 0.5,
			Verdict: eval.Contradicted, PValue: 0.0396, PShown: 0.9996, PowerAtDouble: 0.0784},
		{Bounds: fnr, Class: "b", Target: 0.2, Cases: 1, Misses: 1, Observed: 1,
			Verdict: eval.NotContradicted, PValue: 0.2, PShown: 1, PowerAtDouble: 0},
		// 1-0.9 is a hair above 0.1 here, and below it there.
		{Bounds: rate, Class: "c", Target: 0.9, Cases: 1, Observed: 0, Verdict: eval.Shown, PValue: 1, PShown: 0.1, PowerAtDouble: na},
		{Bounds: fnr, Class: "c", Target: 0.1, Cases: 1, Observed: 0, Verdict: eval.NotContradicted, PValue: 1, PShown: 0.9, PowerAtDouble: 0},
	})
}

func TestNotes(t *testing.T) {
	all := func(n int, v float64) []float64 { return slices.Repeat([]float64{v}, n) }
	for _, c := range []struct {
		name     string
		change   func(t *eval.Table, labels []int, o *eval.Options)
		fragment string
	}{
		{"class without inputs", func(_ *eval.Table, labels []int, _ *eval.Options) { labels[2] = 0 }, "No input is of c:"},
		{"class never predicted", func(t *eval.Table, _ []int, _ *eval.Options) { t.Predicted[2], t.Predicted[3] = 0, 0 },
			"No input is predicted as b,"},
		{"no critical set", func(t *eval.Table, _ []int, _ *eval.Options) { t.Spec.Critical, t.CriticalSkewness = nil, nil },
			"No critical classes were given"},
		{"no critical input", func(_ *eval.Table, labels []int, _ *eval.Options) { clear(labels) },
			"No input is of a critical class"},
		{"few critical inputs", nil, "Only 3 inputs are of a critical class"},
		{"few retained", nil, "Below 100% coverage too few critical inputs"},
		{"no safe set", func(t *eval.Table, _ []int, _ *eval.Options) { t.Spec.Safe = nil }, "No safe classes were given"},
		{"constant", func(t *eval.Table, _ []int, _ *eval.Options) { t.Scores[decomp.MI] = all(5, 0.1) },
			"The same value for every input: mi."},
		{"factor", nil, "carries a factor 2/1 = 2"},
		{"cap", nil, "2 passes cannot show a skewness above 0, and the reliability threshold is 0.3"},
		{"cap at the threshold", func(t *eval.Table, _ []int, o *eval.Options) { t.Passes, o.Reliability = 5, 0.8 },
			"5 passes cannot show a skewness above 0.8"},
		{"degenerate", nil, "The passes hardly differ in 1 of 5 inputs"},
		{"no resamples", nil, "No resamples were drawn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, labels := tiny()
			o := eval.Options{Classes: abc}
			if c.change != nil {
				c.change(table, labels, &o)
			}
			if notes := evaluate(t, table, labels, o).Notes; !slices.ContainsFunc(notes, containing(c.fragment)) {
				t.Errorf("no note %q in %q", c.fragment, notes)
			}
		})
	}
}

func containing(fragment string) func(string) bool {
	return func(s string) bool { return strings.Contains(s, fragment) }
}

// TestNotesOnRecordings has recordings that each lack one thing.
func TestNotesOnRecordings(t *testing.T) {
	few, fewLabels := gradedRecording(20, 5, 4) // 20 critical inputs, of which a coverage of 0.45 retains 9
	two, twoLabels := gradedRecording(100, 5, 2)
	ties, tiesLabels := recording(t, "ctg-lowrank") // cbec is 0 for a quarter of the inputs
	for _, c := range []struct {
		name   string
		passes eval.Recording
		labels []int
		spec   decomp.Spec
		note   string
	}{
		{"few retained", few, fewLabels, decomp.Spec{Critical: numbers(4)}, "Below 45% coverage"},
		{"two classes", two, twoLabels, decomp.Spec{Critical: []int{1}, Safe: []int{0}}, "With two classes the confusion"},
		{"ties", ties, tiesLabels, ctg, "Many inputs share one value of maxprob (527 inputs), cbec (528 inputs)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := evaluate(t, table(t, c.passes, c.spec), c.labels, eval.Options{})
			if !slices.ContainsFunc(r.Notes, containing(c.note)) {
				t.Errorf("no note %q in %q", c.note, r.Notes)
			}
		})
	}
}

func TestEvaluateRefuses(t *testing.T) {
	for _, c := range []struct {
		change   func(labels *[]int, o *eval.Options)
		fragment string
	}{
		{func(labels *[]int, _ *eval.Options) { *labels = (*labels)[:4] }, "4 labels, expected 5"},
		{func(labels *[]int, _ *eval.Options) { (*labels)[3] = 3 }, "label 3 is 3, expected 0 to 2"},
		{func(labels *[]int, _ *eval.Options) { (*labels)[0] = -1 }, "label 0 is -1, expected 0 to 2"},
		{func(_ *[]int, o *eval.Options) { o.Classes = abc[:2] }, "2 class names, expected 3"},
		{func(_ *[]int, o *eval.Options) { o.Coverage = 0 }, "coverage 0: expected above 0 and at most 1"},
		{func(_ *[]int, o *eval.Options) { o.Coverage = 1.01 }, "coverage 1.01"},
		{func(_ *[]int, o *eval.Options) { o.Reliability = -1 }, "reliability threshold -1"},
		{func(_ *[]int, o *eval.Options) { o.Bootstrap = -1 }, "-1 resamples"},
		{func(_ *[]int, o *eval.Options) { o.Decisions = o.Decisions[:1] }, `1 decisions of policy "m", expected 5`},
		{func(_ *[]int, o *eval.Options) { o.Policy.Classes = abc[:2] }, `policy "m" is for 2 classes, expected 3`},
	} {
		table, labels := tiny()
		p, decisions := tinyPolicy()
		o := eval.Options{Coverage: 0.8, Policy: p, Decisions: decisions}
		c.change(&labels, &o)
		if _, err := eval.Evaluate(t.Context(), table, labels, o); err == nil || !strings.Contains(err.Error(), c.fragment) {
			t.Errorf("error %v, want %q", err, c.fragment)
		}
	}
}
