package ledger_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

const oneDay = 24 * time.Hour

// decide reports the outcomes of n decisions of a day, read some hours later and confirmed by a second
// reader where that is wanted, and returns their receipts.
func (b *bench) decide(day, n int, r receipt.Receipt, truth string) [][]byte {
	b.Helper()
	var sealed [][]byte
	var outcomes []ledger.Outcome
	for i := range n {
		when := day0.Add(time.Duration(day)*oneDay + time.Duration(i)*time.Second)
		sealed = append(sealed, b.seal(receiptAt(r, when)))
		for _, source := range []string{"ann", "bob"} {
			outcomes = append(outcomes, ledger.Outcome{Receipt: sealed[i], Truth: truth, Source: source, At: when.Add(time.Hour)})
		}
	}
	b.report(outcomes...)
	return sealed
}

// issue tells what a daemon decided in an hour of a day.
func (b *bench) issue(day int, s receipt.Stratum, decisions, reviews uint64, inverse float64) {
	b.Helper()
	i := ledger.Issued{Process: "daemon 1", Policy: b.policy, Version: version, Stratum: s,
		Start: day0.Add(time.Duration(day)*oneDay + 3*time.Hour), Decisions: decisions, Eligible: decisions, Receipts: decisions,
		Reviews: reviews, Propensity: float64(decisions) * .02, InversePropensity: inverse,
		Audit: &policy.Audit{Rate: .02, M: .5, PredictedCritical: policy.CriticalFree, Due: policy.DefaultDue}}
	if err := b.Issued([]ledger.Issued{i}, b.sealed()); err != nil {
		b.Fatal(err)
	}
}

// sealed tells that all receipts so far are counted.
func (b *bench) sealed() ledger.Sealed {
	return ledger.Sealed{Sealer: b.sealer.ID(), Count: b.sealer.Sealed()}
}

// mature lets the time come when the outcomes of a day are all due.
func (b *bench) mature(day int) { b.now = day0.Add(time.Duration(day+15) * oneDay) }

