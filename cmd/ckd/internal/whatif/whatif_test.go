package whatif

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/policy"
)

// drawPolicy draws a policy of one model. top makes its hash differ from that of one that decides alike.
func drawPolicy(t *rapid.T, label string, top int) string {
	choose := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label+name) }
	threshold := func(name string) string { return choose(name, "0.001", "0.02", "0.1", "0.4") }
	scores := []string{"entropy", "mi", "maxprob", "c_crit_max", "cbec", "p_critical", "ova_mi", "risk"}
	text := fmt.Sprintf(`
models:
  - name: m
    classes: [a, b, c]
    critical: [b, c]
    passes: {fewest: 3}
    top_classes: %d
    reliability_threshold: %s
    gate: %s
    scope: %s
    primary: {score: %s, threshold: %s}
    fallback: {score: %s, threshold: %s}
    degenerate: %s
    saturated: %s
`, top, choose("reliability", "0.05", "0.2", "0.3"), choose("gate", "any-critical", "always", "never"), choose("scope", "all", "predicted-safe"),
		choose("primary", scores...), threshold("p"), choose("fallback", scores...), threshold("f"),
		choose("degenerate", "defer", "retain", "score"), choose("saturated", "defer", "retain", "score"))
	if rapid.Bool().Draw(t, label+"guard") {
		text += "    guard: {score: entropy, threshold: " + threshold("g") + "}\n"
	}
	quantiles := ""
	for i := range policy.Levels {
		quantiles += fmt.Sprintf("%v, ", float64(i)/policy.Levels)
	}
	return text + `    calibrated:
      risk: {called_safe: {intercept: -1, slope: 0.7}, called_critical: {intercept: 0.1, slope: 0.9}, prevalence: 0.2, quantiles: [` + quantiles + `]}
`
}

// drawPasses draws 8 passes of inputs of 3 classes: some passes hardly differ, some are one-hot.
func drawPasses(t *rapid.T, inputs int) decomp.Tensor {
	const passes, classes = 8, 3
	values := make([]float64, passes*inputs*classes)
	for i := range inputs {
		kind := rapid.SampledFrom([]string{"usual", "confident", "identical", "one-hot"}).Draw(t, "kind")
		base := rapid.SliceOfN(rapid.Float64Range(-2, 2), classes, classes).Draw(t, "base")
		for s := range passes {
			row := values[(s*inputs+i)*classes:][:classes]
			sum := 0.0
			for k := range row {
				x := base[k]
				switch kind {
				case "usual":
					x += rapid.Float64Range(-1, 1).Draw(t, "noise")
				case "confident":
					x = 6*x + rapid.Float64Range(-1, 1).Draw(t, "noise")
				}
				row[k] = math.Exp(x)
				sum += row[k]
			}
			for k := range row {
				row[k] /= sum
			}
			if kind == "one-hot" {
				copy(row, []float64{0, 0, 0})
				row[i%classes] = 1
			}
		}
	}
	return decomp.Tensor{Passes: passes, Inputs: inputs, Float64: values}
}

// decideAll decides inputs as a daemon does.
func decideAll(t *rapid.T, p *policy.Policy, passes decomp.Tensor, take func(i int, o *engine.Outcome)) {
	m, err := engine.Bind(p, engine.BindOptions{Lean: true})
	if err != nil {
		t.Fatal(err)
	}
	batch, o := m.NewBatch(), m.NewOutcome()
	if err := batch.Reset(passes); err != nil {
		t.Fatal(err)
	}
	for i := range passes.Inputs {
		if err := batch.Outcome(i, o); err != nil {
			t.Fatal(err)
		}
		take(i, o)
	}
}

// parsed returns the policy of a text.
func parsed(t *rapid.T, text string) *policy.Policy {
	set, err := policy.Parse(policy.File{Name: "p.yaml", Data: []byte(text)})
	if err != nil {
		t.Skip(err) // a threshold of risk above 1, or the like
	}
	return set.All()[0]
}

