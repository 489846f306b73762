package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/drift"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/audit"
	"github.com/ckd-project/ckd/settle/follow"
)

// settlingPolicy is the policy of ctg in the test's with a rule: retain when the
// log of score over threshold is at most retain, defer when it is at least defers,
// after so many passes or more, with little patience.
func settlingPolicy(t testing.TB, from int, retain, defers float64, edit ...string) *policy.Policy {
	t.Helper()
	text := strings.NewReplacer(edit...).Replace(testPolicies)
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	all := set.All()
	p := *all[slices.IndexFunc(all, func(p *policy.Policy) bool { return p.Version == "v1" })]
	rule := settle.Rule{Passes: p.ExpectedPasses, Fewest: p.FewestPasses, Patience: 2}
	for after := rule.Fewest; after < rule.Passes; after++ {
		step := settle.NoStep()
		if after >= from {
			step.Retain.AtMost, step.Defer.AtMost = retain, -defers
			step.Retain.Coefficients[1+settle.Own], step.Defer.Coefficients[1+settle.Own] = 1, -1
		}
		rule.Steps = append(rule.Steps, step)
	}
	p.Settle = &policy.Settle{
		PolicyHash: p.HashWithoutSettle(), Order: policy.AnyOrder, Rule: rule,
		Certificate: policy.SettleCertificate{Disagreement: 0.01, Confidence: 0.9, Released: policy.ReleasedShare{AtMost: 0.05}},
	}
	if set, err = policy.Parse(policy.File{Name: "settle.yaml", Data: p.Marshal()}); err != nil {
		t.Fatal(err)
	}
	if set.All()[0].SettleRule() == nil {
		t.Fatal("the rule is not in force")
	}
	return set.All()[0]
}

// put a policy in force, alone.
func (h *harness) put(t testing.TB, p *policy.Policy) {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "put.yaml", Data: p.Marshal()})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.server.SetPolicies(set); err != nil {
		t.Fatal(err)
	}
}

// auditShare makes the sampler audit the first so many inputs, and a share after them.
func (h *harness) auditShare(first uint64, share float64) {
	(*h.server.catalog.Load())["ctg"].settling.sampler = audit.Sampler{First: first, Share: share, Wary: share, Seed: 1}
}

// expectation is what is expected of an input: after how many passes it is answered.
type expectation struct {
	passes int
	action settle.Action // Open: it is not settled
}

// expect what the rule does to inputs of the recording whose passes come in its order,
// computed pass by pass and input by input.
func expect(t testing.TB, p *policy.Policy, n int) []expectation {
	t.Helper()
	rec := ctg(t)
	plan, err := follow.NewPlan(p)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]expectation, n)
	for i := range all {
		in := plan.NewInputs(1)
		all[i].passes = rec.S
		for s := range rec.S {
			if err := in.Add(0, rowsOfPass(rec, s, i, i+1)); err != nil {
				t.Fatal(err)
			}
			if a := in.Settled(0, p.SettleRule()); a != settle.Open && s+1 < rec.S {
				all[i] = expectation{s + 1, a}
				break
			}
		}
	}
	return all
}

// outcomes of inputs on their first passes, as the engine decides on complete ones.
func outcomeAfter(t testing.TB, m *engine.Model, rec *record.Passes, i, passes int) *engine.Outcome {
	t.Helper()
	var values []float32
	for s := range passes {
		values = append(values, rowsOfPass(rec, s, i, i+1)...)
	}
	b, o := m.NewBatch(), m.NewOutcome()
	if err := b.Reset(decomp.Tensor{Passes: passes, Inputs: 1, Float32: values}); err != nil {
		t.Fatal(err)
	}
	if err := b.Outcome(0, o); err != nil {
		t.Fatal(err)
	}
	return o
}

func (s *stream) resultsByRow(results []*ckdv1.Result, n int) []*ckdv1.Decomposition {
	s.t.Helper()
	rows := make([]*ckdv1.Decomposition, n)
	for _, r := range results {
		if r.GetError() != nil || rows[r.GetRow()] != nil {
			s.t.Fatalf("row %d: %v, or answered twice", r.GetRow(), r.GetError())
		}
		rows[r.GetRow()] = r.GetDecomposition()
	}
	for i, d := range rows {
		if d == nil {
			s.t.Fatalf("row %d has no answer", i)
		}
	}
	return rows
}

