package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/client"
)

// outcomesOn runs ckd outcomes COMMAND with the address of a daemon.
func outcomesOn(t *testing.T, d *daemon, command string, args ...string) string {
	t.Helper()
	return mustRun(t, append([]string{"outcomes", command, "--addr", d.GRPC[0]}, args...)...).Stdout
}

// report sends the outcomes of all that is to be reviewed, and waits until the ledger knows of every decision.
func (f *ledgered) report(t *testing.T, d *daemon, all []decided) (reviewed []decided) {
	t.Helper()
	reviewed, outcomes := outcomesOf(all)
	if _, err := f.dial(t, d).ReportOutcomes(inTime(t), outcomes, client.Reconnect{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ledger knows of all decisions", func() bool { return f.decisions(t, d) == uint64(len(all)) })
	return reviewed
}

// TestLedgerBackup verifies and copies a ledger while a daemon serves it, and calibrates on it; damages the ledger, and
// puts the copy back once the daemon has stopped.
func TestLedgerBackup(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	listen := "unix:" + filepath.Join(t.TempDir(), "s")
	d := f.serve(t, listen, "--ledger", f.ledger)
	reviewed := f.report(t, d, f.stream(t, d, "i", 500))
	f.expectMissRate(t, d, reviewed)

	text := outcomesOn(t, d, "figures")
	for _, want := range []string{"fetal-health, version", "of all critical inputs", "called critical", "Outcomes are complete"} {
		if !strings.Contains(text, want) {
			t.Errorf("the figures lack %q:\n%s", want, text)
		}
	}
	if text := outcomesOn(t, d, "figures", "--format", "json"); !strings.Contains(text, `"critical_miss_rate_line"`) {
		t.Errorf("the figures are not the message:\n%.300s", text)
	}
	calibrated := run(t, "calibrate", "outcomes", "--ledger", f.ledger, "--policy", f.policy, "--since", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339),
		"--max-critical-fnr", "0.99", "--out", filepath.Join(t.TempDir(), "policy.yaml"))
	if calibrated.Code != 0 && calibrated.Code != 3 { // 3: read, and nothing certifies
		t.Errorf("calibrate outcomes beside a daemon: exit code %d: %s", calibrated.Code, calibrated.Stderr)
	}

	verify := []string{"outcomes", "verify", "--ledger", f.ledger, "--receipt-keys", f.keys}
	if text := mustRun(t, verify...).Stdout; !strings.Contains(text, ": 0 faults in ") || strings.Contains(text, " 0 seals were compared") {
		t.Errorf("verify says\n%s", text)
	}
	backup := filepath.Join(t.TempDir(), "ledger.bak")
	mustRun(t, "outcomes", "backup", "--ledger", f.ledger, "--out", backup)
	if r := run(t, "outcomes", "backup", "--ledger", f.ledger, "--out", filepath.Join(f.ledger, "copy")); r.Code != 2 {
		t.Errorf("a backup beside the ledger: exit code %d: %s", r.Code, r.Stderr)
	}
	restore := []string{"outcomes", "restore", "--from", backup, "--ledger", f.ledger, "--by", "ann", "--reason", "a test"}
	if r := run(t, restore...); r.Code != 1 || !strings.Contains(r.Stderr, "a daemon has the ledger open") {
		t.Errorf("a restore under a daemon: exit code %d: %s", r.Code, r.Stderr)
	}

	more := f.stream(t, d, "j", 250)
	f.report(t, d, append(more, make([]decided, 500)...))
	d.Stop()
	if r := run(t, restore...); r.Code != 1 || !strings.Contains(r.Stderr, "later transactions: to lose that, say --set-aside") {
		t.Errorf("a restore over later outcomes: exit code %d: %s", r.Code, r.Stderr)
	}
	file := filepath.Join(f.ledger, "ledger.db")
	damaged, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(damaged, []byte("room")) // the source of a reading
	damaged[at] ^= 1
	if err := os.WriteFile(file, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, verify...); r.Code != 1 || !strings.Contains(r.Stdout, ": 1 faults in ") || !strings.Contains(r.Stdout, "checksum") {
		t.Errorf("verify of a damaged ledger: exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	said := mustRun(t, append(restore, "--set-aside")...).Stdout
	if !strings.Contains(said, "Generation 2 begins") || !strings.Contains(said, "replaced-") {
		t.Errorf("restore says\n%s", said)
	}
	d = f.serve(t, listen, "--ledger", f.ledger)
	p, _ := f.figures(t, d)
	if got := p.GetProvisional().GetDecided(); got != uint64(len(reviewed)) {
		t.Errorf("%d decisions with outcomes after the restore, expected the %d of the backup", got, len(reviewed))
	}
	if trail := outcomesOn(t, d, "export", "--trail"); !strings.Contains(trail, "ledger_restored") || !strings.Contains(trail, `"by":"ann"`) {
		t.Errorf("the trail does not have the restore:\n%s", trail)
	}
}

// TestLedgerCommands asks which outcomes are missing, exports and imports what has come, and deletes what belongs to a
// case.
func TestLedgerCommands(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	d := serveSite(t, "--policy", f.policy, "--receipt-keys", f.keys, "--ledger", f.ledger)
	all := f.stream(t, d, "i", 500)
	reviewed, outcomes := outcomesOf(all)
	const held = 7 // outcomes that do not come
	if _, err := f.dial(t, d).ReportOutcomes(inTime(t), outcomes[held:], client.Reconnect{}); err != nil {
		t.Fatal(err)
	}
	cases := casesFile(t, all)
	missing := []string{"--receipts", cases, "--columns", "case=accession"}
	var text string
	eventually(t, "the outcomes that did not come are overdue", func() bool {
		text = outcomesOn(t, d, "missing", missing...)
		return strings.HasPrefix(text, fmt.Sprintf("%d outcomes are overdue", held))
	})
	for _, one := range reviewed[:held] {
		if !strings.Contains(text, "case "+one.ID+": overdue since") {
			t.Errorf("case %s is not among the overdue:\n%s", one.ID, text)
		}
	}
	for _, want := range []string{"were not to be reviewed", "a second read by another source is wanted; read by room"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing lacks %q:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("%d lines", n)
	}
	if rows := outcomesOn(t, d, "missing", append(missing, "--format", "csv")...); strings.Count(rows, ",overdue,") != held {
		t.Errorf("missing as CSV:\n%.500s", rows)
	}
	eventually(t, "the counts say so too", func() bool {
		return strings.HasPrefix(outcomesOn(t, d, "missing"), fmt.Sprintf("%d outcomes are overdue", held))
	})
	if issued := outcomesOn(t, d, "export", "--issued", "--format", "csv"); !strings.HasPrefix(issued, "model,policy,version,stratum,start,process,decisions") || !strings.Contains(issued, "called_safe") {
		t.Errorf("what was issued:\n%.500s", issued)
	}

	exported := outcomesOn(t, d, "export")
	path := filepath.Join(t.TempDir(), "export.jsonl")
	if err := os.WriteFile(path, []byte(exported), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := newLedgered(t)
	fresh.policy, fresh.keys = f.policy, f.keys
	second := serveSite(t, "--policy", fresh.policy, "--receipt-keys", fresh.keys, "--ledger", fresh.ledger)
	enter := []string{"outcomes", "import", "--addr", second.GRPC[0], "--file", path, "--reason", "moved", "--by", "ann"}
	eventually(t, "the other ledger has taken the export", func() bool { return run(t, enter...).Code == 0 })
	if again := outcomesOn(t, second, "export"); again != exported {
		t.Errorf("the export of an import differs:\n%.600s\nwant\n%.600s", again, exported)
	}
	changed := []byte(exported)
	if at := strings.Index(exported, `"receipt":"`) + 150; changed[at] != 'A' {
		changed[at] = 'A'
	} else {
		changed[at] = 'B'
	}
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, enter...); r.Code != 1 || !strings.Contains(r.Stdout, path+":1: forged") {
		t.Errorf("a changed receipt: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}

	gone := reviewed[held]
	said := outcomesOn(t, d, "delete", "--receipts", cases, "--columns", "case=accession", "--case", gone.ID, "--reason", "consent withdrawn", "--by", "ann")
	if !strings.HasPrefix(said, "1 decisions with outcomes are deleted") || !strings.Contains(said, "Backups, exports and the receipts") {
		t.Errorf("delete says\n%s", said)
	}
	if n := strings.Count(outcomesOn(t, d, "export"), "\n"); n != len(outcomes)-held-1 {
		t.Errorf("%d decisions are left, want %d", n, len(outcomes)-held-1)
	}
	for flags, want := range map[string]string{
		"--case i1": "an id alone does not find", "--receipts " + cases + " --case none --columns case=accession": `no row has "none"`,
	} {
		if r := run(t, append([]string{"outcomes", "delete", "--addr", d.GRPC[0], "--reason", "x", "--by", "ann"}, strings.Fields(flags)...)...); r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("delete %s: exit code %d: %s", flags, r.Code, r.Stderr)
		}
	}
}
