package ledger_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// next puts another policy of the model in force: the usual one with some text replaced.
func (b *bench) next(old, text string) {
	b.Helper()
	changed := strings.Replace(policyText, old, text, 1)
	if changed == policyText {
		b.Fatalf("%q is not in the policy", old)
	}
	if err := b.AddPolicy([]byte(changed)); err != nil {
		b.Fatal(err)
	}
	b.policy = outcometest.Policy(b, changed).HashBytes()
}

// told tells what was issued of a day as the outcomes of decide have it, so that nothing is missing.
func (b *bench) told(day int, critical, audits uint64) {
	b.Helper()
	b.issue(day, receipt.CalledCritical, critical, 0, 0)
	b.issue(day, receipt.CalledSafe, 50*audits, audits, 50*float64(audits))
}

// TestEvidenceGoesOn expects policies of a model to share its evidence: neither many of them nor an edit
// makes it begin anew.
func TestEvidenceGoesOn(t *testing.T) {
	t.Run("an edit leaves an alarm", func(t *testing.T) {
		b := openBench(t, ledger.NoSync(ledger.Options{}))
		b.now = day0.Add(2 * oneDay)
		b.decide(0, 40, audited(.02), "a")
		b.mature(0)
		if s := b.state(); s.Verdict != promise.Violated {
			t.Fatalf("%v", s.Verdict)
		}
		b.next("score: entropy, threshold: 0.5", "score: entropy, threshold: 0.500000001")
		b.now = day0.Add(17 * oneDay)
		b.decide(16, 1, audited(.02), "c")
		if s := b.state(); s.Verdict != promise.Violated || !s.Alarm {
			t.Errorf("after an edit of a threshold: %v", s.Verdict)
		}
		b.reopen()
		if s := b.state(); s.Verdict != promise.Violated {
			t.Errorf("after a restart: %v", s.Verdict)
		}
	})
	t.Run("a bad month raises it in parts", func(t *testing.T) {
		b := openBench(t, ledger.NoSync(ledger.Options{}))
		b.now = day0.Add(7 * oneDay)
		for i := range 6 { // no policy alone has enough
			b.next("threshold: 0.5}", fmt.Sprintf("threshold: 0.5%d}", i))
			b.decide(i, 1, audited(.02), "a")
			b.decide(i, 2, free(), "a")
		}
		b.mature(6)
		s := b.state()
		if m := s.Mature.MissRate.Monitor; s.Verdict != promise.Violated || s.Mature.MissRate.Misses != 1 || !(m.Evidence > m.RunLength) {
			t.Errorf("%v by %d misses of the last policy: %+v", s.Verdict, s.Mature.MissRate.Misses, m)
		}
	})
	t.Run("a policy a month holds", func(t *testing.T) {
		b := openBench(t, ledger.NoSync(ledger.Options{}))
		b.now = day0.Add(200 * oneDay)
		last := 0
		for i := range 5 {
			b.next("threshold: 0.5}", fmt.Sprintf("threshold: 0.5%d}", i))
			last = 30 * i
			b.decide(last, 900, free(), "a")
			b.decide(last, 100, audited(.02), "c")
			b.told(last, 900, 100)
		}
		b.mature(last)
		s := b.state()
		if f := s.Mature.MissRate; s.Verdict != promise.Holding || f.High < f.Line || !(f.Model.High < f.Line) || !s.Since.Equal(day0) {
			t.Errorf("%v %q: up to %v by its own, up to %v by all since %v", s.Verdict, s.Why, f.High, f.Model.High, s.Since)
		}
	})
}