// Inputs are answered when the rule says so, with what all their passes until then
// say, whichever way the passes come: all rows with every block, the rows alone that
// are open, several passes in a block.
func TestSettled(t *testing.T) {
	t.Run("many steps", func(t *testing.T) { testSettled(t, settlingPolicy(t, 0, -4, 1.5)) })
	t.Run("a single step", func(t *testing.T) {
		p := settlingPolicy(t, 12, -4, 1.5)
		steps := p.Settle.Rule.Steps[13-p.FewestPasses:]
		for i := range steps {
			steps[i] = settle.NoStep()
		}
		testSettled(t, p)
	})
}

func testSettled(t *testing.T, p *policy.Policy) {
	const n = 300
	want := expect(t, p, n)
	early, rec := 0, ctg(t)
	for _, w := range want {
		if w.action != settle.Open {
			early++
		}
	}
	if early < n/4 || early > n-n/10 {
		t.Fatalf("%d of %d are settled early, so that the test shows little", early, n)
	}
	m, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("input ", i)
	}
	saved := 0
	for _, w := range want {
		saved += rec.S - w.passes
	}
	// Late passes are those that the daemon is sent all the same.
	for _, way := range []struct {
		name    string
		at      int // passes in a block
		leaving bool
		late    int
	}{{"all rows", 1, false, saved}, {"rows that are open", 1, true, 0}, {"blocks of 7", 7, false, saved}, {"all at once", 30, false, 0}} {
		t.Run(way.name, func(t *testing.T) {
			h := newHarness(t, DefaultLimits())
			h.put(t, p)
			h.auditShare(0, 0)
			s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true, Detail: ckdv1.Detail_DETAIL_FULL})
			if !s.info.GetSettles() || !s.info.GetAcknowledges() {
				t.Error("the stream does not say that it settles")
			}
			var results []*ckdv1.Result
			open := make([]uint32, n)
			for i := range open {
				open[i] = uint32(i)
			}
			sent, blocks := 0, uint64(0)
			for from := 0; from < rec.S; from += way.at {
				b := &ckdv1.Block{Group: 3, Passes: uint32(min(way.at, rec.S-from))}
				if from == 0 {
					b.InputIds = ids
				}
				if way.leaving && from > 0 {
					b.Rows = open
				}
				for pass := from; pass < min(from+way.at, rec.S); pass++ {
					for _, i := range open {
						b.Values = append(b.Values, rowsOfPass(rec, pass, int(i), int(i)+1)...)
					}
				}
				sent += len(open) * int(b.GetPasses())
				s.sendBlock(b)
				// The next block knows of the answers to this one.
				reply, expected := s.receive(), 0
				for _, w := range want {
					if w.passes > from && w.passes <= from+way.at || way.name == "all at once" {
						expected++
					}
				}
				blocks++
				if len(reply.GetResults()) != expected || reply.GetBlocks() != blocks {
					t.Fatalf("after %d passes, %d results and %d blocks, expected %d and %d", from+way.at, len(reply.GetResults()),
						reply.GetBlocks(), expected, blocks)
				}
				results = append(results, reply.GetResults()...)
				if way.leaving {
					open = slices.DeleteFunc(open, func(row uint32) bool {
						return slices.ContainsFunc(results, func(r *ckdv1.Result) bool { return r.GetRow() == row })
					})
					if len(open) == 0 {
						break
					}
				}
			}
			results = append(results, s.rest()...)
			rows := s.resultsByRow(results, n)
			for i, d := range rows {
				w := want[i]
				if way.name == "all at once" { // all passes are there: nothing can be saved
					w = expectation{passes: rec.S}
				}
				o := outcomeAfter(t, m, rec, i, w.passes)
				if int(d.GetPasses()) != w.passes || d.GetSettled() != (w.action != settle.Open) {
					t.Fatalf("input %d: settled %v after %d passes, expected %+v", i, d.GetSettled(), d.GetPasses(), w)
				}
				if got := d.GetDecision().GetAction(); got != actionMessage(o.Decision.Action) ||
					w.action != settle.Open && (got == ckdv1.Action_ACTION_DEFER) != (w.action == settle.Defer) {
					t.Fatalf("input %d: action %v, expected %v, %+v", i, got, o.Decision.Action, w)
				}
				// The kernel may sum in another order where inputs are computed together.
				near := func(what string, got, want float64) {
					if diff := got - want; diff > 1e-12 || diff < -1e-12 {
						t.Errorf("input %d: %s is %v, expected %v", i, what, got, want)
					}
				}
				near("value", d.GetDecision().GetValue(), o.Decision.Value)
				near("mi", d.GetMi(), o.MI)
				for k := range o.C {
					near("C", d.GetC()[k], o.C[k])
					near("mean", d.GetMean()[k], o.Mean[k])
				}
			}
			h.eventually(t, 0, "ckd_inputs_open")
			if way.name == "all at once" {
				if got := h.metric(t, "ckd_passes_used"); got != 0 {
					t.Errorf("%v inputs could have been settled", got)
				}
				return
			}
			h.eventually(t, float64(way.late), "ckd_passes_late_total")
			h.eventually(t, float64(saved), "ckd_passes_saved_total")
			h.eventually(t, n, "ckd_passes_used")
			h.eventually(t, 0, "ckd_settle_audited_total")
			if way.leaving && sent != rec.S*n-saved {
				t.Errorf("%d rows were sent, expected %d", sent, rec.S*n-saved)
			}
			h.eventually(t, float64(n), "ckd_decisions_total")
		})
	}
}

