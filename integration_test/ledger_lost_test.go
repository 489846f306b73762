package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// deferring returns why a daemon defers everything called safe; empty where it does not.
func (f *ledgered) deferring(t *testing.T, d *daemon) string {
	t.Helper()
	m, err := f.dial(t, d).Model(inTime(t), "fetal-health")
	if err != nil {
		t.Fatal(err)
	}
	return m.GetDeferring()
}

// healthz returns what a daemon says is wrong.
func healthz(d *daemon) string {
	_, text, _ := d.Get("/healthz")
	return text
}

// TestAlarmOutlivesLedger loses the ledger under an alarm in every way that a site does in good faith. The
// replica goes on deferring, also after its own restart, until somebody ends the alarm in the ledger that
// told of it.
func TestAlarmOutlivesLedger(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	f.outcomesComeInTime(t)
	listen := "unix:" + filepath.Join(t.TempDir(), "s")
	keeps := func(folder string) *daemon { return f.serve(t, listen, "--ledger", folder) }
	state := filepath.Join(t.TempDir(), "state.json")
	replica := func() *daemon { return f.serve(t, "127.0.0.1:0", "--ledger-at", listen, "--ledger-state", state) }

	waits := replica() // nobody has ever answered it
	if why := f.deferring(t, waits); !strings.HasPrefix(why, "The ledger has not answered since this daemon started") {
		t.Errorf("a daemon that never heard of its ledger says %q", why)
	}
	eventually(t, "/healthz says that the ledger was never heard", func() bool {
		return strings.Contains(healthz(waits), "until it does, everything called safe is deferred for fetal-health")
	})
	if got := waits.gauge("ckd_ledger_fault", "fault", "unheard"); got != 1 {
		t.Errorf("ckd_ledger_fault for unheard is %v", got)
	}

	keeper := keeps(f.ledger)
	eventually(t, "the ledger is heard", func() bool { return f.deferring(t, waits) == "" })
	waits.Stop()
	other := replica()
	reviewed, outcomes := outcomesOf(f.stream(t, other, "a", 600))
	for i, one := range reviewed {
		if one.opened.Stratum == receipt.CalledSafe {
			outcomes[i].Truth = "pathologic" // everything called safe was critical
		}
	}
	eventually(t, "the policy is known", func() bool {
		answers, err := f.dial(t, keeper).ReportOutcomes(inTime(t), outcomes, client.Reconnect{})
		return err == nil && answers[0].GetStatus() != ckdv1.OutcomeStatus_OUTCOME_STATUS_POLICY_UNKNOWN
	})
	alarmed := func(what string) {
		t.Helper()
		eventually(t, "the alarm is up: "+what, func() bool { return strings.HasPrefix(f.deferring(t, other), "An alarm on the critical ") })
		if !strings.Contains(healthz(other), "model fetal-health: alarm on the critical ") {
			t.Errorf("%s: /healthz says\n%s", what, healthz(other))
		}
		if got := other.gauge("ckd_alarm_ended_timestamp_seconds", "model", "fetal-health"); got != 0 {
			t.Errorf("%s: the alarm ended at %v", what, got)
		}
	}
	alarmed("told by the ledger")

	keeper.Stop()
	emptied := t.TempDir()
	if out, err := exec.Command(ckd, "serve", "--policy", f.policy, "--receipt-keys", f.keys, "--ledger", emptied).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "ckd outcomes begin") || !strings.Contains(string(out), "ckd outcomes restore") {
		t.Errorf("an emptied folder was served, or refused without what to do: %v: %s", err, out)
	}
	keeper = keeps(testbed.Ledger(t, ckd))
	eventually(t, "another ledger is an incident", func() bool {
		return strings.Contains(healthz(other), "is another ledger") && other.gauge("ckd_ledger_fault", "fault", "other_ledger") == 1
	})
	eventually(t, "its daemon says so too", func() bool { return strings.Contains(healthz(keeper), "was told by another ledger before") })
	alarmed("an empty folder in the ledger's place")
	other.Stop()
	other = replica()
	alarmed("and a restart of the replica")
	keeper.Stop()
	other.Stop()
	other = replica()
	alarmed("a restart while no ledger answers")

	keeper = keeps(f.ledger)
	eventually(t, "the ledger of before answers", func() bool { return other.gauge("ckd_ledger_fault", "fault", "other_ledger") == 0 })
	alarmed("the ledger of before")
	mustRun(t, "outcomes", "clear", "--addr", keeper.GRPC[0], "--model", "fetal-health", "--reason", "a test", "--by", "ann")
	eventually(t, "the alarm is cleared", func() bool { return f.deferring(t, other) == "" })
	if strings.Contains(healthz(other), "alarm on") {
		t.Errorf("/healthz says\n%s", healthz(other))
	}
}

