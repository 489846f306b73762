package main

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

const sitePolicy = `
models:
  - name: site
    version: "3"
    classes: [safe, critical]
    critical: [critical]
    gate: never
    primary: {score: entropy, threshold: 0.8}
    audit: {rate: 0.2, m: 0.5, predicted-critical: free, due: 1h}
`

// writeLedger makes a ledger with outcomes of some inputs whose entropy u, from 0 to 1, makes an
// input called safe critical with probability u^3/2, and tells of as many reviews as came and more.
func writeLedger(t *testing.T, overdue uint64) (dir string) {
	t.Helper()
	decided := time.Date(2026, 10, 31, 8, 0, 0, 0, time.UTC)
	keys, p := outcometest.Keys(t, outcometest.Key), outcometest.Policy(t, sitePolicy)
	dir = filepath.Join(t.TempDir(), "ledger")
	if err := ledger.Begin(dir, ledger.Options{}); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(dir, ledger.Options{Keys: func() *receipt.Keys { return keys }, Now: func() time.Time { return decided.Add(time.Minute) }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.AddPolicy([]byte(sitePolicy)); err != nil {
		t.Fatal(err)
	}
	rng, sealer := rand.New(rand.NewPCG(5, 5)), receipt.NewSealer(keys)
	issued := map[receipt.Stratum]*ledger.Issued{}
	var batch []ledger.Outcome
	for n := range 20000 {
		called, u := rng.Float64() < 0.4, rng.Float64()
		critical := rng.Float64() < map[bool]float64{true: 0.9, false: u * u * u / 2}[called]
		r := receipt.Receipt{
			Policy: p.HashBytes(), Version: receipt.VersionHash("3"), Time: decided.Add(time.Duration(n) * time.Microsecond).UnixMicro(),
			Stratum: receipt.CalledSafe, Reason: uint8(policy.UnderThreshold), Passes: 10, Risk: float32(math.NaN()), Propensity: 0.2,
		}
		for s := range r.Scores {
			r.Scores[s] = float32(math.NaN())
		}
		r.Scores[decomp.Entropy] = float32(u)
		if called {
			r.Predicted, r.Stratum, r.Propensity = 1, receipt.CalledCritical, 1
		}
		if u > 0.8 {
			r.Stratum, r.Reason, r.Propensity, r.Review = receipt.Deferred, uint8(policy.AboveThreshold), 1, true
		}
		in := issued[r.Stratum]
		if in == nil {
			in = &ledger.Issued{Process: "test", Policy: p.HashBytes(), Version: "3", Stratum: r.Stratum, Start: decided, Audit: p.Audit}
			issued[r.Stratum] = in
		}
		in.Decisions++
		in.Eligible++
		in.Receipts++
		if r.Stratum == receipt.CalledSafe {
			if r.Review = rng.Float64() < 0.2; !r.Review {
				continue
			}
		}
		in.Reviews++
		in.Propensity += float64(r.Propensity)
		in.InversePropensity += 1 / float64(r.Propensity)
		truth, sealed := map[bool]string{true: "critical", false: "safe"}[critical], sealer.Seal(nil, &r)
		for _, source := range []string{"one", "two"} {
			batch = append(batch, ledger.Outcome{Receipt: sealed, Truth: truth, Source: source, At: decided.Add(time.Second)})
			if !critical {
				break
			}
		}
	}
	if late := issued[receipt.CalledSafe]; overdue > 0 {
		late.Reviews += overdue
		late.InversePropensity += 5 * float64(overdue)
	}
	for _, in := range issued {
		if err := l.Issued([]ledger.Issued{*in}, ledger.Sealed{Sealer: sealer.ID(), Count: sealer.Sealed()}); err != nil {
			t.Fatal(err)
		}
	}
	for len(batch) > 0 {
		n := min(1000, len(batch))
		answers, err := l.Report("test", batch[:n])
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if !a.Stored() {
				t.Fatalf("an outcome was answered %v %s", a.Status, a.Why)
			}
		}
		batch = batch[n:]
	}
	return dir
}

// TestCalibrateOutcomes calibrates a policy anew on the outcomes of its decisions.
func TestCalibrateOutcomes(t *testing.T) {
	dir, out := writeLedger(t, 0), t.TempDir()
	current := filepath.Join(out, "current.yaml")
	if err := os.WriteFile(current, []byte(sitePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	args := func(limit, name string, more ...string) []string {
		return append([]string{"calibrate", "outcomes", "--ledger", dir, "--policy", current, "--since", "2026-10-31", "--max-critical-fnr", limit,
			"--confidence", "0.9", "--out", filepath.Join(out, name)}, more...)
	}
	report := runOK(t, args("0.1", "next.yaml")...)
	text, err := os.ReadFile(filepath.Join(out, "next.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// Of the retained, the critical FNR is 0.6 t^4/8 / (0.6 t^4/8 + 0.36 t): 0.1 at t = 0.81.
	next := outcometest.Policy(t, string(text))
	if c := next.Calibration; next.Primary.Score != policy.Entropy || next.Primary.Threshold < 0.3 || next.Primary.Threshold > 0.85 ||
		c == nil || c.Certificate == nil || c.Certificate.Target != 0.1 || c.PolicyHash != next.HashWithoutLines() || next.Audit == nil {
		t.Errorf("the policy is\n%s", text)
	}
	if !strings.Contains(report, "entropy") {
		t.Errorf("the report is\n%s", report)
	}

	_, _, code := runCommand(t, args("0.11", "next.yaml")...)
	if second, err := os.ReadFile(filepath.Join(out, "next.yaml")); code != 0 || err != nil || !strings.Contains(string(second), "earlier_attempt") {
		t.Errorf("a second attempt exits with %d: %v\n%s", code, err, second)
	}
	if _, stderr, code := runCommand(t, args("0.1", "none.yaml", "--model-version", "4")...); code != 1 || !strings.Contains(stderr, "4") {
		t.Errorf("another version exits with %d: %s", code, stderr)
	}
	if _, stderr, code := runCommand(t, args("0.1", "none.yaml", "--since", "yesterday")...); code != 2 || !strings.Contains(stderr, "expected a day as 2026-10-31") {
		t.Errorf("a date that is none exits with %d: %s", code, stderr)
	}
}

// TestCalibrateOutcomesOverdue expects reviews that never came to count as missed.
func TestCalibrateOutcomesOverdue(t *testing.T) {
	dir, out := writeLedger(t, 500), t.TempDir()
	current := filepath.Join(out, "current.yaml")
	if err := os.WriteFile(current, []byte(sitePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := runCommand(t, "calibrate", "outcomes", "--ledger", dir, "--policy", current, "--since", "2026-10-31", "--max-critical-fnr", "0.1", "--confidence",
		"0.9", "--out", filepath.Join(out, "next.yaml"))
	if code != 3 || !strings.Contains(stdout+stderr, "500") {
		t.Errorf("exits with %d:\n%s%s", code, stdout, stderr)
	}
}