// An input that is settled while there is no room for its result is asked for again, and
// answered once there is.
func TestSettledWithoutRoom(t *testing.T) {
	rec := ctg(t)
	const n = 3
	for name, rows := range map[string][]uint32{"all rows": nil, "rows by themselves": {0, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, DefaultLimits())
			p := settlingPolicy(t, 0, settle.Never, 0) // settles everything
			h.put(t, p)
			h.auditShare(0, 0)
			s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
			last := p.FewestPasses + 3 // the rule looks three times without room before
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
					taken = h.server.limits.OpenInputBytes
				}
				h.server.openBytes.Add(taken)
				s.sendBlock(b)
				results = s.receive().GetResults()
				h.server.openBytes.Add(-taken)
			}
			for i, d := range s.resultsByRow(results, n) {
				if !d.GetSettled() || int(d.GetPasses()) != last {
					t.Errorf("row %d: settled %v after %d passes, expected %d", i, d.GetSettled(), d.GetPasses(), last)
				}
			}
			h.eventually(t, float64(n*(rec.S-last)), "ckd_passes_saved_total")
		})
	}
}

// An input that a group ends with, and for which there is no room, fails, whatever was
// said of its neighbours.
func TestFinalWithoutRoom(t *testing.T) {
	rec := ctg(t)
	h := newHarness(t, DefaultLimits())
	p := settlingPolicy(t, 0, settle.Never, 0) // settles everything but identical passes
	h.put(t, p)
	h.auditShare(0, 0)
	s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
	var settled []*ckdv1.Result
	for pass := range p.FewestPasses {
		b := &ckdv1.Block{Values: slices.Concat(rowsOfPass(rec, pass, 0, 1), []float32{0.9, 0.05, 0.05}, rowsOfPass(rec, pass, 1, 2))}
		if pass == 0 {
			b.InputIds = []string{"first", "identical", "last"}
		}
		s.sendBlock(b)
		settled = append(settled, s.receive().GetResults()...)
	}
	if len(settled) != 2 || settled[0].GetRow() != 0 || settled[1].GetRow() != 2 {
		t.Fatalf("settled: %v, expected all but the identical one", settled)
	}
	h.server.openBytes.Add(h.server.limits.OpenInputBytes)
	s.sendBlock(&ckdv1.Block{Final: true})
	reply := s.receive()
	h.server.openBytes.Add(-h.server.limits.OpenInputBytes)
	expectReasons(t, reply, map[string]ckdv1.ErrorReason{"identical": ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET})
}