// TestLinesOfAModel lets policies lower a line, and only a person raise it.
func TestLinesOfAModel(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(3 * oneDay)
	line := func() float64 { return b.state().Mature.MissRate.Line }
	b.decide(0, 1, audited(.02), "c")
	same(t, line(), .2)
	b.next("high: 0.2}", "high: 0.3}")
	b.decide(1, 1, audited(.02), "c")
	same(t, line(), .2)
	b.next("expected_critical_miss_rate: {value: 0.1, low: 0.05, high: 0.2}", "expected_critical_miss_rate: {value: 0.1, low: 0.05, high: 0.12}")
	b.decide(1, 1, audited(.02), "c")
	same(t, line(), .12)
	b.next("      expected_critical_miss_rate: {value: 0.1, low: 0.05, high: 0.2}\n", "")
	b.decide(1, 1, audited(.02), "c")
	if f := b.state().Mature.MissRate; f.Line != .12 || f.LineOrigin != "expected at most" {
		t.Errorf("of a policy without a line: %v, %q", f.Line, f.LineOrigin)
	}
	rate := promise.Watch{Risk: evidence.MissRate}
	for name, err := range map[string]error{
		"without a name":   b.RaiseLine("", "because", "triage", rate, .15),
		"without a reason": b.RaiseLine("dr. eve", "", "triage", rate, .15),
		"downwards":        b.RaiseLine("dr. eve", "because", "triage", rate, .1),
		"of no class":      b.RaiseLine("dr. eve", "because", "triage", promise.Watch{Risk: evidence.MissRate, Class: "z"}, .5),
	} {
		if err == nil {
			t.Errorf("raised %s", name)
		}
	}
	if err := b.RaiseLine("dr. eve", "another population", "triage", rate, .15); err != nil {
		t.Fatal(err)
	}
	b.reopen()
	if f := b.state().Mature.MissRate; f.Line != .15 || f.LineOrigin != "stated by dr. eve on 2026-03-04" {
		t.Errorf("raised: %v, %q", f.Line, f.LineOrigin)
	}
	events, err := b.Trail()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(events)
	for _, want := range []string{"line_held", "from 0.12 (expected at most) to 0.15", "another population"} {
		if !strings.Contains(text, want) {
			t.Errorf("the trail lacks %q: %s", want, text)
		}
	}
}

// TestAnswers ends an alarm by the policy that answers it, and by no other.
func TestAnswers(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(2 * oneDay)
	b.decide(0, 40, audited(.02), "a")
	b.mature(0)
	up, err := b.Alarms("triage")
	if err != nil || len(up) == 0 {
		t.Fatal(up, err)
	}
	alarm := strings.ReplaceAll(up[0].Figure, "_", " ") + " " + up[0].Raised.Format(time.RFC3339)
	answer := func(name string) {
		b.next("    calibrated:", fmt.Sprintf("    answers: {alarm: %q, by: dr. eve, reason: new threshold for %s}\n    calibrated:", alarm, name))
	}
	b.next("threshold: 0.5}", "threshold: 0.4}")
	b.now = day0.Add(17 * oneDay)
	b.decide(16, 1, audited(.02), "c")
	same(t, b.state().Verdict, promise.Violated)
	answer("all")
	b.decide(16, 1, audited(.02), "c")
	s := b.state()
	if m := s.Mature.MissRate.Monitor; m.Raised || m.Evidence != 0 {
		t.Errorf("the alarm %q that was answered: %+v", alarm, m)
	}
	ended, err := b.Alarms("triage")
	if err != nil || ended[0].Ended.IsZero() || ended[0].By != "dr. eve" || ended[0].Successor == "" {
		t.Errorf("%+v: %v", ended, err)
	}
}

// TestWithdrawn has one source take back nearly all misses that it found, after it was told what the model
// had said.
func TestWithdrawn(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(oneDay / 2)
	b.decide(0, 2000, free(), "a")
	var missed [][]byte
	for i := range 20 {
		missed = append(missed, b.seal(receiptAt(audited(.02), day0.Add(time.Duration(i)*time.Second))))
	}
	for _, sealed := range missed {
		b.report(ledger.Outcome{Receipt: sealed, Truth: "a", Source: "ann", At: day0.Add(time.Hour)})
	}
	b.decide(0, 200, audited(.02), "c")
	b.told(0, 2000, 220)
	b.now = day0.Add(oneDay)
	for _, sealed := range missed {
		got := b.report(ledger.Outcome{Receipt: sealed, Truth: "c", Source: "ann", At: b.now})
		same(t, statuses(got), []string{"apart second_read"})
	}
	b.mature(0)
	s := b.state()
	if f, r := s.Mature.MissRate, s.Mature.Readers; f.Misses != 20 || r.Withdrawn != 20 || r.Unconfirmed != 20 || s.Verdict == promise.Holding {
		t.Errorf("%v with %d misses, %+v", s.Verdict, f.Misses, r)
	}
}