func TestAlarm(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(2 * oneDay)
	missed := b.decide(0, 40, audited(.02), "a")
	b.decide(0, 60, free(), "a")
	if s := b.state(); s.Verdict != promise.TooFew || s.Mature.Decided != 0 || s.Provisional.Decided != 100 {
		t.Errorf("before the cohort is mature: %v with %d and %d decisions", s.Verdict, s.Mature.Decided, s.Provisional.Decided)
	}
	b.mature(0)
	raised := b.state()
	if raised.Verdict != promise.Violated || !raised.Alarm || !raised.Mature.MissRate.Monitor.Raised {
		t.Fatalf("%v, %+v", raised.Verdict, raised.Mature.MissRate.Monitor)
	}
	if got := raised.Mature.MissRate.Monitor.RaisedBy; !got.Equal(day0) {
		t.Errorf("raised by the cohort of %v", got)
	}
	if len(raised.History) != 1 || !(raised.History[0].Rate.Value > .9) || raised.History[0].Rate.LogEvidence < 1 {
		t.Errorf("history: %+v", raised.History)
	}

	t.Run("a restart leaves it", func(t *testing.T) {
		b.reopen()
		same(t, b.state(), raised)
	})
	t.Run("a policy that is told again leaves it", func(t *testing.T) {
		if err := b.AddPolicy([]byte(strings.Replace(policyText, "rate: 0.02", "rate: 0.03", 1))); err != nil {
			t.Fatal(err)
		}
		if s := b.state(); s.Verdict != promise.Violated {
			t.Errorf("%v after another rate of audits was told", s.Verdict)
		}
	})
	t.Run("corrections leave it", func(t *testing.T) {
		for _, sealed := range missed {
			for _, source := range []string{"cem", "dan", "eve"} {
				b.report(ledger.Outcome{Receipt: sealed, Truth: "c", Source: source, At: b.now})
			}
		}
		s := b.state()
		m := s.Mature.MissRate.Monitor
		if s.Verdict != promise.Violated || m.Evidence != raised.Mature.MissRate.Monitor.Evidence {
			t.Errorf("%v, %+v", s.Verdict, m)
		}
		if !m.Changed || !(m.Replayed < 1000) {
			t.Errorf("the replay does not show the corrections: %+v", m)
		}
		if s.Mature.MissRate.Value != 0 || s.Mature.MissRate.High > .95 {
			t.Errorf("estimate %v up to %v, want 0", s.Mature.MissRate.Value, s.Mature.MissRate.High)
		}
	})
	t.Run("nobody without a name and a reason clears it", func(t *testing.T) {
		if b.Clear("", "no reason", b.policy, version) == nil || b.Clear("eve", "", b.policy, version) == nil {
			t.Error("cleared")
		}
	})
	t.Run("a person clears it", func(t *testing.T) {
		if err := b.Clear("dr. eve", "labels were wrong", b.policy, version); err != nil {
			t.Fatal(err)
		}
		s := b.state()
		if s.Verdict == promise.Violated || s.Alarm || s.Mature.MissRate.Monitor.Evidence != 0 || s.Mature.MissRate.Line != .2 {
			t.Errorf("%v, line %v, %+v", s.Verdict, s.Mature.MissRate.Line, s.Mature.MissRate.Monitor)
		}
		if got := s.Mature.MissRate.Monitor.Cleared; !got.Equal(b.now) {
			t.Errorf("cleared at %v, expected %v", got, b.now)
		}
		if err := b.Clear("dr. eve", "again", b.policy, version); !errors.Is(err, ledger.ErrNoAlarm) {
			t.Errorf("cleared twice: %v", err)
		}
		b.reopen()
		same(t, b.state().Mature.MissRate, s.Mature.MissRate)
	})
	t.Run("new evidence raises it again", func(t *testing.T) {
		b.decide(10, 60, audited(.02), "a")
		b.mature(10)
		if s := b.state(); s.Verdict != promise.Violated {
			t.Errorf("%v: %+v", s.Verdict, s.Mature.MissRate.Monitor)
		}
	})
	t.Run("the trail says who did what", func(t *testing.T) {
		events, err := b.Trail()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events {
			if e.Figure == "critical miss rate" || e.Figure == "" {
				got = append(got, strings.TrimSpace(fmt.Sprint(e.Kind, " ", e.By)))
			}
		}
		same(t, got, []string{"policy_added", "policy_in_force", "alarm_raised", "policy_changed", "alarm_cleared dr. eve", "alarm_raised"})
	})
}