// What following inputs takes is of the budget too.
func TestBudgetOfFollowing(t *testing.T) {
	const s, n, k = 30, 7, 4
	p := neverSettling(t, s, k, policy.AnyCritical)
	held := func(accepts bool) int64 {
		l := newLoadOf(t, p, &ckdv1.StreamHeader{Model: "m", AcceptSettled: accepts}, s, n, k, s, true)
		l.messages = l.messages[:1] // which opens the group
		l.group(t)
		if l.session.inputs != n {
			t.Fatalf("%d inputs are open", l.session.inputs)
		}
		return l.session.held
	}
	plan, err := follow.NewPlan(p)
	if err != nil {
		t.Fatal(err)
	}
	least := int64(n*plan.Bytes() + plan.SharedBytes())
	if got := held(true) - held(false); got < least || got >= least+n {
		t.Errorf("%d inputs take %d bytes more if they are followed, expected %d, rounded up for each", n, got, least)
	}
}

// Drift is looked for in inputs that have all their passes whatever these say: not in
// those that may be settled, whether they are or not.
func TestDriftOfSettled(t *testing.T) {
	p := settlingPolicy(t, 0, -4, 1.5)
	levels := make(drift.Quantiles, drift.Levels)
	p.Calibration = &policy.Calibration{Reference: &drift.Reference{
		Inputs: 100, Classes: []drift.ClassReference{{Class: 1, Predicted: 0.1, Epistemic: levels, Skewness: levels}},
	}}
	const n = 200
	for name, c := range map[string]struct {
		accepts  bool
		share    float64
		compared float64
	}{"followed": {true, 0, 0}, "audited": {true, 1, n}, "not accepted": {false, 0, n}} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, DefaultLimits())
			h.put(t, p)
			h.auditShare(0, c.share)
			s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: c.accepts})
			rec := ctg(t)
			for pass := range rec.S {
				b := &ckdv1.Block{Values: rowsOfPass(rec, pass, 0, n)}
				if pass == 0 {
					b.InputIds = make([]string, n)
				}
				s.sendBlock(b)
			}
			settled := 0
			for _, d := range s.resultsByRow(s.rest(), n) {
				if d.GetSettled() {
					settled++
				}
			}
			if follows := c.accepts && c.share == 0; follows && (settled == 0 || settled == n) || !follows && settled > 0 {
				t.Fatalf("%d of %d are settled", settled, n)
			}
			h.eventually(t, n, "ckd_decisions_total")
			if got := h.metric(t, "ckd_drift_inputs_total"); got != c.compared {
				t.Errorf("%v inputs are compared, expected %v", got, c.compared)
			}
		})
	}
}

// Nothing is settled for a client that does not accept it, whose header asks for
// another number of passes, or without a rule.
func TestNotSettled(t *testing.T) {
	rec := ctg(t)
	const n = 40
	for name, c := range map[string]struct {
		header *ckdv1.StreamHeader
		policy *policy.Policy
	}{
		"not accepted":   {&ckdv1.StreamHeader{Model: "ctg"}, settlingPolicy(t, 0, 5, 0)},
		"other passes":   {&ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true, Passes: 29}, settlingPolicy(t, 0, 5, 0)},
		"without a rule": {&ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, DefaultLimits())
			if c.policy != nil {
				h.put(t, c.policy)
				h.auditShare(0, 0)
			}
			s := h.open(t, c.header)
			if s.info.GetSettles() {
				t.Error("the stream says that it settles")
			}
			passes := int(s.info.GetExpectedPasses())
			for pass := range passes {
				b := &ckdv1.Block{Values: rowsOfPass(rec, pass, 0, n)}
				if pass == 0 {
					b.InputIds = make([]string, n)
				}
				s.sendBlock(b)
			}
			for i, d := range s.resultsByRow(s.rest(), n) {
				if d.GetSettled() || int(d.GetPasses()) != passes {
					t.Errorf("input %d: settled %v after %d passes", i, d.GetSettled(), d.GetPasses())
				}
			}
			h.eventually(t, 0, "ckd_passes_used")
		})
	}
}