// TestUnconfirmed expects no promise to hold on critical readings that nobody has confirmed.
func TestUnconfirmed(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(oneDay)
	b.decide(0, 4000, free(), "a")
	b.decide(0, 200, audited(.02), "c")
	one := b.seal(audited(.02))
	b.report(ledger.Outcome{Receipt: one, Truth: "a", Source: "ann"})
	b.told(0, 4000, 201)
	b.mature(0)
	if s := b.state(); s.Verdict == promise.Holding || !strings.Contains(fmt.Sprint(s.Why), "1 of 1 inputs called safe and read as critical were not confirmed") {
		t.Errorf("%v: %q", s.Verdict, s.Why)
	}
	b.report(ledger.Outcome{Receipt: one, Truth: "a", Source: "bob"})
	if s := b.state(); s.Verdict != promise.Holding {
		t.Errorf("confirmed: %v, %q", s.Verdict, s.Why)
	}
}

// TestInDoubt expects a promise whose evidence is close to the alarm to be in doubt.
func TestInDoubt(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(2 * oneDay)
	b.decide(0, 4000, free(), "a")
	b.decide(0, 200, audited(.02), "c")
	b.told(0, 4000, 200)
	b.decide(1, 2, audited(.02), "a")
	b.decide(1, 1, audited(.5), "a")
	b.told(1, 0, 3)
	b.mature(1)
	s := b.state()
	if m := s.Mature.MissRate.Monitor; s.Verdict != promise.InDoubt || !(m.LogEvidence > .5 && m.LogEvidence < 1) || len(s.Why) == 0 {
		t.Errorf("%v %q: %+v", s.Verdict, s.Why, m)
	}
}

// TestHoldsAfterAlarm expects the average of a model to begin anew where an alarm was ended, as its evidence
// does: else the bad time that was answered would keep every later policy in doubt.
func TestHoldsAfterAlarm(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(3 * oneDay)
	b.decide(0, 60, free(), "a")
	b.decide(0, 40, audited(.02), "a")
	b.mature(0)
	if s := b.state(); s.Verdict != promise.Violated || !s.Since.Equal(day0) {
		t.Fatalf("%v, the model since %v", s.Verdict, s.Since)
	}
	if err := b.Clear("dr. eve", "the model was repaired", b.policy, version); err != nil {
		t.Fatal(err)
	}
	if s := b.state(); s.Verdict == promise.Holding || s.Mature.MissRate.Model.High < 1 {
		t.Errorf("%v, the model at most %v without an outcome since the alarm", s.Verdict, s.Mature.MissRate.Model.High)
	}
	const again = 20
	b.now = day0.Add((again + 1) * oneDay)
	b.next("threshold: 0.5}", "threshold: 0.4}")
	b.decide(again, 4000, free(), "a")
	b.decide(again, 100, audited(.02), "c")
	b.decide(again, 100, deferred(), "a")
	b.told(again, 4000, 100)
	b.issue(again, receipt.Deferred, 100, 100, 100)
	b.mature(again)
	for range 2 {
		s := b.state()
		if f := s.Mature.MissRate; s.Verdict != promise.Holding || !(f.Model.High < f.Line) || !s.Since.Equal(day0.Add(again*oneDay)) {
			t.Errorf("%v %q, the model at most %v since %v", s.Verdict, s.Why, f.Model.High, s.Since)
		}
		b.reopen()
	}
}