func TestHolding(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(2 * oneDay)
	b.decide(0, 4000, free(), "a")
	b.decide(0, 200, audited(.02), "c")
	b.decide(0, 300, deferred(), "a")
	b.mature(0)
	if s := b.state(); s.Verdict != promise.TooFew || !strings.Contains(fmt.Sprint(s.Why), "no daemon has told") {
		t.Errorf("nobody told what was issued: %v, %q", s.Verdict, s.Why)
	}
	b.issue(0, receipt.CalledCritical, 4000, 0, 0)
	b.issue(0, receipt.CalledSafe, 10_000, 200, 200/.02)
	b.issue(0, receipt.Deferred, 300, 300, 300)
	held := b.state()
	if held.Verdict != promise.Holding || len(held.Why) != 0 {
		t.Fatalf("%v: %q; miss rate %+v", held.Verdict, held.Why, held.Mature.MissRate)
	}
	if s := held.Strata[2]; s.Due != 200 || s.Arrived != 200 || s.Overdue != 0 || s.Expected != 200 || s.Late.Value != 0 {
		t.Errorf("called safe: %+v", s)
	}
	if tr := held.Traffic; tr.Value != 1 || tr.Total != 14_300 {
		t.Errorf("traffic: %+v", tr)
	}

	t.Run("told again", func(t *testing.T) {
		b.issue(0, receipt.CalledSafe, 10_000, 200, 200/.02)
		same(t, b.state(), held)
	})
	t.Run("readers find half", func(t *testing.T) {
		tell := func(text string) {
			if err := b.AddPolicy([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		tell(strings.Replace(policyText, "rate: 0.02,", "rate: 0.02, reader_sensitivity: 0.5,", 1))
		defer tell(policyText)
		f := b.state().Mature.MissRate
		if want := f.High / (f.High + (1-f.High)*.5); math.Abs(f.AtSensitivity.High-want) > 1e-12 || f.High != held.Mature.MissRate.High {
			t.Errorf("upper limit %v, at a sensitivity of a half %v, want %v", f.High, f.AtSensitivity.High, want)
		}
	})
	t.Run("too many overdue", func(t *testing.T) {
		b.issue(0, receipt.CalledSafe, 10_001, 212, 212/.02)
		s := b.state()
		if s.Verdict != promise.TooFew || !strings.Contains(fmt.Sprint(s.Why), "12 of 212 outcomes of inputs called safe are overdue") {
			t.Errorf("%v: %q", s.Verdict, s.Why)
		}
		// 12 overdue audits stand for 600 inputs: all missed, or none.
		if o := s.Mature.MissRate.Overdue; o.Low != 0 || !(o.High > 600./(600+4000) && o.High < .25) {
			t.Errorf("band of the overdue: %+v", o)
		}
	})
	t.Run("free where too few arrive", func(t *testing.T) {
		b.issue(0, receipt.CalledCritical, 4300, 0, 0)
		s := b.state()
		if k := s.Strata[1]; !k.Free || k.FreeMet || k.Overdue != 300 {
			t.Errorf("%+v", k)
		}
		if !strings.Contains(fmt.Sprint(s.Why), "predicted-critical: audited") {
			t.Errorf("%q", s.Why)
		}
	})
}

// TestSecondReads counts what readers say of each other.
func TestSecondReads(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(2 * oneDay)
	read := func(r []byte, truth, source string) {
		b.report(ledger.Outcome{Receipt: r, Truth: truth, Source: source, At: day0.Add(time.Hour)})
	}
	for range 50 {
		read(b.seal(free()), "a", "ann")
	}
	disputed, unconfirmed, confirmed := b.seal(audited(.1)), b.seal(audited(.1)), b.seal(audited(.1))
	for _, r := range [][]byte{disputed, unconfirmed, confirmed} {
		read(r, "a", "ann")
	}
	read(disputed, "c", "bob")
	read(confirmed, "b", "bob")
	b.mature(0)
	s := b.state()
	f, r := s.Mature.MissRate, s.Mature.Readers
	// Two misses of weight 10 beside 50 hits of weight 1, with the bias of the ratio 20/70 removed.
	if f.Disputed != 1 || f.Misses != 2 || math.Abs(f.Value-(20+200./70)/(70+250./70)) > 1e-6 {
		t.Errorf("%+v", f)
	}
	if r.Disputed < 1 || r.Unconfirmed < 1 || r.SecondArrived < 2 {
		t.Errorf("%+v", r)
	}
	read(disputed, "d", "cem")
	same(t, b.state().Mature.MissRate.Disputed, uint64(0))
	// The same critical class is named once by each: what class it is, a third says; that it is a miss
	// is settled.
	if c := b.state().Mature.Classes; c[0].Disputed != 1 || c[1].Disputed != 1 {
		t.Errorf("classes: %+v", c)
	}
}

// TestUnknown expects figures that nothing was seen of to be absent.
func TestUnknown(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.issue(0, receipt.Deferred, 10, 0, 0)
	s := b.state()
	for name, v := range map[string]float64{
		"miss rate": s.Mature.MissRate.Value, "low": s.Mature.MissRate.Low, "high": s.Mature.MissRate.High, "unweighted": s.Mature.MissRate.Unweighted,
		"lately": s.Mature.MissRate.Lately.Value, "overdue": s.Mature.MissRate.Overdue.High, "worth": s.Mature.Yield.Worth.Value,
		"agreement": s.Mature.Readers.Agreement.Value, "median lag": s.Mature.Lag.Median.Value, "late": s.Strata[0].Late.Value,
		"expected misses": s.Mature.Calibration[0].Expected, "observed misses": s.Mature.Calibration[0].Observed.Value,
		"needed": s.Mature.MissRate.Needed,
	} {
		if !math.IsNaN(v) {
			t.Errorf("%s: %v, want NaN", name, v)
		}
	}
	if s.Verdict != promise.TooFew {
		t.Errorf("%v", s.Verdict)
	}
}

func TestTables(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(2 * oneDay)
	b.decide(0, 3, deferred(), "a") // called safe, critical: worth it
	b.decide(0, 1, deferred(), "d") // wrong: worth it
	b.decide(0, 6, deferred(), "c") // right
	r := audited(.25)
	r.Risk, r.Slices[0] = .04, policy.SliceHash("site", "north")
	b.decide(0, 9, r, "c")
	b.decide(0, 1, r, "b")
	b.mature(0)
	s := b.state().Mature
	if y := s.Yield; y.Worth.Value != .4 || y.Critical.Value != .3 || len(y.Reasons) != 1 || y.Reasons[0].Reason != policy.AboveThreshold {
		t.Errorf("yield: %+v", y)
	}
	for _, c := range s.Confusion {
		if c.Predicted == 2 && c.True == 2 && (c.Count != 15 || c.Weight != 6+9*4) {
			t.Errorf("%+v", c)
		}
	}
	for _, bin := range s.Calibration {
		if bin.From == .02 && (math.Abs(bin.Expected-.04) > 1e-6 || bin.Observed.Value != .1 || bin.Observed.Total != 10) {
			t.Errorf("%+v", bin)
		}
	}
	if l := s.Lag; l.Count != 20 || math.Abs(l.Median.Value/3600-1) > .05 {
		t.Errorf("lag: %+v", l)
	}
}

func TestDeleteBefore(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(8 * oneDay)
	for day := range 8 {
		b.decide(day, 20, free(), "a")
		b.decide(day, 5, audited(.1), "b")
	}
	old := b.seal(audited(.1))
	b.report(ledger.Outcome{Receipt: old, Truth: "c", Source: "ann"})
	b.mature(3)
	before := b.state()
	n, err := b.Delete("dpo", "retention", ledger.Choice{Before: day0.Add(2*oneDay + time.Hour)})
	if err != nil || n.Decisions != 51 {
		t.Fatalf("%+v deleted, want the 51 of two whole days: %v", n, err)
	}
	before.AsOf = b.state().AsOf
	same(t, b.state(), before)
	b.reopen()
	same(t, b.state(), before)
	same(t, statuses(b.report(ledger.Outcome{Receipt: old, Truth: "a", Source: "ann"})), []string{"invalid"})
	left := 0
	if err := b.Walk(func(*truth.Decision) error { left++; return nil }); err != nil || left != 150 {
		t.Errorf("%d left, want 150: %v", left, err)
	}
	t.Run("a correction after that", func(t *testing.T) { // replays from where the deleted ones end
		fixed := b.seal(receiptAt(audited(.1), day0.Add(3*oneDay+time.Hour)))
		b.report(ledger.Outcome{Receipt: fixed, Truth: "c", Source: "ann"})
		s := b.state()
		if s.Mature.MissRate.Critical != before.Mature.MissRate.Critical || s.Mature.Decided != before.Mature.Decided+1 {
			t.Errorf("%+v", s.Mature.MissRate)
		}
		same(t, []float64{s.Mature.MissRate.Low, s.Mature.MissRate.High}, []float64{before.Mature.MissRate.Low, before.Mature.MissRate.High})
	})
	t.Run("what is not mature stays", func(t *testing.T) {
		n, err := b.Delete("dpo", "retention", ledger.Choice{Before: day0.Add(100 * oneDay)})
		if err != nil || n.Decisions != 51 {
			t.Errorf("%+v deleted, want the 51 of days 2 and 3: %v", n, err)
		}
	})
}

// TestDeletedIsGone looks for the sources of deleted outcomes in the files.
func TestDeletedIsGone(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(3 * oneDay)
	var batch []ledger.Outcome
	for i := range 3000 {
		when := day0.Add(time.Duration(i%2)*oneDay + time.Hour)
		batch = append(batch, ledger.Outcome{Receipt: b.seal(receiptAt(free(), when)), Truth: "a", Source: fmt.Sprintf("source-of-day-%d", i%2), At: when.Add(time.Hour)})
		if len(batch) == 250 {
			b.report(batch...)
			b.state()
			batch = nil
		}
	}
	b.mature(1)
	b.state()
	if _, err := b.Delete("dpo", "retention", ledger.Choice{Before: day0.Add(oneDay)}); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		kept := 0
		for _, name := range []string{"ledger.db"} {
			data, err := os.ReadFile(filepath.Join(b.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(data, []byte("source-of-day-0")); n > 0 {
				t.Errorf("%s: %s has %d deleted outcomes", when, name, n)
			}
			kept += bytes.Count(data, []byte("source-of-day-1"))
		}
		if kept < 1500 {
			t.Errorf("%s: %d of the other 1,500 are there", when, kept)
		}
	}
	check("at once")
	b.reopen()
	check("after a restart")
	if s := b.state(); s.Mature.Decided != 3000 {
		t.Errorf("%d decided", s.Mature.Decided)
	}
}

func TestExport(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(2 * oneDay)
	b.decide(0, 1500, audited(.1), "c")
	b.decide(0, 1, deferred(), "a")
	var out bytes.Buffer
	if err := b.Export(&out, ledger.CSV, ledger.Filter{}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != 1502 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	out.Reset()
	if err := b.Export(&out, ledger.JSONLines, ledger.Filter{}); err != nil {
		t.Fatal(err)
	}
	var line ledger.Line
	for lines := json.NewDecoder(&out); line.Stratum != "deferred"; {
		if err := lines.Decode(&line); err != nil {
			t.Fatal(err)
		}
	}
	if line.Truth == nil || *line.Truth != "a" || line.Predicted != "c" || line.Risk != nil || len(line.Readings) != 2 ||
		line.Readings[1].Source != "bob" || line.Readings[0].By != "clinic" {
		t.Errorf("%+v", line)
	}
}

// TestOpenReadsNothing counts records read: opening replays none, and a state that was computed before
// is read as it was stored.
func TestOpenReadsNothing(t *testing.T) {
	const n = 5_000
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(40 * oneDay)
	for _, o := range b.simulate(n) {
		b.report(o)
	}
	want := b.state()
	b.reopen()
	if got := b.Reads(); got != 0 {
		t.Errorf("opening read %d records, want none", got)
	}
	same(t, b.state(), want)
	if got := b.Reads(); got != 0 {
		t.Errorf("the state read %d records, want none: all cohorts are mature", got)
	}
}

// TestShortCohorts lets outcomes be due within seconds.
func TestShortCohorts(t *testing.T) {
	b := openBench(t, ledger.Options{})
	text := strings.Replace(strings.Replace(policyText, "name: triage", "name: quick", 1), "rate: 0.02,", "rate: 0.02, due: 2s,", 1)
	if err := b.AddPolicy([]byte(text)); err != nil {
		t.Fatal(err)
	}
	quick := outcometest.Policy(t, text).HashBytes()
	b.now = day0.Add(time.Second)
	r := free()
	r.Policy = quick
	b.report(ledger.Outcome{Receipt: b.seal(r), Truth: "a", Source: "ann"})
	s, err := b.State(quick, version)
	if err != nil || s.Cohorts.Period != 2*time.Second || s.Cohorts.Open != 1 || !s.Cohorts.NextMature.Equal(day0.Add(4*time.Second)) {
		t.Fatalf("%+v: %v", s.Cohorts, err)
	}
	b.now = day0.Add(4 * time.Second)
	if s, err = b.State(quick, version); err != nil || s.Mature.Decided != 1 {
		t.Errorf("%d mature: %v", s.Mature.Decided, err)
	}
}

// FuzzReceipt changes receipts: none of those is counted, and none stops the others.
func FuzzReceipt(f *testing.F) {
	b := openBench(f, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(oneDay)
	sealed := b.seal(deferred())
	f.Add([]byte{}, 0, byte(1))
	f.Add(sealed, 3, byte(0x80))
	f.Add(sealed, 60, byte(1))
	f.Add(sealed[:40], 0, byte(0))
	f.Fuzz(func(t *testing.T, made []byte, place int, with byte) {
		b := *b
		b.TB = t
		if _, _, err := b.keys.Open(made); err == nil {
			return // the seed itself, or what another process of the fuzzer sealed
		}
		changed := bytes.Clone(sealed)
		changed[uint(place)%uint(len(changed))] ^= with | 1
		answers := b.report(ledger.Outcome{Receipt: made, Truth: "a", Source: "eve"},
			ledger.Outcome{Receipt: changed, Truth: "a", Source: "eve"},
			ledger.Outcome{Receipt: sealed, Truth: "a", Source: "ann"})
		if answers[0].Stored() {
			t.Errorf("%+v", answers[0])
		}
		if answers[1].Stored() || !answers[2].Stored() {
			t.Errorf("%+v", answers[1:])
		}
		if s := b.state(); s.Provisional.Decided != 1 {
			t.Errorf("%d decided, want 1", s.Provisional.Decided)
		}
	})
}

// TestLately expects the interval for one look to have the width that 53 misses of weight 5 give it:
// sqrt(sum of w^2 (m-p)^2) / sum of w is 0.0085, of which it is 1.96 or so on either side.
func TestLately(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(2 * oneDay)
	b.decide(0, 3750, free(), "a")
	b.decide(0, 53, audited(.2), "a")
	b.mature(0)
	s := b.state().Mature.MissRate.Lately
	if math.Abs(s.Value-265./4015) > 1e-6 || math.Abs(s.Low-(s.Value-.0162)) > .002 || math.Abs(s.High-(s.Value+.0187)) > .002 {
		t.Errorf("%+v", s)
	}
}

// TestMaturedOverdue has outcomes of a day of which no daemon told make up for none of another day.
func TestMaturedOverdue(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(3 * oneDay)
	b.decide(0, 100, deferred(), "a")
	b.issue(1, receipt.Deferred, 50, 50, 50)
	b.mature(1)
	m, err := b.Matured(b.policy, version, time.Time{}, func(*truth.Decision, *truth.Finding) {})
	if err != nil {
		t.Fatal(err)
	}
	if got, weight := m.Overdue[receipt.Deferred], m.OverdueWeight[receipt.Deferred]; got != 50 || weight != 50 {
		t.Errorf("%d overdue of weight %v, expected 50 of 50", got, weight)
	}
}

// TestRecentKnowsStates expects what was computed for somebody else, though it may not be computed again
// for a while.
func TestRecentKnowsStates(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(40 * oneDay)
	b.report(b.simulate(20_000)...)
	if _, err := b.Recent(); err != nil {
		t.Fatal(err)
	}
	b.decide(30, 1, deferred(), "a")
	all, err := b.States()
	if err != nil {
		t.Fatal(err)
	}
	recent, err := b.Recent()
	if err != nil || recent[0] != all[0] {
		t.Errorf("%d decided, expected the state with %d: %v", recent[0].Provisional.Decided, all[0].Provisional.Decided, err)
	}
}

// TestUntold has a daemon die before it could tell what it issued last.
func TestUntold(t *testing.T) {
	setup := func(t *testing.T) *bench {
		b := openBench(t, ledger.NoSync(ledger.Options{}))
		b.now = day0.Add(3 * oneDay)
		b.decide(0, 4000, free(), "a")
		b.decide(0, 196, audited(.02), "c")
		b.issue(0, receipt.CalledCritical, 4000, 0, 0)
		b.issue(0, receipt.CalledSafe, 10_000, 200, 200/.02)
		return b
	}
	t.Run("its outcomes hide none that are overdue", func(t *testing.T) {
		b := setup(t)
		b.decide(0, 9, audited(.02), "c")
		b.mature(0)
		s := b.state()
		if k := s.Strata[2]; k.Due != 209 || k.Arrived != 205 || k.Overdue != 4 || k.Untold != 9 || s.Verdict != promise.Holding {
			t.Errorf("%v: %+v", s.Verdict, k)
		}
		if o := s.Mature.MissRate.Overdue; !(o.High > 4./(4+80) && o.High < .15) { // 4 overdue of weight 50 beside 4000
			t.Errorf("band of the overdue: %+v", o)
		}
		m, err := b.Matured(b.policy, version, time.Time{}, func(*truth.Decision, *truth.Finding) {})
		if err != nil || m.Overdue[receipt.CalledSafe] != 4 {
			t.Errorf("%d overdue for a calibration: %v", m.Overdue[receipt.CalledSafe], err)
		}
	})
	t.Run("gaps in their numbers weigh", func(t *testing.T) {
		b := setup(t)
		b.decide(0, 1, audited(.02), "c")
		for range 20 {
			b.seal(audited(.02)) // never comes
		}
		b.decide(0, 1, audited(.02), "c")
		b.mature(0)
		s := b.state()
		if k := s.Strata[2]; s.Verdict != promise.TooFew || k.Untold != 2 || k.Late.Known() ||
			!strings.Contains(fmt.Sprint(s.Why), "at least 20 more receipts") {
			t.Errorf("%v: %q, %+v", s.Verdict, s.Why, k)
		}
	})
	t.Run("it tells after all", func(t *testing.T) {
		b := setup(t)
		b.decide(0, 100, audited(.02), "c")
		b.mature(0)
		if s := b.state(); s.Verdict != promise.TooFew || s.Strata[2].Untold != 100 {
			t.Errorf("%v, %+v", s.Verdict, s.Strata[2])
		}
		b.reopen()
		b.issue(0, receipt.CalledSafe, 15_000, 300, 300/.02)
		if s := b.state(); s.Verdict != promise.Holding || s.Strata[2].Untold != 0 || s.Strata[2].Overdue != 4 {
			t.Errorf("%v, %+v", s.Verdict, s.Strata[2])
		}
	})
	t.Run("later cohorts make up for it", func(t *testing.T) {
		b := openBench(t, ledger.NoSync(ledger.Options{}))
		b.now = day0.Add(40 * oneDay)
		lost := receipt.NewSealer(b.keys) // of a daemon that never told
		known := b.sealer
		b.sealer = lost
		b.decide(0, 5, audited(.02), "c")
		b.sealer = known
		for day := 1; day < 30; day++ {
			b.decide(day, 300, free(), "a")
			b.decide(day, 10, audited(.02), "c")
			b.issue(day, receipt.CalledCritical, 300, 0, 0)
			b.issue(day, receipt.CalledSafe, 500, 10, 10/.02)
			if day == 1 {
				b.mature(1)
				if s := b.state(); s.Verdict == promise.Holding || !strings.Contains(fmt.Sprint(s.Why), "5 of 15 outcomes due of inputs called safe") {
					t.Errorf("while it weighs: %v, %q", s.Verdict, s.Why)
				}
			}
			b.now = day0.Add(40 * oneDay)
		}
		b.mature(29)
		if s := b.state(); s.Verdict != promise.Holding || s.Strata[2].Untold != 5 {
			t.Errorf("%v: %q", s.Verdict, s.Why)
		}
	})
	t.Run("it tells after its outcomes were deleted", func(t *testing.T) {
		b := setup(t)
		b.decide(0, 9, audited(.02), "c")
		b.mature(0)
		before := b.state()
		if _, err := b.Delete("dpo", "retention", ledger.Choice{Before: day0.Add(oneDay)}); err != nil {
			t.Fatal(err)
		}
		if err := b.Issued(nil, b.sealed()); err != nil {
			t.Fatal(err)
		}
		same(t, b.state().Mature.Decided, before.Mature.Decided)
	})
}