// TestLedgerRestored puts an older copy of the ledger back. The replica tells it again what it issued since.
func TestLedgerRestored(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	listen := "unix:" + filepath.Join(t.TempDir(), "s")
	keeps := func() *daemon { return f.serve(t, listen, "--ledger", f.ledger) }
	keeper, other := keeps(), f.serve(t, "127.0.0.1:0", "--ledger-at", listen)
	f.stream(t, other, "a", 300)
	eventually(t, "the ledger knows of the first decisions", func() bool { return f.decisions(t, keeper) == 300 })
	keeper.Stop()
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(f.ledger)); err != nil {
		t.Fatal(err)
	}
	keeper = keeps()
	f.stream(t, other, "b", 600)
	eventually(t, "the ledger knows of the others", func() bool { return f.decisions(t, keeper) == 900 })
	keeper.Stop()
	if err := os.RemoveAll(f.ledger); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(f.ledger, os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	keeper = keeps()
	eventually(t, "the older copy is told what it lacks", func() bool { return f.decisions(t, keeper) == 900 })
}

// TestEndedProcessesAreTold restores a ledger after the daemons that told it have been restarted, its own too: it
// learns what they issued before.
func TestEndedProcessesAreTold(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	listen, state := "unix:"+filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "state.json")
	keeps := func() *daemon { return f.serve(t, listen, "--ledger", f.ledger) }
	replica := func() *daemon { return f.serve(t, "127.0.0.1:0", "--ledger-at", listen, "--ledger-state", state) }
	keeper, other := keeps(), replica()
	f.stream(t, keeper, "a", 100)
	f.stream(t, other, "b", 20)
	eventually(t, "the ledger knows of the first decisions", func() bool { return f.decisions(t, keeper) == 120 })
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRun(t, "outcomes", "backup", "--ledger", f.ledger, "--out", backup)
	f.stream(t, keeper, "c", 200)
	f.stream(t, other, "d", 40)
	other.Stop()
	keeper.Stop()
	mustRun(t, "outcomes", "restore", "--from", backup, "--ledger", f.ledger, "--set-aside", "--by", "ann", "--reason", "a test")
	keeper = keeps()
	eventually(t, "the ledger is told again what its own daemon issued", func() bool { return f.decisions(t, keeper) >= 320 })
	replica()
	eventually(t, "and what a replica issued before its restart", func() bool { return f.decisions(t, keeper) == 360 })
}

// TestDeferNeedsLedger checks that a policy which acts on a breach is refused where nobody could tell of one.
func TestDeferNeedsLedger(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	r := run(t, "serve", "--listen", "127.0.0.1:0", "--admin", "off", "--policy", f.policy, "--receipt-keys", f.keys)
	if r.Code == 0 || !strings.Contains(r.Stderr, `model "fetal-health": audit.on_breach: defer, but this daemon has no ledger`) {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	unwritable := filepath.Join(t.TempDir(), "missing", "state.json")
	r = run(t, "serve", "--listen", "127.0.0.1:0", "--admin", "off", "--policy", f.policy, "--receipt-keys", f.keys, "--ledger-at", "unix:/nowhere", "--ledger-state", unwritable)
	if r.Code == 0 || !strings.Contains(r.Stderr, "expected a folder that this daemon may write") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
}

// TestManyPoliciesAreTold tells a ledger more policies than one message holds.
func TestManyPoliciesAreTold(t *testing.T) {
	t.Parallel()
	const models, classes = 70, 900
	var text strings.Builder
	text.WriteString("models:\n")
	for m := range models {
		fmt.Fprintf(&text, "  - name: model-%d\n    critical: [class-0]\n    primary: {threshold: 1}\n    fallback: {threshold: 1}\n    classes:\n", m)
		for c := range classes {
			fmt.Fprintf(&text, "      - class-%d\n", c)
		}
	}
	f := newLedgered(t)
	many := writePolicy(t, text.String())
	listen := "unix:" + filepath.Join(t.TempDir(), "s")
	keeper := f.serve(t, listen, "--ledger", f.ledger)
	other := serveOn(t, "127.0.0.1:0", "--policy", many, "--receipt-keys", f.keys, "--ledger-at", listen)
	eventually(t, "the ledger knows all policies", func() bool {
		trail := mustRun(t, "outcomes", "export", "--trail", "--addr", keeper.GRPC[0])
		return strings.Count(trail.Stdout, "policy_added") == models+1
	})
	if strings.Contains(healthz(other), "ledger") {
		t.Errorf("/healthz says\n%s", healthz(other))
	}
}
