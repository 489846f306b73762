package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/internal/record"
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

// putUnchecked puts a policy in force, alone, none of whose inputs is checked.
func (h *harness) putUnchecked(t testing.TB, p *policy.Policy) {
	t.Helper()
	h.put(t, p)
	h.checkShare(0, 0)
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

// expectation says after how many passes an input is answered, and what the rule decides.
type expectation struct {
	passes int
	action earlystop.Action // Open: all passes decide
}

// expect computes, input by input and pass by pass, what the rule does to inputs of the recording.
func expect(t testing.TB, p *policy.Policy, n int) []expectation {
	t.Helper()
	rec := ctg(t)
	in, err := engine.NewFollower(p)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]expectation, n)
	for i := range all {
		in.Reset()
		all[i].passes = rec.S
		for s := range rec.S {
			if err := in.Add(rowsOfPass(rec, s, i, i+1)); err != nil {
				t.Fatal(err)
			}
			if a := in.Settled(p.EarlyStop()); a != earlystop.Open && s+1 < rec.S {
				all[i] = expectation{s + 1, a}
				break
			}
		}
	}
	return all
}

// outcomeAfter returns the outcome of an input on its first passes, as if they were complete.
func outcomeAfter(t testing.TB, m *engine.Model, rec *record.Passes, i, passes int) *engine.Outcome {
	t.Helper()
	var values []float32
	for s := range passes {
		values = append(values, rowsOfPass(rec, s, i, i+1)...)
	}
	return referenceFor(t, m, decomp.Tensor{Passes: passes, Inputs: 1, Float32: values})(0)
}

// byRow returns the results of n inputs, each of which must be decided once, in order.
func byRow(t *testing.T, results []*ckdv1.Result, n int) []*ckdv1.Result {
	t.Helper()
	rows := make([]*ckdv1.Result, n)
	for _, r := range results {
		if r.GetDecomposition() == nil || rows[r.GetRow()] != nil {
			t.Fatalf("row %d: %v, or answered twice", r.GetRow(), r.GetError())
		}
		rows[r.GetRow()] = r
	}
	if at := slices.Index(rows, nil); at >= 0 {
		t.Fatalf("row %d has no answer", at)
	}
	return rows
}

// expectPasses checks that n inputs are each decided after so many passes, early or not.
func expectPasses(t *testing.T, results []*ckdv1.Result, n, passes int, early bool) {
	t.Helper()
	for i, r := range byRow(t, results, n) {
		if d := r.GetDecomposition(); d.GetSettled() != early || int(d.GetPasses()) != passes {
			t.Errorf("row %d: early %v after %d passes, expected %v after %d", i, d.GetSettled(), d.GetPasses(), early, passes)
		}
	}
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

// TestEarlyDecisionWithoutRoom checks that an input which the rule stops while there is no room for
// its result goes on, and is answered once there is room.
func TestEarlyDecisionWithoutRoom(t *testing.T) {
	rec := ctg(t)
	const n = 3
	for name, rows := range map[string][]uint32{"all rows": nil, "rows by themselves": {0, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			p := stoppingPolicy(t, 0, earlystop.Never, 0) // stops everything
			h.putUnchecked(t, p)
			s := h.openAccepting(t)
			last := p.FewestPasses + 3 // before that the rule looks three times without room
			var results []*ckdv1.Result
			for pass := 1; pass <= last; pass++ {
				if len(results) > 0 {
					t.Fatalf("after %d passes and without room: %v", pass-1, results)
				}
				b := &ckdv1.Block{Values: rowsOfPass(rec, pass-1, 0, n), Rows: rows}
				if pass == 1 {
					b.InputIds = make([]string, n)
				}
				taken := int64(0)
				if pass > 1 && pass < last {
					taken = h.server.decider.limits.OpenInputBytes
				}
				h.server.budget.shared.Add(taken)
				s.sendBlock(b)
				results = s.receive().GetResults()
				h.server.budget.shared.Add(-taken)
			}
			expectPasses(t, results, n, last, true)
			h.eventually(t, float64(n*(rec.S-last)), "ckd_passes_saved_total")
		})
	}
}