// TestSince estimates when a risk rose after a long good past, and what it has been since.
func TestSince(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(14 * oneDay)
	for day := range 10 {
		b.decide(day, 300, free(), "a")
		b.decide(day, 20, audited(.02), "c")
	}
	for day := 10; day < 13; day++ {
		b.decide(day, 300, free(), "a")
		b.decide(day, 9, audited(.02), "a")
	}
	b.mature(13)
	m := b.state().Mature.MissRate.Monitor
	if m == nil || !m.Raised || m.Since == nil {
		t.Fatalf("%+v", m)
	}
	if got := m.Since.Start; !got.Equal(day0.Add(10 * oneDay)) {
		t.Errorf("since %v, expected day 10", got)
	}
	if got, want := m.Since.Rate.Value, 27*50./(900+27*50); math.Abs(got-want) > .02 {
		t.Errorf("the rate since then is %v, expected %v", got, want)
	}

	const good = 150 // days that pass before anybody looks
	b.now = day0.Add((14 + good) * oneDay)
	for day := 13; day < 13+good; day++ {
		b.decide(day, 300, free(), "a")
	}
	b.mature(13 + good)
	m = b.state().Mature.MissRate.Monitor
	if !m.Raised || !m.Since.Start.Equal(day0.Add(10*oneDay)) {
		t.Errorf("after good days the onset is %v, expected day 10 as before", m.Since.Start)
	}
}

// TestRecall lets daemons remember an alarm that an older copy of the ledger lacks: it is up, also for a
// model that the copy does not know, until a person ends it.
func TestRecall(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(2 * oneDay)
	b.decide(0, 1, audited(.02), "c")
	b.state()
	up := []ledger.Alarm{{Model: "triage", Figure: "critical_miss_rate", Raised: day0.Add(oneDay)}, {Model: "young", Figure: "critical_miss_rate", Raised: day0.Add(oneDay)}}
	if err := b.Recall(up); err != nil {
		t.Fatal(err)
	}
	if s := b.state(); s.Verdict != promise.Violated || !s.Alarm {
		t.Errorf("%v", s.Verdict)
	}
	b.reopen()
	if s := b.state(); s.Verdict != promise.Violated {
		t.Errorf("after a restart: %v", s.Verdict)
	}
	if err := b.Clear("dr. eve", "seen", b.policy, version); err != nil {
		t.Fatal(err)
	}
	if err := b.Recall(up); err != nil {
		t.Fatal(err)
	}
	if s := b.state(); s.Verdict == promise.Violated {
		t.Error("an alarm that a person ended came back")
	}
}

// TestExpected decides the inputs of a policy again by the rule of the next: a stricter threshold defers
// half of the misses.
func TestExpected(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(2 * oneDay)
	scored := func(r receipt.Receipt, entropy float32) receipt.Receipt {
		r.Gate, r.Scores[decomp.Entropy] = uint8(policy.ByPrimary), entropy
		return r
	}
	b.decide(0, 20, scored(audited(.5), .2), "a")
	b.decide(0, 20, scored(audited(.5), .45), "a")
	b.decide(0, 100, scored(audited(.5), .2), "c")
	b.decide(0, 160, scored(free(), .2), "a")
	b.mature(0)
	if s := b.state(); s.Expected != nil {
		t.Errorf("the first policy: %+v", s.Expected)
	}
	b.next("score: entropy, threshold: 0.5", "score: entropy, threshold: 0.3")
	b.now = day0.Add(17 * oneDay)
	b.decide(16, 1, audited(.02), "c")
	e := b.state().Expected
	if e == nil || math.Abs(e.MissRate.Value-40./240) > 1e-9 || math.Abs(e.FNR.Value-40./200) > 1e-9 || !e.From.Equal(day0) || !(e.MissRate.Low < 1./6 && e.MissRate.High > 1./6) {
		t.Fatalf("%+v", e)
	}
	b.reopen()
	same(t, b.state().Expected, e)
}