// Audited inputs have all their passes, and what the rule would have said of them is
// held against what these decide.
func TestAudits(t *testing.T) {
	p := settlingPolicy(t, 0, 0, 0.1) // bold: it is wrong now and then
	rec := ctg(t)
	const n = 390 // fewer than are audited in any case
	want := expect(t, p, n)
	m, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]float64{"wrongly_retained": 0, "wrongly_deferred": 0, "other_side": 0}
	forgone := 0
	for i, w := range want {
		forgone += rec.S - w.passes
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
	h := newHarness(t, DefaultLimits())
	h.put(t, p)
	s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
	for pass := range rec.S {
		b := &ckdv1.Block{Values: rowsOfPass(rec, pass, 0, n)}
		if pass == 0 {
			b.InputIds = make([]string, n)
		}
		s.sendBlock(b)
	}
	for i, d := range s.resultsByRow(s.rest(), n) {
		if d.GetSettled() || int(d.GetPasses()) != rec.S {
			t.Fatalf("input %d: settled %v after %d passes, though it is audited", i, d.GetSettled(), d.GetPasses())
		}
	}
	h.eventually(t, n, "ckd_settle_audited_total")
	for verdict, count := range verdicts {
		h.eventually(t, count, "ckd_settle_disagreements_total", "verdict", verdict)
	}
	h.eventually(t, float64(forgone), "ckd_settle_passes_audited_total")
	h.eventually(t, 0, "ckd_passes_saved_total")
	h.eventually(t, 0, "ckd_settle_audits_lost_total")
}

// feedCTG streams inputs of the recording, each once, in groups, and counts those that
// are settled.
func (h *harness) feedCTG(t *testing.T, n int) (settled int) {
	t.Helper()
	rec := ctg(t)
	s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
	const batch = 100
	for from := 0; from < n; from += batch {
		for pass := range rec.S {
			b := &ckdv1.Block{Group: uint64(from), Values: rowsOfPass(rec, pass, from%1000, from%1000+batch)}
			if pass == 0 {
				b.InputIds = make([]string, batch)
			}
			s.sendBlock(b)
		}
	}
	results := s.rest()
	if len(results) != n {
		t.Fatalf("%d results of %d inputs", len(results), n)
	}
	for _, r := range results {
		if r.GetDecomposition().GetSettled() {
			settled++
		}
	}
	return settled
}

// A rule that is wrong is found out, and then nothing is settled until there is another
// policy: one that means the same, or the same after another, does not do.
func TestSettlingStops(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	// Whoever writes the log may be slow: nobody is to wait for a shard of the metrics then.
	h.server.log = h.server.log.WithOptions(zap.Hooks(func(e zapcore.Entry) error {
		if !strings.Contains(e.Message, "settling has stopped") {
			return nil
		}
		gathered := make(chan error, 1)
		go func() {
			_, err := h.registry.Gather()
			gathered <- err
		}()
		select {
		case err := <-gathered:
			return err
		case <-time.After(time.Minute):
			t.Error("a scrape waits for the line in the log")
			return nil
		}
	}))
	wrong := settlingPolicy(t, 0, 9, settle.Never) // retains whatever 4 passes would
	h.put(t, wrong)
	h.auditShare(400, 0)
	h.feedCTG(t, 400)
	h.eventually(t, 1, "ckd_settle_stopped", "model", "ctg")
	if entries := h.logs.FilterMessageSnippet("settling has stopped").All(); len(entries) != 1 {
		t.Errorf("%d lines in the log of the stop", len(entries))
	} else if m := entries[0].ContextMap(); m["model"] != "ctg" || m["policy_hash"] != wrong.Hash {
		t.Errorf("the log says %v", m)
	}
	model := func() *ckdv1.Settle {
		r, err := h.client.GetModel(t.Context(), &ckdv1.GetModelRequest{Model: "ctg"})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetModel().GetSettle()
	}
	if !model().GetStopped() {
		t.Error("GetModel does not tell of the stop")
	}
	if n := h.feedCTG(t, 100); n != 0 {
		t.Errorf("%d settled after the stop", n)
	}
	later := *wrong
	later.Version = "v2"
	h.put(t, &later)
	if n := h.feedCTG(t, 100); n != 0 || h.metric(t, "ckd_settle_stopped") != 1 {
		t.Errorf("%d settled after the same policy was loaded again", n)
	}
	h.put(t, settlingPolicy(t, 0, -3, settle.Never))
	if h.metric(t, "ckd_settle_stopped") != 0 || model().GetStopped() {
		t.Error("another policy is stopped too")
	}
	h.auditShare(0, 0)
	if n := h.feedCTG(t, 100); n == 0 {
		t.Error("another policy settles nothing")
	}
	h.put(t, wrong)
	if n := h.feedCTG(t, 100); n != 0 || h.metric(t, "ckd_settle_stopped") != 1 {
		t.Errorf("%d settled under the policy that was stopped", n)
	}
}