// TestFinalBlockWithoutRoom checks that an input fails for which there is no room at the final
// block, whatever became of its neighbours.
func TestFinalBlockWithoutRoom(t *testing.T) {
	rec := ctg(t)
	h := newHarness(t)
	p := stoppingPolicy(t, 0, earlystop.Never, 0) // stops everything but identical passes
	h.putUnchecked(t, p)
	s := h.openAccepting(t)
	var early []*ckdv1.Result
	for pass := range p.FewestPasses {
		b := &ckdv1.Block{Values: slices.Concat(rowsOfPass(rec, pass, 0, 1), []float32{0.9, 0.05, 0.05}, rowsOfPass(rec, pass, 1, 2))}
		if pass == 0 {
			b.InputIds = []string{"first", "identical", "last"}
		}
		s.sendBlock(b)
		early = append(early, s.receive().GetResults()...)
	}
	if len(early) != 2 || early[0].GetRow() != 0 || early[1].GetRow() != 2 {
		t.Fatalf("early: %v, expected all but the identical one", early)
	}
	h.server.budget.shared.Add(h.server.decider.limits.OpenInputBytes)
	s.sendBlock(&ckdv1.Block{Final: true})
	reply := s.receive()
	h.server.budget.shared.Add(-h.server.decider.limits.OpenInputBytes)
	expectReasons(t, reply, map[string]string{"identical": "OUT_OF_MEMORY_BUDGET"})
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

// TestNoEarlyDecisions checks that no input stops early if the header asks for another number of
// passes, or without a rule, and that the stream says so.
func TestNoEarlyDecisions(t *testing.T) {
	for name, c := range map[string]struct {
		accepts bool
		passes  int
		rule    bool
	}{"not accepted": {false, 30, true}, "other passes": {true, 29, true}, "without a rule": {true, 30, false}} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			if c.rule {
				h.putUnchecked(t, stoppingPolicy(t, 0, 5, 0))
			}
			s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: c.accepts, Passes: uint32(c.passes)})
			if s.info.GetSettles() {
				t.Error("the stream says that inputs may stop early")
			}
			s.sendPasses(segment{n: 40}, 0, c.passes)
			expectPasses(t, s.rest(), 40, c.passes, false)
			h.eventually(t, 0, "ckd_passes_used")
		})
	}
}

// TestFullPassChecks checks that checked inputs have all their passes, and that what the rule says
// of them is compared with what all passes decide.
func TestFullPassChecks(t *testing.T) {
	p := stoppingPolicy(t, 0, 0, 0.1) // bold, and so wrong now and then
	rec := ctg(t)
	const n = 390 // fewer than those that are all checked
	want := expect(t, p, n)
	m, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]float64{"wrongly_retained": 0, "wrongly_deferred": 0, "other_side": 0}
	for i, w := range want {
		early, all := outcomeAfter(t, m, rec, i, w.passes), outcomeAfter(t, m, rec, i, rec.S)
		sides := slices.Contains(p.Critical, early.Predicted) != slices.Contains(p.Critical, all.Predicted)
		switch {
		case early.Decision.Action == policy.Retain && all.Decision.Action == policy.Defer:
			verdicts["wrongly_retained"]++
		case early.Decision.Action == policy.Defer && all.Decision.Action == policy.Retain:
			verdicts["wrongly_deferred"]++
		case all.Decision.Action == policy.Retain && sides:
			verdicts["other_side"]++
		}
	}
	if verdicts["wrongly_retained"] == 0 || verdicts["wrongly_deferred"] == 0 {
		t.Fatalf("%v: the rule is too good for this test", verdicts)
	}
	h := newHarness(t)
	h.put(t, p)
	s := h.openAccepting(t)
	s.sendPasses(segment{n: n}, 0, rec.S)
	expectPasses(t, s.rest(), n, rec.S, false)
	h.eventually(t, n, "ckd_early_stop_checked_total")
	for verdict, count := range verdicts {
		h.eventually(t, count, "ckd_early_stop_disagreements_total", "verdict", verdict)
	}
	h.eventually(t, 0, "ckd_passes_saved_total")
	h.eventually(t, 0, "ckd_early_stop_checks_lost_total")
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

