package server

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// stoppingPolicy returns the policy ctg of the tests with a rule that has little patience. From a
// number of passes on, it retains where the log of score over threshold is at most retain, and
// defers where that is at least defers.
func stoppingPolicy(t testing.TB, from int, retain, defers float64, edit ...string) *policy.Policy {
	t.Helper()
	all := parsePolicies(t, strings.NewReplacer(edit...).Replace(testPolicies)).All()
	p := *all[slices.IndexFunc(all, func(p *policy.Policy) bool { return p.Version == "v1" })]
	p.EarlyStopping = certified(&p, ruleOnScore(&p, max(from, p.FewestPasses), retain, -defers).Rule(p.ExpectedPasses, 2))
	stopping := parsePolicies(t, string(p.Marshal())).All()[0]
	if stopping.EarlyStop() == nil {
		t.Fatal("the rule is not in force")
	}
	return stopping
}

// ruleOnScore returns a rule that looks at the score alone, from a number of passes on.
func ruleOnScore(p *policy.Policy, from int, retain, defers float64) *earlystop.Form {
	return &earlystop.Form{
		Boundaries: []earlystop.Boundary{
			{Passes: from, Retain: retain, Defer: defers}, {Passes: p.ExpectedPasses - 1, Retain: retain, Defer: defers},
		},
		Retain: []earlystop.Term{{Of: "own", Weight: 1}}, Defer: []earlystop.Term{{Of: "own", Weight: -1}},
	}
}

// certified returns a rule as if it had been learned for a policy.
func certified(p *policy.Policy, rule earlystop.Rule) *policy.EarlyStopping {
	return &policy.EarlyStopping{
		PolicyHash: p.HashWithoutEarlyStop(), Order: policy.AnyOrder, Rule: rule,
		Certificate: policy.EarlyStopCertificate{Disagreement: 0.01, Confidence: 0.9, Released: policy.ReleasedShare{AtMost: 0.05}},
	}
}

// put puts a policy in force, alone.
func (h *harness) put(t testing.TB, p *policy.Policy) {
	t.Helper()
	h.set(t, string(p.Marshal()))
}

// openAccepting opens a stream that accepts early decisions of the model ctg.
func (h *harness) openAccepting(t *testing.T) *clientStream {
	t.Helper()
	return h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
}

// checkShare makes the sampler choose the first inputs, and a share of those after them.
func (h *harness) checkShare(first uint64, share float64) {
	h.server.catalog.models()["ctg"].lean.Stopper().Sampler = fullpass.Sampler{First: first, Share: share, Wary: share, Seed: 1}
}

// stoppedEarly counts early decisions.
func stoppedEarly(results []*ckdv1.Result) (n int) {
	for _, r := range results {
		if r.GetDecomposition().GetSettled() {
			n++
		}
	}
	return n
}

// TestBudgetOfFollowedInputs checks that the budget counts what the engine says that inputs take,
// which is more for inputs that may stop early. Tests of the engine hold that against its memory.
func TestBudgetOfFollowedInputs(t *testing.T) {
	const s, n, k = 30, 7, 4
	p := neverStopping(t, s, k, policy.AnyCritical)
	held := map[bool]int64{}
	for _, accepts := range []bool{false, true} {
		l := newLoad(t, p, &ckdv1.StreamHeader{Model: "m", AcceptSettled: accepts}, shape{s, n, k}, s)
		l.groups[0].messages = l.groups[0].messages[:1] // which opens the group
		l.group(t)
		opening := l.stream.bound.lean.Prepare(engine.Options{Passes: s, StopEarly: accepts})
		if got, want := l.stream.groups.held, n*inputCost(opening.InputBytes(n), len("input-00")); got != want {
			t.Errorf("%d inputs hold %d bytes, want %d; early decisions accepted: %v", n, got, want, accepts)
		}
		held[accepts] = l.stream.groups.held
	}
	if held[true] <= held[false] {
		t.Errorf("%d inputs take %d bytes if they may stop early, and %d otherwise", n, held[true], held[false])
	}
}

// TestDriftIgnoresEarlyDecisions checks that drift is looked for only in inputs whose passes have
// no say in when they end: not in those that may stop early, whether they do or not.
func TestDriftIgnoresEarlyDecisions(t *testing.T) {
	p := stoppingPolicy(t, 0, -4, 1.5)
	levels := make(drift.Quantiles, policy.Levels)
	p.Calibration = &policy.Calibration{Reference: &policy.Reference{
		Inputs: 100, Classes: []policy.ClassReference{{Class: 1, Predicted: 0.1, Epistemic: levels, Skewness: levels}},
	}}
	const n = 200
	for name, c := range map[string]struct {
		accepts  bool
		share    float64
		compared bool
	}{"followed": {true, 0, false}, "checked": {true, 1, true}, "not accepted": {false, 0, true}} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.put(t, p)
			h.checkShare(0, c.share)
			s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: c.accepts})
			s.sendPasses(segment{n: n}, 0, 30)
			early := stoppedEarly(s.rest())
			if follows := c.accepts && c.share == 0; follows && (early == 0 || early == n) || !follows && early > 0 {
				t.Fatalf("%d of %d stop early", early, n)
			}
			h.eventually(t, n, "ckd_decisions_total")
			if z := h.metric(t, "ckd_drift_z"); (z != 0) != c.compared {
				t.Errorf("the sum of all z is %v: are inputs compared? expected %v", z, c.compared)
			}
		})
	}
}