// Inputs under way when a rule is stopped run on, and those that are audited are held
// against what it would have said of them.
func TestAuditsAfterTheStop(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	h.put(t, settlingPolicy(t, 0, 9, settle.Never)) // retains whatever 4 passes would
	h.auditShare(400, 0)
	rec := ctg(t)
	s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
	const n = 100
	s.sendBlock(&ckdv1.Block{InputIds: make([]string, n), Values: rowsOfPass(rec, 0, 0, n)})
	s.receive()
	h.feedCTG(t, 300)
	h.eventually(t, 1, "ckd_settle_stopped", "model", "ctg")
	audited, before := h.metric(t, "ckd_settle_audited_total"), h.metric(t, "ckd_settle_disagreements_total")
	for pass := 1; pass < rec.S; pass++ {
		s.sendBlock(&ckdv1.Block{Values: rowsOfPass(rec, pass, 0, n)})
	}
	if results := s.rest(); len(results) != n {
		t.Errorf("%d results of %d inputs", len(results), n)
	}
	h.eventually(t, audited+n, "ckd_settle_audited_total")
	if h.metric(t, "ckd_settle_disagreements_total") == before {
		t.Error("no audit after the stop disagrees")
	}
}

// Audits of a good rule do not stop it, and a reload of the same policy does not begin
// them anew.
func TestSettlingGoesOn(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	p := settlingPolicy(t, 25, -1, 0.7)
	h.put(t, p)
	if n := h.feedCTG(t, 400); n != 0 {
		t.Errorf("%d of the first 400 settled", n)
	}
	later := *p
	later.Version = "v2"
	h.put(t, &later)
	if n := h.feedCTG(t, 600); n < 100 {
		t.Errorf("%d of the next 600 settled", n)
	}
	if n := h.metric(t, "ckd_settle_audited_total"); n < 400 || n > 450 {
		t.Errorf("%v audited", n)
	}
	h.eventually(t, 0, "ckd_settle_stopped")
	if low, high := h.metric(t, "ckd_settle_disagreement_low", "of", "all"), h.metric(t, "ckd_settle_disagreement_high", "of", "all"); low > 0.01 || high < 0.001 || high > 0.03 {
		t.Errorf("interval %v to %v", low, high)
	}
}

// Identical passes are what a server sends whose dropout is off: they are never settled
// to retain, however sure the rule is.
func TestDegenerateIsNeverSettledToRetain(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	for _, handling := range []string{"defer", "retain", "score"} {
		h.put(t, settlingPolicy(t, 0, settle.Never, 0, "    classes: [normal,", "    degenerate: "+handling+"\n    saturated: "+handling+"\n    classes: [normal,"))
		h.auditShare(0, 0)
		s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
		for pass := range 30 {
			b := &ckdv1.Block{Values: []float32{0.9, 0.05, 0.05, 1, 0, 0, 0, 0, 1}}
			if pass == 0 {
				b.InputIds = make([]string, 3)
			}
			s.sendBlock(b)
		}
		for i, d := range s.resultsByRow(s.rest(), 3) {
			if d.GetSettled() && d.GetDecision().GetAction() == ckdv1.Action_ACTION_RETAIN || !d.GetDegenerate() {
				t.Errorf("%s: input %d is %v", handling, i, d)
			}
		}
	}
}

// An audited input that ends otherwise than with its last pass has no verdict.
func TestLostAudits(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	h.put(t, settlingPolicy(t, 0, -1, 0.7))
	rec := ctg(t)
	begin := func(n int) *stream {
		s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
		for pass := range 6 {
			b := &ckdv1.Block{Values: rowsOfPass(rec, pass, 0, n)}
			if pass == 0 {
				b.InputIds = make([]string, n)
			}
			s.sendBlock(b)
		}
		return s
	}
	s := begin(3)
	s.sendBlock(&ckdv1.Block{Rows: []uint32{1}, Values: []float32{2, 2, 2}}) // fails
	s.rest()                                                                 // finishes the others on 6 passes
	h.eventually(t, 3, "ckd_settle_audits_lost_total")
	begin(4).cancel()
	h.eventually(t, 7, "ckd_settle_audits_lost_total")
	h.eventually(t, 0, "ckd_settle_audited_total")
}