// TestFullPassChecksAfterTheStop checks that inputs which are open when full-pass checks end early
// stopping run on, and that the rule is still asked about checked ones.
func TestFullPassChecksAfterTheStop(t *testing.T) {
	h := newHarness(t)
	h.put(t, stoppingPolicy(t, 0, 9, earlystop.Never)) // retains whatever 4 passes would
	h.checkShare(400, 0)
	s := h.openAccepting(t)
	open := segment{n: 100}
	s.sendPasses(open, 0, 1)
	s.receive()
	h.feedCTG(t, 300)
	h.eventually(t, 1, "ckd_early_stop_halted", "model", "ctg")
	checked, before := h.metric(t, "ckd_early_stop_checked_total"), h.metric(t, "ckd_early_stop_disagreements_total")
	s.sendPasses(open, 1, 30)
	if results := s.rest(); len(results) != open.n {
		t.Errorf("%d results of %d inputs", len(results), open.n)
	}
	h.eventually(t, checked+float64(open.n), "ckd_early_stop_checked_total")
	if h.metric(t, "ckd_early_stop_disagreements_total") == before {
		t.Error("no full-pass check after the stop disagrees")
	}
}

// TestEarlyStoppingContinues checks that full-pass checks of a good rule do not end early stopping,
// and that a reload of the same policy continues them.
func TestEarlyStoppingContinues(t *testing.T) {
	h := newHarness(t)
	p := stoppingPolicy(t, 25, -1, 0.7)
	h.put(t, p)
	if n := h.feedCTG(t, 400); n != 0 {
		t.Errorf("%d of the first 400 stop early", n)
	}
	later := *p
	later.Version = "v2"
	h.put(t, &later)
	if n := h.feedCTG(t, 600); n < 100 {
		t.Errorf("%d of the next 600 stop early", n)
	}
	if n := h.metric(t, "ckd_early_stop_checked_total"); n < 400 || n > 450 {
		t.Errorf("%v checked", n)
	}
	h.eventually(t, 0, "ckd_early_stop_halted")
	if low, high := h.metric(t, "ckd_early_stop_disagreement", "bound", "low", "inputs", "all"), h.metric(t, "ckd_early_stop_disagreement", "bound", "high", "inputs", "all"); low > 0.01 || high < 0.001 || high > 0.03 {
		t.Errorf("interval %v to %v", low, high)
	}
}

// TestLostChecks checks that a checked input which ends before its last pass has no verdict.
func TestLostChecks(t *testing.T) {
	h := newHarness(t)
	h.put(t, stoppingPolicy(t, 0, -1, 0.7))
	begin := func(n int) *clientStream {
		s := h.openAccepting(t)
		s.sendPasses(segment{n: n}, 0, 6)
		return s
	}
	s := begin(3)
	s.sendBlock(&ckdv1.Block{Rows: []uint32{1}, Values: []float32{2, 2, 2}}) // fails
	s.rest()                                                                 // finishes the others on 6 passes
	h.eventually(t, 3, "ckd_early_stop_checks_lost_total")
	begin(4).cancel()
	h.eventually(t, 7, "ckd_early_stop_checks_lost_total")
	h.eventually(t, 0, "ckd_early_stop_checked_total")
}