// TestPrevalenceOfTrusted checks that a prevalence is suggested by inputs that are a fair sample, as for
// drift, and whose priority can be trusted: not by unfamiliar ones.
func TestPrevalenceOfTrusted(t *testing.T) {
	const n = 1000
	for name, c := range map[string]struct {
		accepts   bool
		share     float64
		guard     float64
		suggested bool
	}{"followed": {true, 0, 10, false}, "checked": {true, 1, 10, true}, "not accepted": {false, 0, 10, true}, "unfamiliar": {false, 0, 0, false}} {
		t.Run(name, func(t *testing.T) {
			p := stoppingPolicy(t, 0, -4, 1.5)
			p.Risk = &policy.Risk{
				CalledSafe: policy.Logistic{Slope: 1}, CalledCritical: policy.Logistic{Slope: 1}, Quantiles: make([]float64, policy.Levels), Prevalence: 0.2,
			}
			p.Guard = &policy.Guard{Score: policy.MI, Threshold: c.guard}
			p.Calibration = &policy.Calibration{Recording: policy.Recording{Inputs: 1000, CriticalInputs: 200}}
			p.EarlyStopping.PolicyHash = parsePolicies(t, string(p.Marshal())).All()[0].HashWithoutEarlyStop()
			h := newHarness(t)
			h.put(t, p)
			h.checkShare(0, c.share)
			s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: c.accepts})
			s.sendPasses(segment{n: n}, 0, 30)
			if early := stoppedEarly(s.rest()); (early > 0) != (c.accepts && c.share == 0) {
				t.Fatalf("%d stop early", early)
			}
			h.eventually(t, n, "ckd_decisions_total")
			if got := h.metric(t, "ckd_prevalence_suggested", "bound", "estimate"); (got != 0) != c.suggested {
				t.Errorf("it suggests %v, expected something: %v", got, c.suggested)
			}
		})
	}
}

// feedCTG streams inputs of the recording in groups of 100, and counts early decisions.
func (h *harness) feedCTG(t *testing.T, n int) (early int) {
	t.Helper()
	s := h.openAccepting(t)
	const batch = 100
	for from := 0; from < n; from += batch {
		s.sendPasses(segment{uint64(from), from % 1000, batch}, 0, 30)
	}
	results := s.rest()
	if len(results) != n {
		t.Fatalf("%d results of %d inputs", len(results), n)
	}
	return stoppedEarly(results)
}

// TestFullPassChecksEndEarlyStopping checks that full-pass checks find a wrong rule, and that then
// no input stops early until another policy comes. The same policy does not do, not even after
// another.
func TestFullPassChecksEndEarlyStopping(t *testing.T) {
	h := newHarness(t)
	// Writing the log may be slow: nobody may wait for a shard of the metrics meanwhile.
	h.server.decider.log = h.server.decider.log.WithOptions(zap.Hooks(func(e zapcore.Entry) error {
		if strings.Contains(e.Message, "early stopping has ended") {
			h.expectScrape(t)
		}
		return nil
	}))
	wrong := stoppingPolicy(t, 0, 9, earlystop.Never) // retains whatever 4 passes would
	h.put(t, wrong)
	h.checkShare(400, 0)
	h.feedCTG(t, 400)
	h.eventually(t, 1, "ckd_early_stop_halted", "model", "ctg")
	if entries := h.logs.FilterMessageSnippet("early stopping has ended").All(); len(entries) != 1 {
		t.Errorf("%d lines in the log of the stop", len(entries))
	} else if m := entries[0].ContextMap(); m["model"] != "ctg" || m["policy_hash"] != wrong.Hash {
		t.Errorf("the log says %v", m)
	}
	if !h.model(t, "ctg").GetSettle().GetStopped() {
		t.Error("GetModel does not say that early stopping has ended")
	}
	if n := h.feedCTG(t, 100); n != 0 {
		t.Errorf("%d stop early after full-pass checks have ended it", n)
	}
	later := *wrong
	later.Version = "v2"
	h.put(t, &later)
	if n := h.feedCTG(t, 100); n != 0 || h.metric(t, "ckd_early_stop_halted") != 1 {
		t.Errorf("%d stop early after the same policy was loaded again", n)
	}
	h.put(t, stoppingPolicy(t, 0, -3, earlystop.Never))
	if h.metric(t, "ckd_early_stop_halted") != 0 || h.model(t, "ctg").GetSettle().GetStopped() {
		t.Error("another policy is stopped too")
	}
	h.checkShare(0, 0)
	if n := h.feedCTG(t, 100); n == 0 {
		t.Error("no input stops early under another policy")
	}
	h.put(t, wrong)
	if n := h.feedCTG(t, 100); n != 0 || h.metric(t, "ckd_early_stop_halted") != 1 {
		t.Errorf("%d stop early under the policy whose rule was wrong", n)
	}
}

// TestRuleForAnotherPolicy checks that a rule is not in force once a threshold was changed, and
// that the log says so.
func TestRuleForAnotherPolicy(t *testing.T) {
	h := newHarness(t)
	p := *stoppingPolicy(t, 0, 5, 0)
	p.Primary.Threshold *= 2
	for range 2 { // the second reload changes nothing
		h.put(t, &p)
		if n := h.logs.FilterMessageSnippet("the rule is not in force").Len(); n != 1 {
			t.Errorf("%d lines in the log, want one", n)
		}
	}
	if n := h.feedCTG(t, 100); n != 0 {
		t.Errorf("%d inputs stop early", n)
	}
	if rule := h.model(t, "ctg").GetSettle(); rule != nil {
		t.Errorf("clients are told of the rule %v", rule)
	}
}
