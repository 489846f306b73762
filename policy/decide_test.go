package policy

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// threeClasses returns a policy of three classes, normal 0, suspect 1 and pathologic 2, which
// tests change.
func threeClasses() *Policy {
	return &Policy{
		Name: "m", Classes: []string{"normal", "suspect", "pathologic"}, Critical: []int{1, 2}, Safe: []int{0},
		Kind: Probabilities, FewestPasses: 10, ReliabilityThreshold: 0.3, Gate: AnyCritical, Scope: AllInputs,
		Primary: Rule{CCritMax, 0.02, true}, Fallback: Rule{CBEC, 0.003, true},
		Degenerate: HandleDefer, Saturated: HandleDefer,
	}
}

// TestDecide spells out decisions at each threshold and just beside it, and where one rule goes
// before another. TestDecideProperties checks all combinations.
func TestDecide(t *testing.T) {
	up := func(x float64) float64 { return math.Nextafter(x, math.Inf(1)) }
	primary := func(value float64, action Action, reason Reason, class int) Decision {
		return Decision{Score: CCritMax, Value: value, Threshold: 0.02, HasThreshold: true, Gate: ByPrimary, Action: action, Reason: reason, Class: class}
	}
	trusted := primary(0.01, Retain, UnderThreshold, -1)
	distrusted := Decision{Score: CBEC, Value: 0.001, Threshold: 0.003, HasThreshold: true, Gate: ByFallback, Action: Retain, Reason: UnderThreshold, Class: -1}
	observing := Decision{Score: CCritMax, Value: 5, Gate: ByPrimary, Action: Observe, Reason: Observing, Class: -1}
	guarded := func(p *Policy) { p.Guard = &Guard{MI, 0.4} }
	byRisk := func(p *Policy) { p.Primary = Rule{RiskScore, 0.05, true} }
	unfamiliar := func(value float64) Decision {
		return Decision{Score: MI, Value: value, Threshold: 0.4, HasThreshold: true, Action: Defer, Reason: Unfamiliar, Class: -1}
	}
	tests := []struct {
		name   string
		policy func(*Policy)
		given  func(*Evidence)
		want   Decision
	}{
		{"under the threshold", nil, func(*Evidence) {}, trusted},
		{"at the threshold", nil, func(e *Evidence) { e.Primary = 0.02 }, primary(0.02, Retain, UnderThreshold, -1)},
		{"above the threshold", nil, func(e *Evidence) { e.Primary = up(0.02) }, primary(up(0.02), Defer, AboveThreshold, 1)},
		{"an infinite score, set by no class", nil, func(e *Evidence) { e.Primary, e.PrimaryClass = math.Inf(1), -1 },
			primary(math.Inf(1), Defer, AboveThreshold, -1)},
		{"skewness at the reliability threshold is trusted", nil, func(e *Evidence) { e.Skewness = []float64{9, 0.3, 0.3} }, trusted},
		{"skewness above it, of a critical class", nil, func(e *Evidence) { e.Skewness = []float64{0, 0, up(0.3)} }, distrusted},
		{"observing goes before all", func(p *Policy) { p.Primary, p.Fallback = Rule{Score: CCritMax}, Rule{Score: CBEC} },
			func(e *Evidence) { e.Primary, e.Degenerate = 5, true }, observing},
		{"out of scope goes before identical passes", func(p *Policy) { p.Scope = PredictedSafe },
			func(e *Evidence) { e.Predicted, e.Primary, e.Degenerate, e.Saturated = 2, 5, true, true }, primary(5, Retain, PredictedCritical, -1)},
		{"at the guard", guarded, func(e *Evidence) { e.Guard = 0.4 }, trusted},
		{"above the guard", guarded, func(e *Evidence) { e.Guard = up(0.4) }, unfamiliar(up(0.4))},
		{"above the guard, called critical, identical passes", func(p *Policy) { guarded(p); p.Scope = PredictedSafe },
			func(e *Evidence) { e.Guard, e.Predicted, e.Degenerate = 0.5, 2, true }, unfamiliar(0.5)},
		{"above a guard that only observes", func(p *Policy) { guarded(p); p.Primary, p.Fallback = Rule{Score: CCritMax}, Rule{Score: CBEC} },
			func(e *Evidence) { e.Guard, e.Primary = 0.5, 5 }, observing},
		{"risk of an input called safe", byRisk, func(e *Evidence) { e.Primary = 0.06 },
			Decision{Score: RiskScore, Value: 0.06, Threshold: 0.05, HasThreshold: true, Gate: ByPrimary, Action: Defer, Reason: AboveThreshold, Class: 1}},
		{"no risk of an input called critical", byRisk, func(e *Evidence) { e.Primary, e.Predicted, e.Degenerate = math.NaN(), 1, true },
			Decision{Score: RiskScore, Value: math.NaN(), Threshold: 0.05, HasThreshold: true, Gate: ByPrimary, Action: Retain, Reason: PredictedCritical, Class: -1}},
		{"where the gate falls back from risk, an input called critical is decided by the fallback", byRisk,
			func(e *Evidence) { e.Primary, e.Predicted, e.Skewness = math.NaN(), 1, []float64{0, 5, 5} }, distrusted},
		{"degenerate", nil, func(e *Evidence) { e.Degenerate = true }, primary(0.01, Defer, IsDegenerate, -1)},
		{"saturated is not handled as degenerate", func(p *Policy) { p.Saturated = HandleRetain },
			func(e *Evidence) { e.Degenerate, e.Saturated = true, true }, primary(0.01, Retain, IsSaturated, -1)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := threeClasses()
			if test.policy != nil {
				test.policy(p)
			}
			e := Evidence{
				Predicted: 0, Primary: 0.01, Fallback: 0.001, PrimaryClass: 1, FallbackClass: 2,
				Skewness: []float64{9, 0.1, 0.2},
			}
			test.given(&e)
			if diff := cmp.Diff(test.want, p.Decide(e), cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecideProperties checks what holds for every policy and all evidence. An error is never a
// retain: a score that is NaN defers, and a skewness that is NaN is not trusted.
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
		}
		gate, rule, value, class := ByPrimary, p.Primary, e.Primary, e.PrimaryClass
		if fallsBack {
			gate, rule, value, class = ByFallback, p.Fallback, e.Fallback, e.FallbackClass
		}
		observes := !p.Primary.HasThreshold && !p.Fallback.HasThreshold
		if !observes && p.Guard != nil && !(e.Guard <= p.Guard.Threshold) {
			if d.Action != Defer || d.Reason != Unfamiliar || d.Score != p.Guard.Score || d.Gate != 0 || d.Class != -1 {
				t.Errorf("%+v: want to defer what is unfamiliar", d)
			}
			return
		}
		if d.Gate != gate || d.Score != rule.Score || d.Threshold != rule.Threshold || d.HasThreshold != rule.HasThreshold {
			t.Errorf("gate %s, score %s, threshold %v; want %s and %+v", d.Gate, d.Score, d.Threshold, gate, rule)
		}
		if d.Value != value && !(math.IsNaN(d.Value) && math.IsNaN(value)) {
			t.Errorf("value %v, want %v", d.Value, value)
		}

		outOfScope := (p.Scope == PredictedSafe || rule.Score == RiskScore) && e.Predicted != 0 // class 0 alone is safe
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
			reason, handling := IsDegenerate, p.Degenerate
			if e.Saturated {
				reason, handling = IsSaturated, p.Saturated
			}
			if d.Reason != reason || (d.Action == Retain) != (handling == HandleRetain) {
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
	p.Gate = rapid.SampledFrom([]Gate{AnyCritical, Always, Never}).Draw(t, "gate")
	p.Scope = rapid.SampledFrom([]Scope{AllInputs, PredictedSafe}).Draw(t, "scope")
	p.Degenerate = rapid.SampledFrom(handlings).Draw(t, "degenerate")
	p.Saturated = rapid.SampledFrom(handlings).Draw(t, "saturated")
	p.ReliabilityThreshold = drawNumber(t, "reliability threshold")
	p.Primary.Threshold = drawNumber(t, "primary threshold")
	p.Fallback.Threshold = drawNumber(t, "fallback threshold")
	p.Primary.Score = rapid.SampledFrom([]Score{CCritMax, RiskScore}).Draw(t, "primary score")
	if rapid.Bool().Draw(t, "guarded") {
		p.Guard = &Guard{MI, drawNumber(t, "guard threshold")}
	}
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
		Guard:      drawScore(t, "guard"),
		Degenerate: rapid.Bool().Draw(t, "degenerate input"),
	}
	e.Saturated = e.Degenerate && rapid.Bool().Draw(t, "saturated input")
	for range classes {
		e.Skewness = append(e.Skewness, drawScore(t, "skewness"))
	}
	return e
}

// drawNumber draws one of a few numbers, so that values often equal thresholds.
func drawNumber(t *rapid.T, label string) float64 {
	return rapid.SampledFrom([]float64{0, 0.1, 0.2, 0.3, 1e300}).Draw(t, label)
}

func drawScore(t *rapid.T, label string) float64 {
	if rapid.IntRange(0, 9).Draw(t, label+" is no number") == 0 {
		return rapid.SampledFrom([]float64{math.NaN(), math.Inf(1)}).Draw(t, label)
	}
	return drawNumber(t, label)
}

// TestWhileViolated checks that only what is retained without being called critical is deferred, and
// that the figures by which it was retained stay.
func TestWhileViolated(t *testing.T) {
	retained := Decision{Action: Retain, Reason: UnderThreshold, Score: CCritMax, Value: 0.01, Threshold: 0.02, HasThreshold: true, Gate: ByPrimary, Class: -1}
	violated := retained
	violated.Action, violated.Reason = Defer, Violated
	deferred := Decision{Action: Defer, Reason: AboveThreshold, Score: CCritMax, Value: 0.03, Threshold: 0.02, HasThreshold: true, Gate: ByPrimary, Class: 1}
	observed := Decision{Action: Observe, Reason: Observing, Score: CCritMax, Value: 0.01, Class: -1}
	for _, c := range []struct {
		name      string
		given     Decision
		predicted int
		want      Decision
	}{
		{"retained and called safe", retained, 0, violated},
		{"retained and called critical", retained, 2, retained},
		{"deferred", deferred, 0, deferred},
		{"observed", observed, 0, observed},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, threeClasses().WhileViolated(c.given, c.predicted)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