// TestFirstInputsAreAllChecked checks that all inputs are checked until there are 400 verdicts,
// however many inputs are open at one time and however many full-pass checks are lost.
func TestFirstInputsAreAllChecked(t *testing.T) {
	h := newHarness(t)
	h.put(t, stoppingPolicy(t, 0, earlystop.Never, 0)) // stops everything
	lost := h.openAccepting(t)
	lost.sendPasses(segment{n: 500}, 0, 1)
	lost.receive()
	lost.cancel()
	h.eventually(t, 500, "ckd_early_stop_checks_lost_total")
	s := h.openAccepting(t)
	for pass := range 30 {
		for group := range 6 { // all are open before the first has its last pass
			s.sendPasses(segment{uint64(group), 100 * group, 100}, pass, pass+1)
		}
	}
	if n := stoppedEarly(s.rest()); n > 0 {
		t.Errorf("%d inputs stop early", n)
	}
	h.eventually(t, 600, "ckd_early_stop_checked_total")
	h.eventually(t, 1, "ckd_early_stop_halted")
}

// TestEndedByTheClient checks that an input which its client ends early counts no saved passes.
func TestEndedByTheClient(t *testing.T) {
	h := newHarness(t)
	h.putUnchecked(t, stoppingPolicy(t, 20, -1, 0.7))
	s := h.openAccepting(t)
	values := tensor(ctg(t), 9).GetValues()
	s.sendBlock(&ckdv1.Block{InputIds: make([]string, 9), Passes: 5, Values: values[:5*9*3], Final: true})
	s.sendBlock(&ckdv1.Block{Group: 1, InputIds: make([]string, 9), Passes: 6, Values: values[:6*9*3]})
	if n := stoppedEarly(s.rest()); n > 0 {
		t.Errorf("%d inputs stop early", n)
	}
	h.eventually(t, 18, "ckd_decisions_total")
	h.eventually(t, 0, "ckd_passes_saved_total")
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

// TestEarlyStoppingOfModel checks what clients are told about the rule of a model.
func TestEarlyStoppingOfModel(t *testing.T) {
	h := newHarness(t)
	p := *stoppingPolicy(t, 0, -1, 1)
	p.EarlyStopping.MeanPasses = 6.5
	p.EarlyStopping.Order = policy.MembersOrder
	p.EarlyStopping.Certificate.CriticalReleased, p.EarlyStopping.Certificate.Groups = &policy.ReleasedShare{AtMost: 0.1}, 240
	h.put(t, &p)
	want := &ckdv1.Settle{
		Passes: 30, Fewest: 4, Ordered: true, Disagreement: 0.01, Confidence: 0.9, Released: 0.05, CriticalReleased: proto.Float64(0.1), MeanPasses: 6.5, Groups: 240,
	}
	if diff := cmp.Diff(want, h.model(t, "ctg").GetSettle(), protocmp.Transform()); diff != "" {
		t.Errorf("rule (-want, +got):\n%s", diff)
	}
}

// TestChecksWhileNotInForce checks that full-pass checks of a policy's last inputs end its early
// stopping while another policy is in force, so that it stays ended when the policy is loaded
// again.
func TestChecksWhileNotInForce(t *testing.T) {
	h := newHarness(t)
	wrong, other := stoppingPolicy(t, 0, 9, earlystop.Never), stoppingPolicy(t, 0, -3, earlystop.Never)
	h.put(t, wrong)
	h.checkShare(400, 0)
	s := h.openAccepting(t)
	open := segment{n: 400}
	s.sendPasses(open, 0, 1)
	s.receive()
	h.put(t, other)
	s.sendPasses(open, 1, 30)
	if got := len(s.rest()); got != open.n {
		t.Fatalf("%d results of %d inputs", got, open.n)
	}
	if h.metric(t, "ckd_early_stop_halted") != 0 {
		t.Error("the policy in force is stopped by full-pass checks of another")
	}
	h.put(t, wrong)
	if h.metric(t, "ckd_early_stop_halted") != 1 {
		t.Error("the policy that was stopped is not when it is loaded again")
	}
	if n := h.feedCTG(t, 100); n != 0 {
		t.Errorf("%d inputs of it stop early", n)
	}
}
