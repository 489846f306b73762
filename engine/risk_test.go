package engine_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// riskLines decide by risk, the logistic function of -1 + 0.5 x of the log-odds x of p_critical,
// behind a guard. The quantiles are 0, 1/64, up to 1, so that a probability is its own percentile.
func riskLines() []string {
	var quantiles []string
	for i := range 65 {
		quantiles = append(quantiles, fmt.Sprint(float64(i)/64))
	}
	return []string{"gate: never", "primary: {score: risk, threshold: 0.1}", "guard: {score: mi, threshold: 0.3}",
		"calibrated: {risk: {called_safe: {intercept: -1, slope: 0.5}, called_critical: {intercept: 0.25, slope: 2}, " +
			"quantiles: [" + strings.Join(quantiles, ", ") + "], prevalence: 0.2}}"}
}

// TestAssessment checks risk, priority, percentile and decision on every input of a recording
// against their definitions, streamed and at once.
func TestAssessment(t *testing.T) {
	passes := ctg(t)
	m := newModel(t, riskLines()...)
	batch, o := batchOf(t, m, passes), m.NewOutcome()
	seen := map[policy.Reason]int{}
	for i := range passes.N {
		if err := batch.Outcome(i, o); err != nil {
			t.Fatal(err)
		}
		p := min(max(o.Mean[1]+o.Mean[2], 1e-6), 1-1e-6)
		logistic := func(z float64) float64 { return 1 / (1 + math.Exp(-z)) }
		z := math.Log(p / (1 - p))
		want := engine.Assessment{Risk: logistic(-1 + 0.5*z), Priority: logistic(-1 + 0.5*z)}
		reason := policy.UnderThreshold
		switch called := o.Predicted != 0; {
		case called:
			want.Risk, want.Priority, reason = math.NaN(), logistic(0.25+2*z), policy.PredictedCritical
		case o.Degenerate:
			reason = policy.IsDegenerate
		case want.Risk > 0.1:
			reason = policy.AboveThreshold
		}
		want.Percentile = want.Priority
		if want.Trusted = !o.Degenerate && o.MI <= 0.3; !want.Trusted {
			want.Percentile = 1
		}
		if o.MI > 0.3 {
			reason = policy.Unfamiliar
		}
		for name, c := range map[string][2]float64{
			"risk": {o.Risk, want.Risk}, "priority": {o.Priority, want.Priority}, "percentile": {o.Percentile, want.Percentile},
		} {
			if !(math.Abs(c[0]-c[1]) < 1e-12) && !(math.IsNaN(c[0]) && math.IsNaN(c[1])) { // both are rounded
				t.Fatalf("input %d: %s %v, want %v", i, name, c[0], c[1])
			}
		}
		if o.Trusted != want.Trusted {
			t.Fatalf("input %d: trusted %v, want %v", i, o.Trusted, want.Trusted)
		}
		if o.Decision.Reason != reason {
			t.Fatalf("input %d: %+v, want %s", i, o.Decision, reason)
		}
		seen[reason]++
		if streamed := stream(m, passes, i); streamed.Decision.Reason != reason {
			t.Fatalf("input %d streamed: %+v, want %s", i, streamed.Decision, reason)
		}
	}
	for _, r := range []policy.Reason{policy.UnderThreshold, policy.AboveThreshold, policy.PredictedCritical, policy.Unfamiliar} {
		if seen[r] < 10 {
			t.Errorf("%d inputs %s, too few to test with", seen[r], r)
		}
	}
}

// TestAssessmentAllocatesNothing checks that risk costs no memory.
func TestAssessmentAllocatesNothing(t *testing.T) {
	passes := ctg(t)
	m := newModel(t, riskLines()...)
	batch, o := batchOf(t, m, passes), m.NewOutcome()
	if n := testing.AllocsPerRun(100, func() { _ = batch.Outcome(7, o) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestUnfamiliarInputsAreNotStoppedEarly checks that an input which the guard finds by the passes
// so far gets all its passes, although the rule would defer it, and that a familiar one does not.
func TestUnfamiliarInputsAreNotStoppedEarly(t *testing.T) {
	p := *newModel(t, append([]string{"passes: {fewest: 2, expected: 6}"}, riskLines()...)...).Policy()
	rule := earlystop.Rule{Passes: 6, Fewest: 2, Steps: make([]earlystop.Step, 4)} // stops everything at once
	p.EarlyStopping = &policy.EarlyStopping{
		PolicyHash: p.HashWithoutEarlyStop(), Order: policy.AnyOrder, Rule: rule,
		Certificate: policy.EarlyStopCertificate{Disagreement: 0.01, Confidence: 0.9, Released: policy.ReleasedShare{AtMost: 0.05}},
	}
	for _, c := range []struct {
		name   string
		spread float32
		passes int
		reason policy.Reason
	}{{"familiar", 0.02, 2, policy.AboveThreshold}, {"unfamiliar", 0.44, 6, policy.Unfamiliar}} {
		t.Run(c.name, func(t *testing.T) {
			m := stopping(t, &p, fullpass.Sampler{})
			opening := m.Prepare(engine.Options{Passes: 6, StopEarly: true})
			g, b, a := opening.Open(1), m.NewBatch(), &closings{}
			defer g.Release()
			for pass := 0; g.OpenInputs() > 0; pass++ {
				critical := 0.45 + c.spread*float32(1-2*(pass%2))
				g.Feed(b, &engine.Block{Passes: 1, Values: &floats{[]float32{1 - critical, 0, critical}}}, a)
			}
			if got := a.byInput[0]; got.Err != nil || got.Passes != c.passes || got.Decision.Reason != c.reason {
				t.Errorf("%+v after %d passes: %v", got.Decision, got.Passes, got.Err)
			}
		})
	}
}
