package policy

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// threeClasses is a policy of three classes, normal 0, suspect 1 and pathologic 2, that
// the tests below change.
func threeClasses() *Policy {
	return &Policy{
		Name: "m", Classes: []string{"normal", "suspect", "pathologic"}, Critical: []int{1, 2}, Safe: []int{0},
		Kind: Probabilities, FewestPasses: 10, ReliabilityThreshold: 0.3, Gate: AnyCritical, Scope: AllInputs,
		Primary: Rule{CCritMax, 0.02, true}, Fallback: Rule{CBEC, 0.003, true},
		Degenerate: HandleDefer, Saturated: HandleDefer,
	}
}

// Every action, reason and outcome of the gate, at and beside each threshold.
func TestDecide(t *testing.T) {
	up := func(x float64) float64 { return math.Nextafter(x, math.Inf(1)) }
	evidence := Evidence{
		Predicted: 0, Primary: 0.01, Fallback: 0.001, PrimaryClass: 1, FallbackClass: 2, CCritMaxClass: 1,
		Skewness: []float64{9, 0.1, 0.2},
	}
	byPrimary := Decision{Action: Retain, Score: CCritMax, Value: 0.01, Threshold: 0.02, HasThreshold: true,
		Gate: ByPrimary, Class: -1, Reason: UnderThreshold}
	byFallback := Decision{Action: Retain, Score: CBEC, Value: 0.001, Threshold: 0.003, HasThreshold: true,
		Gate: ByFallback, Class: -1, Reason: UnderThreshold}

	tests := []struct {
		name   string
		policy func(*Policy)
		given  func(*Evidence)
		base   Decision
		want   func(*Decision)
	}{
		{name: "under the primary threshold", base: byPrimary},
		{
			name:  "at the primary threshold",
			given: func(e *Evidence) { e.Primary = 0.02 },
			base:  byPrimary, want: func(d *Decision) { d.Value = 0.02 },
		},
		{
			name:  "above the primary threshold",
			given: func(e *Evidence) { e.Primary = up(0.02) },
			base:  byPrimary,
			want:  func(d *Decision) { d.Action, d.Reason, d.Value, d.Class = Defer, AboveThreshold, up(0.02), 1 },
		},
		{
			name:  "skewness at the reliability threshold is trusted",
			given: func(e *Evidence) { e.Skewness = []float64{9, 0.3, 0.3} },
			base:  byPrimary,
		},
		{
			name:  "skewness above it, of a critical class",
			given: func(e *Evidence) { e.Skewness = []float64{0, 0, up(0.3)} },
			base:  byFallback,
		},
		{
			name:  "above the fallback threshold",
			given: func(e *Evidence) { e.Skewness, e.Fallback = []float64{0, 0, 1}, up(0.003) },
			base:  byFallback,
			want:  func(d *Decision) { d.Action, d.Reason, d.Value, d.Class = Defer, AboveThreshold, up(0.003), 2 },
		},
		{
			name:  "skewness that is no number is not trusted",
			given: func(e *Evidence) { e.Skewness = []float64{0, math.NaN(), 0} },
			base:  byFallback,
		},
		{
			name:   "deciding class is reliable, another is not",
			policy: func(p *Policy) { p.Gate = DecidingClass },
			given:  func(e *Evidence) { e.Skewness = []float64{0, 0.3, 5} },
			base:   byPrimary,
		},
		{
			name:   "deciding class is not reliable",
			policy: func(p *Policy) { p.Gate = DecidingClass },
			given:  func(e *Evidence) { e.Skewness = []float64{0, up(0.3), 0} },
			base:   byFallback,
		},
		{
			name:   "no deciding class",
			policy: func(p *Policy) { p.Gate = DecidingClass },
			given:  func(e *Evidence) { e.CCritMaxClass, e.Skewness = -1, []float64{5, 5, 5} },
			base:   byPrimary,
		},
		{
			name:   "always",
			policy: func(p *Policy) { p.Gate, p.Primary = Always, Rule{Score: CCritMax} },
			base:   byFallback,
		},
		{
			name:   "never",
			policy: func(p *Policy) { p.Gate, p.Fallback = Never, Rule{Score: CBEC} },
			given:  func(e *Evidence) { e.Skewness = []float64{5, 5, 5} },
			base:   byPrimary,
		},
		{
			name:  "an infinite score, set by no class",
			given: func(e *Evidence) { e.Primary = math.Inf(1); e.PrimaryClass = -1 },
			base:  byPrimary,
			want:  func(d *Decision) { d.Action, d.Reason, d.Value, d.Class = Defer, AboveThreshold, math.Inf(1), -1 },
		},
		{
			name:   "observing",
			policy: func(p *Policy) { p.Primary, p.Fallback = Rule{Score: CCritMax}, Rule{Score: CBEC} },
			given:  func(e *Evidence) { e.Primary, e.Degenerate = 5, true },
			base:   byPrimary,
			want: func(d *Decision) {
				d.Action, d.Reason, d.Value, d.Threshold, d.HasThreshold = Observe, Observing, 5, 0, false
			},
		},
		{
			name:   "predicted critical, out of scope",
			policy: func(p *Policy) { p.Scope = PredictedSafe },
			given:  func(e *Evidence) { e.Predicted, e.Primary, e.Degenerate, e.Saturated = 2, 5, true, true },
			base:   byPrimary,
			want:   func(d *Decision) { d.Reason, d.Value = PredictedCritical, 5 },
		},
		{
			name:   "predicted safe, in scope",
			policy: func(p *Policy) { p.Scope = PredictedSafe },
			given:  func(e *Evidence) { e.Primary = 5 },
			base:   byPrimary,
			want:   func(d *Decision) { d.Action, d.Reason, d.Value, d.Class = Defer, AboveThreshold, 5, 1 },
		},
		{
			name:  "predicted critical, all in scope",
			given: func(e *Evidence) { e.Predicted, e.Primary = 2, 5 },
			base:  byPrimary,
			want:  func(d *Decision) { d.Action, d.Reason, d.Value, d.Class = Defer, AboveThreshold, 5, 1 },
		},
		{
			name:  "degenerate",
			given: func(e *Evidence) { e.Degenerate = true },
			base:  byPrimary,
			want:  func(d *Decision) { d.Action, d.Reason = Defer, IsDegenerate },
		},
		{
			name:   "degenerate, retained",
			policy: func(p *Policy) { p.Degenerate = HandleRetain },
			given:  func(e *Evidence) { e.Degenerate, e.Primary = true, 5 },
			base:   byPrimary,
			want:   func(d *Decision) { d.Reason, d.Value = IsDegenerate, 5 },
		},
		{
			name:   "degenerate, by score",
			policy: func(p *Policy) { p.Degenerate = HandleByScore },
			given:  func(e *Evidence) { e.Degenerate = true },
			base:   byPrimary,
		},
		{
			name:  "saturated",
			given: func(e *Evidence) { e.Degenerate, e.Saturated = true, true },
			base:  byPrimary,
			want:  func(d *Decision) { d.Action, d.Reason = Defer, IsSaturated },
		},
		{
			name:   "saturated is not handled as degenerate",
			policy: func(p *Policy) { p.Saturated = HandleRetain },
			given:  func(e *Evidence) { e.Degenerate, e.Saturated = true, true },
			base:   byPrimary,
			want:   func(d *Decision) { d.Reason = IsSaturated },
		},
		{
			name:   "saturated, by score",
			policy: func(p *Policy) { p.Saturated = HandleByScore },
			given:  func(e *Evidence) { e.Degenerate, e.Saturated, e.Primary = true, true, 5 },
			base:   byPrimary,
			want:   func(d *Decision) { d.Action, d.Reason, d.Value, d.Class = Defer, AboveThreshold, 5, 1 },
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, e, want := threeClasses(), evidence, test.base
			if test.policy != nil {
				test.policy(p)
			}
			if test.given != nil {
				test.given(&e)
			}
			if test.want != nil {
				test.want(&want)
			}
			if got := p.Decide(e); got != want {
				t.Errorf("decision\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// An error is never a retain: a score that cannot be compared defers, whatever
// the threshold.
func TestScoreThatIsNoNumberDefers(t *testing.T) {
	for _, skewness := range []float64{0, 1} { // by the primary score, by the fallback
		p := threeClasses()
		p.Primary.Threshold, p.Fallback.Threshold = math.MaxFloat64, math.MaxFloat64
		d := p.Decide(Evidence{Primary: math.NaN(), Fallback: math.NaN(), Skewness: []float64{0, skewness, 0}})
		if d.Action != Defer || d.Reason != AboveThreshold {
			t.Errorf("%s, %s by %s, want to defer", d.Action, d.Reason, d.Gate)
		}
	}
}

// What holds for every policy and all evidence.
func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		e := drawEvidence(t, len(p.Classes))
		d := p.Decide(e)

		fallsBack := false
		switch p.Gate {
		case Always:
			fallsBack = true
		case AnyCritical:
			for _, k := range p.Critical {
				fallsBack = fallsBack || !(e.Skewness[k] <= p.ReliabilityThreshold)
			}
		case DecidingClass:
			fallsBack = e.CCritMaxClass >= 0 && !(e.Skewness[e.CCritMaxClass] <= p.ReliabilityThreshold)
		}
		gate, rule, value, class := ByPrimary, p.Primary, e.Primary, e.PrimaryClass
		if fallsBack {
			gate, rule, value, class = ByFallback, p.Fallback, e.Fallback, e.FallbackClass
		}
		if d.Gate != gate || d.Score != rule.Score || d.Threshold != rule.Threshold || d.HasThreshold != rule.HasThreshold {
			t.Errorf("gate %s, score %s, threshold %v; want %s and %+v", d.Gate, d.Score, d.Threshold, gate, rule)
		}
		if d.Value != value && !(math.IsNaN(d.Value) && math.IsNaN(value)) {
			t.Errorf("value %v, want %v", d.Value, value)
		}

		observes := !p.Primary.HasThreshold && !p.Fallback.HasThreshold
		outOfScope := p.Scope == PredictedSafe && e.Predicted != 0 // class 0 alone is safe
		handled := e.Degenerate && !e.Saturated && p.Degenerate != HandleByScore || e.Saturated && p.Saturated != HandleByScore
		switch {
		case observes:
			if d.Action != Observe || d.Reason != Observing {
				t.Errorf("%s, %s: want to observe", d.Action, d.Reason)
			}
		case outOfScope:
			if d.Action != Retain || d.Reason != PredictedCritical {
				t.Errorf("%s, %s: want to retain what is predicted critical", d.Action, d.Reason)
			}
		case handled:
			if (d.Action == Retain) != (e.Saturated && p.Saturated == HandleRetain ||
				!e.Saturated && p.Degenerate == HandleRetain) {
				t.Errorf("%s, %s of identical passes under %+v", d.Action, d.Reason, p)
			}
		default:
			if retain := value <= rule.Threshold; (d.Action == Retain) != retain || (d.Reason == UnderThreshold) != retain {
				t.Errorf("%s, %s: value %v, threshold %v", d.Action, d.Reason, value, rule.Threshold)
			}
		}
		if wantClass := d.Action == Defer && d.Reason == AboveThreshold; wantClass && d.Class != class || !wantClass && d.Class != -1 {
			t.Errorf("class %d on %s, %s; evidence %+v", d.Class, d.Action, d.Reason, e)
		}
		if again := p.Decide(e); again != d && !math.IsNaN(value) {
			t.Errorf("%+v, then %+v", d, again)
		}
	})
}

func drawPolicy(t *rapid.T) *Policy {
	p := threeClasses()
	p.Gate = rapid.SampledFrom([]Gate{AnyCritical, DecidingClass, Always, Never}).Draw(t, "gate")
	p.Scope = rapid.SampledFrom([]Scope{AllInputs, PredictedSafe}).Draw(t, "scope")
	p.Degenerate = rapid.SampledFrom(handlings).Draw(t, "degenerate")
	p.Saturated = rapid.SampledFrom(handlings).Draw(t, "saturated")
	p.ReliabilityThreshold = drawNumber(t, "reliability threshold")
	p.Primary.Threshold = drawNumber(t, "primary threshold")
	p.Fallback.Threshold = drawNumber(t, "fallback threshold")
	if rapid.Bool().Draw(t, "observes") {
		p.Primary, p.Fallback = Rule{Score: CCritMax}, Rule{Score: CBEC}
	}
	return p
}

func drawEvidence(t *rapid.T, classes int) Evidence {
	class := rapid.IntRange(-1, classes-1)
	e := Evidence{
		Predicted: rapid.IntRange(0, classes-1).Draw(t, "predicted"),
		Primary:   drawScore(t, "primary"), Fallback: drawScore(t, "fallback"),
		PrimaryClass: class.Draw(t, "primary class"), FallbackClass: class.Draw(t, "fallback class"),
		CCritMaxClass: rapid.IntRange(-1, classes-1).Draw(t, "c_crit_max class"),
		Degenerate:    rapid.Bool().Draw(t, "degenerate input"),
	}
	e.Saturated = e.Degenerate && rapid.Bool().Draw(t, "saturated input")
	for range classes {
		e.Skewness = append(e.Skewness, drawScore(t, "skewness"))
	}
	return e
}

// drawNumber of few, so that values often equal thresholds.
func drawNumber(t *rapid.T, label string) float64 {
	return rapid.SampledFrom([]float64{0, 0.1, 0.2, 0.3, 1e300}).Draw(t, label)
}

func drawScore(t *rapid.T, label string) float64 {
	if rapid.IntRange(0, 9).Draw(t, label+" is no number") == 0 {
		return rapid.SampledFrom([]float64{math.NaN(), math.Inf(1)}).Draw(t, label)
	}
	return drawNumber(t, label)
}