// Until there are 400 verdicts all inputs are audited, however many are open at one time,
// and however many audits are lost: what has not been seen vouches for nothing.
func TestNothingSettlesUnseen(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	h.put(t, settlingPolicy(t, 0, settle.Never, 0)) // settles everything
	rec := ctg(t)
	lost := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
	lost.sendBlock(&ckdv1.Block{InputIds: make([]string, 500), Values: rowsOfPass(rec, 0, 0, 500)})
	lost.receive()
	lost.cancel()
	h.eventually(t, 500, "ckd_settle_audits_lost_total")
	s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
	for pass := range rec.S {
		for group := range 6 { // all are open before the first has its last pass
			b := &ckdv1.Block{Group: uint64(group), Values: rowsOfPass(rec, pass, 100*group, 100*group+100)}
			if pass == 0 {
				b.InputIds = make([]string, 100)
			}
			s.sendBlock(b)
		}
	}
	for _, r := range s.rest() {
		if r.GetDecomposition().GetSettled() {
			t.Fatalf("group %d row %d is settled", r.GetGroup(), r.GetRow())
		}
	}
	h.eventually(t, 600, "ckd_settle_audited_total")
	h.eventually(t, 1, "ckd_settle_stopped")
}

// An input that its client ends early saves nothing, as nothing had settled it.
func TestEndedByTheClient(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	h.put(t, settlingPolicy(t, 20, -1, 0.7))
	h.auditShare(0, 0)
	s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
	s.sendBlock(&ckdv1.Block{InputIds: make([]string, 9), Passes: 5, Values: ctgPasses(t, 5, 9), Final: true})
	s.sendBlock(&ckdv1.Block{Group: 1, InputIds: make([]string, 9), Passes: 6, Values: ctgPasses(t, 6, 9)})
	for _, r := range s.rest() {
		if r.GetDecomposition().GetSettled() {
			t.Errorf("group %d row %d is settled", r.GetGroup(), r.GetRow())
		}
	}
	h.eventually(t, 18, "ckd_decisions_total")
	h.eventually(t, 0, "ckd_passes_saved_total")
}

// ctgPasses are the first passes of the first inputs.
func ctgPasses(t *testing.T, passes, inputs int) []float32 {
	t.Helper()
	rec := ctg(t)
	var values []float32
	for s := range passes {
		values = append(values, rowsOfPass(rec, s, 0, inputs)...)
	}
	return values
}

// A policy whose threshold was changed since does not settle, and the log says so.
func TestRuleForAnotherPolicy(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	p := *settlingPolicy(t, 0, 5, 0)
	p.Primary.Threshold *= 2
	h.put(t, &p)
	if n := len(h.logs.FilterMessageSnippet("the rule is not in force").All()); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
	h.put(t, &p)
	if n := len(h.logs.FilterMessageSnippet("the rule is not in force").All()); n != 1 {
		t.Errorf("%d lines in the log after a reload that changes nothing", n)
	}
	if n := h.feedCTG(t, 100); n != 0 {
		t.Errorf("%d settled", n)
	}
	m, err := h.client.GetModel(t.Context(), &ckdv1.GetModelRequest{Model: "ctg"})
	if err != nil || m.GetModel().GetSettle() != nil {
		t.Errorf("%v, %v", m.GetModel().GetSettle(), err)
	}
}

// What is told of a rule is what the policy has.
func TestSettleMessage(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	p := *settlingPolicy(t, 0, -1, 1)
	p.Settle.MeanPasses = 6.5
	p.Settle.Order = policy.MembersOrder
	p.Settle.Certificate.CriticalReleased = &policy.ReleasedShare{AtMost: 0.1}
	h.put(t, &p)
	m, err := h.client.GetModel(t.Context(), &ckdv1.GetModelRequest{Model: "ctg"})
	if err != nil {
		t.Fatal(err)
	}
	want := &ckdv1.Settle{
		Passes: 30, Fewest: 4, Ordered: true, Disagreement: 0.01, Confidence: 0.9, Released: 0.05, CriticalReleased: proto.Float64(0.1), MeanPasses: 6.5,
	}
	if got := m.GetModel().GetSettle(); !proto.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}
