package integration_test

import (
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/recordings"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// auditedPolicy retains two thirds of the inputs, and has a half of them reviewed. Outcomes are due at
// once.
const auditedPolicy = `
models:
  - name: fetal-health
    version: audited
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 5}
    primary: {score: c_crit_max, threshold: 0.052}
    fallback: {score: cbec, threshold: 0.023}
    audit: {rate: 0.5, m: 1, due: 1s, on_breach: defer, surge: 700}
    calibrated:
      lines: {critical_miss_rate: 0.45, by: a test, on: 2026-11-03}
`

const receiptKey = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// ledgered is a policy, keys of receipts and the folder of a ledger.
type ledgered struct {
	policy, keys, ledger string
	opens                *receipt.Keys
	clients              map[*daemon]*client.Client
}

func newLedgered(t *testing.T) *ledgered {
	t.Helper()
	dir := t.TempDir()
	f := &ledgered{
		policy: filepath.Join(dir, "policy.yaml"), keys: filepath.Join(dir, "keys"), ledger: testbed.Ledger(t, ckd),
		clients: map[*daemon]*client.Client{},
	}
	for path, text := range map[string]string{f.policy: auditedPolicy, f.keys: receiptKey + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if f.opens, err = receipt.ParseKeys(f.keys, []byte(receiptKey)); err != nil {
		t.Fatal(err)
	}
	return f
}

// outcomesComeInTime gives outcomes time to come before they are due: evidence takes no others. It makes the
// alarm easy to raise.
func (f *ledgered) outcomesComeInTime(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(f.policy, []byte(strings.Replace(auditedPolicy, "due: 1s", "due: 8s, run_length: 1000", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// casesFile writes what a site keeps of its cases: an id, the receipt, and the class that was found.
func casesFile(t *testing.T, cases []decided) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cases.csv")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := csv.NewWriter(file)
	_ = w.Write([]string{"accession", "receipt", "label"})
	for _, c := range cases {
		_ = w.Write([]string{c.ID, base64.StdEncoding.EncodeToString(c.Receipt()), c.truth})
	}
	if w.Flush(); w.Error() != nil || file.Close() != nil {
		t.Fatal(w.Error())
	}
	return path
}

// serve starts a daemon of the fleet.
func (f *ledgered) serve(t *testing.T, listen string, args ...string) *daemon {
	t.Helper()
	return serveOn(t, listen, append([]string{"--policy", f.policy, "--receipt-keys", f.keys}, args...)...)
}

// decided is one decision with its truth.
type decided struct {
	client.Result
	truth  string
	opened receipt.Receipt
}

// stream sends the first inputs of the recording through a daemon, and returns what was decided.
func (f *ledgered) stream(t *testing.T, d *daemon, prefix string, inputs int) []decided {
	t.Helper()
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	c := f.dial(t, d)
	session, err := c.Session(inTime(t), client.SessionConfig{Model: "fetal-health", Passes: r.Passes.S, Receipts: client.ReceiptsAll})
	if err != nil {
		t.Fatal(err)
	}
	var all []decided
	const batch = 250
	for from := 0; from < inputs; from += batch {
		end := min(from+batch, inputs)
		ids := make([]string, end-from)
		for i := range ids {
			ids[i] = fmt.Sprintf("%s%d", prefix, from+i)
		}
		group, err := session.Open(inTime(t), ids)
		if err != nil {
			t.Fatal(err)
		}
		for s := range r.Passes.S {
			if err := group.Send(r.Passes.Float32[(s*r.Passes.N+from)*r.Passes.K : (s*r.Passes.N+end)*r.Passes.K]); err != nil {
				t.Fatal(err)
			}
		}
		results, err := group.Wait(inTime(t))
		if err != nil {
			t.Fatal(err)
		}
		for i, result := range results {
			opened, _, err := f.opens.Open(result.Receipt())
			if err != nil || result.Err != nil {
				t.Fatalf("input %s: %v, %v", result.ID, result.Err, err)
			}
			all = append(all, decided{result, []string{"normal", "suspect", "pathologic"}[r.Labels[from+i]], opened})
		}
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// dial returns the one client of a daemon. A client for each question of a long wait would use up the connections that a
// daemon takes from one address.
func (f *ledgered) dial(t *testing.T, d *daemon) *client.Client {
	t.Helper()
	if c := f.clients[d]; c != nil {
		return c
	}
	c, err := client.Dial(d.GRPC[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	f.clients[d] = c
	return c
}

// outcomesOf returns the outcomes of what a person was asked to look at.
func outcomesOf(all []decided) (reviewed []decided, outcomes []*ckdv1.Outcome) {
	for _, d := range all {
		if d.Review() {
			reviewed = append(reviewed, d)
			outcomes = append(outcomes, &ckdv1.Outcome{Receipt: d.Receipt(), Truth: d.truth, Source: "room"})
		}
	}
	return reviewed, outcomes
}

// decisions returns how many decisions the ledger knows of.
func (f *ledgered) decisions(t *testing.T, d *daemon) (n uint64) {
	t.Helper()
	list, err := f.dial(t, d).Outcomes().ListPromises(inTime(t), &ckdv1.ListPromisesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.GetPromises() {
		for _, s := range p.GetStrata() {
			n += s.GetDecisions()
		}
	}
	return n
}

// figures returns what the ledger says about the one promise, with the critical miss rate of all its cohorts.
func (f *ledgered) figures(t *testing.T, d *daemon) (*ckdv1.PromiseFigures, *ckdv1.RiskFigure) {
	t.Helper()
	list, err := f.dial(t, d).Outcomes().ListPromises(inTime(t), &ckdv1.ListPromisesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.GetPromises()) != 1 {
		t.Fatalf("%d promises, want 1: %v", len(list.GetPromises()), list)
	}
	p := list.GetPromises()[0]
	return p, p.GetMature().GetFigures()[0]
}

// expectMissRate waits until all reviewed inputs are tallied in mature cohorts, and checks the weighted
// estimate.
func (f *ledgered) expectMissRate(t *testing.T, d *daemon, reviewed []decided) {
	t.Helper()
	var misses, critical, missesSquared, criticalSquared float64
	for _, result := range reviewed {
		if result.truth != "normal" {
			weight := 1 / float64(result.opened.Propensity)
			critical += weight
			criticalSquared += weight * weight
			if result.opened.Stratum == receipt.CalledSafe {
				misses += weight
				missesSquared += weight * weight
			}
		}
	}
	var p *ckdv1.PromiseFigures
	var rate *ckdv1.RiskFigure
	eventually(t, "all outcomes are in mature cohorts", func() bool {
		p, rate = f.figures(t, d)
		return p.GetMature().GetDecided() >= uint64(len(reviewed)) && p.GetOpenCohorts() == 0
	})
	if p.GetMature().GetDecided() != uint64(len(reviewed)) || rate.GetOutcomes() != uint64(len(reviewed)) {
		t.Fatalf("%d outcomes, %d of the critical miss rate; want %d", p.GetMature().GetDecided(), rate.GetOutcomes(), len(reviewed))
	}
	got := rate.GetAverage()
	// The ratio of the weighted sums, with its first-order bias removed (Beale 1962).
	if want := (misses + missesSquared/critical) / (critical + criticalSquared/critical); math.Abs(got.GetValue()-want) > 1e-9 || !(got.GetLow() <= want && want <= got.GetHigh()) {
		t.Errorf("critical miss rate %v, want %v within its interval", got, want)
	}
}

// TestOutcomes sends outcomes back by the command line, and reads what the ledger makes of them.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	d := serveSite(t, "--policy", f.policy, "--receipt-keys", f.keys, "--ledger", f.ledger)
	all := f.stream(t, d, "i", 1000)
	reviewed, _ := outcomesOf(all)
	if len(reviewed) < 300 || len(reviewed) == len(all) {
		t.Fatalf("%d of %d are reviewed", len(reviewed), len(all))
	}

	path := casesFile(t, append(reviewed, decided{Result: reviewed[0].Result}))
	send := []string{"outcomes", "send", "--addr", d.GRPC[0], "--file", path, "--columns", "truth=label", "--source", "room"}
	sent := mustRun(t, send...)
	if n := strings.Count(sent.Stdout, "\n"); n != len(reviewed) || !strings.Contains(sent.Stdout, path+":2: ") {
		t.Errorf("%d lines for %d outcomes:\n%.300s", n, len(reviewed), sent.Stdout)
	}
	if !strings.Contains(sent.Stderr, "1 rows have no truth yet") || !strings.Contains(sent.Stderr, "not sent: accession") {
		t.Errorf("standard error %s", sent.Stderr)
	}
	f.expectMissRate(t, d, reviewed)

	again := mustRun(t, append(send, "--quiet")...)
	if want := fmt.Sprintf("%d duplicate", len(reviewed)); !strings.Contains(again.Stderr, want) || again.Stdout != "" {
		t.Errorf("sent again: %s%s, want %s", again.Stdout, again.Stderr, want)
	}
	f.expectMissRate(t, d, reviewed)

	eventually(t, "the ledger knows of all decisions", func() bool { return f.decisions(t, d) == 1000 })
	exported := mustRun(t, "outcomes", "export", "--addr", d.GRPC[0])
	if n := strings.Count(exported.Stdout, "\n"); n != len(reviewed) || strings.Contains(exported.Stdout, `"`+reviewed[0].ID+`"`) {
		t.Errorf("%d lines exported, want %d, none with an id", n, len(reviewed))
	}
	if r := d.mustAsk(http.MethodGet, "/v1/promises", ""); r.code != http.StatusOK || !strings.Contains(r.body, `"critical_miss_rate_line":0.45`) {
		t.Errorf("the promises: %d %.300s", r.code, r.body)
	}
	if got := d.gauge("ckd_outcomes_total", "status", "duplicate"); got != float64(len(reviewed)) {
		t.Errorf("%v duplicates counted, want %d", got, len(reviewed))
	}
}

// TestLedgerKilled kills the ledger between batches and in the midst of one. Nothing that was answered is lost,
// and nothing counts twice.
func TestLedgerKilled(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	listen := "unix:" + filepath.Join(t.TempDir(), "s")
	d := f.serve(t, listen, "--ledger", f.ledger)
	all := f.stream(t, d, "i", 1000)
	reviewed, outcomes := outcomesOf(all)
	eventually(t, "the ledger knows of all decisions", func() bool { return f.decisions(t, d) == 1000 })
	kill := func() {
		if err := d.Process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-d.Exited
		d = f.serve(t, listen, "--ledger", f.ledger)
	}
	c := f.dial(t, d)
	half := len(outcomes) / 2
	answers, err := c.ReportOutcomes(inTime(t), outcomes[:half], client.Reconnect{})
	if err != nil || slices.ContainsFunc(answers, func(a *ckdv1.OutcomeAnswer) bool { return a.GetError() != nil }) {
		t.Fatalf("%v, %v", answers, err)
	}
	kill()
	p, _ := f.figures(t, d)
	if got := p.GetProvisional().GetDecided(); got != uint64(half) {
		t.Errorf("%d outcomes after the kill, want the %d that were answered", got, half)
	}
	ended := make(chan error, 1)
	go func() { // one a call, so that the kill comes between or within calls
		for i := range outcomes[half:] {
			if _, err := c.ReportOutcomes(t.Context(), outcomes[half+i:half+i+1], client.Reconnect{}); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	eventually(t, "some of the other half are there", func() bool {
		p, _ := f.figures(t, d)
		return p.GetProvisional().GetDecided() > uint64(half+5)
	})
	kill()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	f.expectMissRate(t, d, reviewed)
}

// TestFleetWithLedger has two daemons tell one ledger. When outcomes show that the promise is violated, the other daemon defers
// what it calls safe, also after a restart while the ledger is away, until a person clears the alarm.
func TestFleetWithLedger(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	f.outcomesComeInTime(t)
	listen := "unix:" + filepath.Join(t.TempDir(), "s")
	withLedger := func() *daemon { return f.serve(t, listen, "--ledger", f.ledger) }
	state := filepath.Join(t.TempDir(), "state.json")
	besides := func() *daemon { return f.serve(t, "127.0.0.1:0", "--ledger-at", listen, "--ledger-state", state) }
	keeper, other := withLedger(), besides()
	first, second := f.stream(t, keeper, "a", 600), f.stream(t, other, "b", 600)
	reviewed, outcomes := outcomesOf(append(first, second...))
	for i, one := range reviewed {
		if one.opened.Stratum == receipt.CalledSafe {
			outcomes[i].Truth = "pathologic" // everything called safe was critical
		}
	}
	if _, err := f.dial(t, keeper).ReportOutcomes(inTime(t), outcomes, client.Reconnect{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ledger knows of the decisions of both", func() bool { return f.decisions(t, keeper) == 1200 })
	model := func(d *daemon) *ckdv1.Model {
		m, err := f.dial(t, d).Model(inTime(t), "fetal-health")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	violated := func(d *daemon) bool {
		p := model(d).GetPromises()
		return len(p) == 1 && p[0].GetVerdict() == ckdv1.Verdict_VERDICT_VIOLATED && p[0].GetAlarm()
	}
	eventually(t, "both daemons say that the promise is violated", func() bool { return violated(keeper) && violated(other) })
	if _, text, _ := other.Get("/healthz"); !strings.Contains(text, "Alarm since ") {
		t.Errorf("/healthz does not say so:\n%s", text)
	}
	defers := func(d *daemon, prefix string) bool {
		safe, deferred := 0, 0
		for _, one := range f.stream(t, d, prefix, 100) {
			if one.opened.Stratum == receipt.CalledSafe {
				safe++
				if !one.Retained() && one.Decomposition.GetDecision().GetReason() == ckdv1.DecisionReason_DECISION_REASON_VIOLATED {
					deferred++
				}
			}
		}
		if safe == 0 || deferred != 0 && deferred != safe {
			t.Fatalf("%d of %d called safe are deferred", deferred, safe)
		}
		return deferred > 0
	}
	if !defers(keeper, "c") || !defers(other, "d") {
		t.Error("what is called safe is retained although the promise is violated")
	}

	keeper.Stop()
	other.Stop()
	other = besides()
	if !violated(other) || !defers(other, "e") {
		t.Error("a restart while the ledger is away forgets the alarm")
	}
	if age := other.gauge("ckd_ledger_state_age_seconds"); age <= 0 {
		t.Errorf("the state is %v seconds old", age)
	}

	keeper = withLedger()
	// What is due after the alarm was cleared is evidence for another one.
	eventually(t, "all outcomes are due", func() bool {
		p, _ := f.figures(t, keeper)
		return p.GetMature().GetDecided() == uint64(len(outcomes))
	})
	cleared := mustRun(t, "outcomes", "clear", "--addr", keeper.GRPC[0], "--model", "fetal-health", "--reason", "a test", "--by", "ann")
	if !strings.Contains(cleared.Stdout, "cleared: --model fetal-health") {
		t.Errorf("clear says %s", cleared.Stdout)
	}
	eventually(t, "the alarm is cleared everywhere", func() bool { return !violated(keeper) && !violated(other) })
	if defers(other, "f") {
		t.Error("what is called safe is deferred although the alarm was cleared")
	}
	trail := mustRun(t, "outcomes", "export", "--trail", "--addr", keeper.GRPC[0])
	if !strings.Contains(trail.Stdout, "alarm_cleared") || !strings.Contains(trail.Stdout, "ann") {
		t.Errorf("the trail does not say who cleared the alarm:\n%s", trail.Stdout)
	}
}