// TestDecides logs decisions under one policy, and asks what others would have decided. What is said to be known is what
// the engine decides by the passes. Under a policy that decides alike everything is known, and nothing changes.
func TestDecides(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	known, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		const inputs = 12
		text := drawPolicy(t, "old ", 2)
		old, next, passes := parsed(t, text), parsed(t, drawPolicy(t, "new ", 2)), drawPasses(t, inputs)
		vectors := rapid.Bool().Draw(t, "vectors")
		path := filepath.Join(dir, fmt.Sprintf("%d.log", time.Now().UnixNano()))
		l, err := decisionlog.Open(decisionlog.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		l.SetPolicies([]decisionlog.Policy{decisionlog.PolicyOf(old)})
		decideAll(t, old, passes, func(i int, o *engine.Outcome) {
			r := decisionlog.Record{Time: int64(i), Model: "m", PolicyHash: old.Hash, Decision: &o.Decision, Classes: old.Classes, Predicted: o.Predicted,
				Scores: &o.Scores, Risk: o.Risk, Passes: o.Passes, Share: 1, ID: fmt.Append(nil, i+1)}
			if vectors {
				r.Mean, r.C, r.Skewness = o.Mean, o.C, o.Skewness
			}
			l.Add(&r)
		})
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*policy.Policy{next, old, parsed(t, drawnWithTop(text, 3))} {
			s := New(p)
			want := map[string]policy.Decision{}
			decideAll(t, p, passes, func(i int, o *engine.Outcome) { want[fmt.Sprint(i+1)] = o.Decision })
			err := decisionlog.Each(path, func(line *decisionlog.Line) error {
				s.Line(line)
				d, err := line.Decision()
				if err != nil || d == nil {
					return err
				}
				action, why := s.decide(d)
				if why == "" && action != want[d.ID].Action {
					t.Fatalf("%s\nis said to be %v, is %+v", line.Text, action, want[d.ID])
				}
				if p != next && (why != "" || action.String() != d.Action) && !reads(p, policy.OvAMI) {
					t.Fatalf("%s\nbecomes %v under a policy that decides alike: %s", line.Text, action, why)
				}
				if all++; why == "" {
					known++
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if r, err := s.Report(); err != nil || r.Records != inputs || p != next && (r.More != 0 || r.Fewer != 0) {
				t.Fatalf("%v: %+v", err, r)
			}
		}
	})
	if known < all/2 {
		t.Errorf("of %d decisions %d are known", all, known)
	}
}

// drawnWithTop returns a drawn policy with a field that decides nothing.
func drawnWithTop(text string, top int) string {
	return swap(text, "top_classes: 2", fmt.Sprintf("top_classes: %d", top))
}

// small is a policy of the tests below.
const small = `
models:
  - name: m
    classes: [a, b]
    critical: [b]
    top_classes: 2
    gate: any-critical
    primary: {score: mi, threshold: 0.1}
    fallback: {score: entropy, threshold: 0.3}
`

// TestUnknown has a reason of each kind for which a decision cannot be known.
func TestUnknown(t *testing.T) {
	t.Parallel()
	old := outcometest.Policy(t, small)
	record := func(change func(d *decisionlog.Decision)) *decisionlog.Decision {
		d := &decisionlog.Decision{Number: 1, Model: "m", PolicyHash: old.Hash, Action: "retain", Reason: "under_threshold", Gate: "primary", Score: "mi",
			Predicted: "a", Passes: 30, Scores: map[string]float64{"mi": 0.05, "entropy": 0.4, "maxprob": 0.2}}
		change(d)
		return d
	}
	for name, c := range map[string]struct {
		policy string
		record func(d *decisionlog.Decision)
		why    string
		now    policy.Action
	}{
		"a lower threshold":               {swap(small, "0.1", "0.04"), func(*decisionlog.Decision) {}, "", policy.Defer},
		"another gate, which both retain": {swap(swap(small, "0.3", "0.5"), "any-critical", "always"), func(*decisionlog.Decision) {}, "", policy.Retain},
		"skewness":                        {swap(small, "gate:", "reliability_threshold: 0.1\n    gate:"), func(*decisionlog.Decision) {}, WhySkewness, 0},
		"skewness that is recorded": {swap(small, "gate:", "reliability_threshold: 0.1\n    gate:"),
			func(d *decisionlog.Decision) { d.Skewness = []float64{0.2, 0.2} }, "", policy.Defer},
		"a policy that the log lacks": {small, func(d *decisionlog.Decision) { d.PolicyHash = "ab" }, whyNoPolicy, 0},
		"other classes":               {swap(small, "[a, b]", "[a, b, c]"), func(*decisionlog.Decision) {}, whyOther, 0},
		"an early decision":           {swap(small, "0.1", "0.2"), func(d *decisionlog.Decision) { d.Settled = true }, whyEarly, 0},
		"other passes":                {swap(small, "gate:", "passes: {expected: 20}\n    gate:"), func(*decisionlog.Decision) {}, whyPasses, 0},
		"an alarm":                    {swap(small, "0.1", "0.2"), func(d *decisionlog.Decision) { d.Action, d.Reason = "defer", "violated" }, whyAlarm, 0},
		"an alarm, deferred anyway":   {swap(small, "0.1", "0.01"), func(d *decisionlog.Decision) { d.Action, d.Reason = "defer", "violated" }, "", policy.Defer},
		"passes that may not differ": {swap(small, "gate:", "degenerate: retain\n    gate:"), func(d *decisionlog.Decision) {
			d.Action, d.Reason, d.Gate, d.Scores["mi"] = "defer", "above_threshold", "fallback", 0
		}, "", policy.Defer}, // the old policy defers these for another reason
		"a score that is left out": {swap(small, "score: mi", "score: ova_mi"), func(*decisionlog.Decision) {}, whyScore, 0},
		"a record that is none":    {swap(small, "0.1", "0.2"), func(d *decisionlog.Decision) { d.Scores["mi"] = 0.2 }, whyUnfit, 0},
	} {
		s := New(outcometest.Policy(t, c.policy))
		s.Policy(old)
		if now, why := s.decide(record(c.record)); now != c.now || why != c.why {
			t.Errorf("%s: %v, because %q; want %v, because %q", name, now, why, c.now, c.why)
		}
	}
	observing := swap(swap(small, ", threshold: 0.1", ""), ", threshold: 0.3", "")
	s := New(outcometest.Policy(t, small))
	s.Policy(outcometest.Policy(t, observing))
	d := record(func(d *decisionlog.Decision) {
		d.PolicyHash, d.Action, d.Reason, d.Scores["mi"] = outcometest.Policy(t, observing).Hash, "observe", "observing", 0
	})
	if now, why := s.decide(d); now != 0 || why != whySpread {
		t.Errorf("observed passes that may not differ: %v, because %q", now, why)
	}
	d.Scores["mi"] = 0.01
	if now, why := s.decide(d); now != policy.Retain || why != "" {
		t.Errorf("observed passes that differ: %v, because %q", now, why)
	}
}

// swap replaces the first of some words in a policy.
func swap(text, words, by string) string { return strings.Replace(text, words, by, 1) }
