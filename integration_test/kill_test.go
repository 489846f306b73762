package integration_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKilledUnderLoad: the daemon is killed without a word while a recording is
// replayed, and started again, several times. The replay loses no answer and has
// none twice, and they are what decompose says.
func TestKilledUnderLoad(t *testing.T) {
	policy := writePolicy(t, policyText)
	address := "unix:" + filepath.Join(t.TempDir(), "ckd.sock")
	passes := recording("ctg-mcdropout", ".passes.npy")
	offline := lines(t, mustRun(t, "decompose", "--passes", passes, "--policy", policy).stdout)

	d := serveOn(t, address, "--policy", policy)
	done := make(chan result, 1)
	go func() {
		done <- runCommand(t, exec.CommandContext(t.Context(), ckd, "replay", "--addr", address, "--model", "fetal-health",
			"--passes", passes, "--rate", "1000", "--batch", "16"))
	}()
	for range 3 {
		time.Sleep(400 * time.Millisecond)
		if err := d.process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-d.exited
		d = serveOn(t, address, "--policy", policy)
	}
	r := <-done
	if r.code != 0 {
		t.Fatalf("replay: exit %d: %s", r.code, r.stderr)
	}
	online := lines(t, r.stdout)
	if len(online) != len(offline) {
		t.Fatalf("%d lines, want %d", len(online), len(offline))
	}
	for i := range online {
		if d := difference(online[i], offline[i], 1e-12); d != "" {
			t.Errorf("input %d: %s", i, d)
		}
	}
}

// TestStoppedUnderLoad: the same with SIGTERM: the daemon drains, and the replay
// goes on with its successor.
func TestStoppedUnderLoad(t *testing.T) {
	policy := writePolicy(t, policyText)
	address := "unix:" + filepath.Join(t.TempDir(), "ckd.sock")
	passes := recording("ctg-ensemble", ".passes.npy")
	d := serveOn(t, address, "--policy", policy, "--max-stream-age", "250ms")
	done := make(chan result, 1)
	go func() {
		done <- runCommand(t, exec.CommandContext(t.Context(), ckd, "replay", "--addr", address, "--model", "fetal-health",
			"--passes", passes, "--rate", "1500", "--batch", "8"))
	}()
	for range 2 {
		time.Sleep(400 * time.Millisecond)
		if code := d.stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		d = serveOn(t, address, "--policy", policy, "--max-stream-age", "250ms")
	}
	r := <-done
	if r.code != 0 || len(lines(t, r.stdout)) != 2126 || strings.Contains(r.stdout, `"error"`) {
		t.Errorf("replay: exit %d, %d lines: %s", r.code, len(lines(t, r.stdout)), r.stderr)
	}
}
