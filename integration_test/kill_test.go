package integration_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// TestKilledUnderLoad: the daemon is killed without a word while a recording is
// replayed, and started again, several times. The replay loses no answer and has
// none twice, and they are what decompose says.
func TestKilledUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	t.Parallel()
	policy := writePolicy(t, policyText)
	address := "unix:" + filepath.Join(t.TempDir(), "ckd.sock")
	passes := recording("ctg-mcdropout", ".passes.npy")
	offline := lines(t, mustRun(t, "decompose", "--passes", passes, "--policy", policy).Stdout)

	d := serveOn(t, address, "--policy", policy)
	done := make(chan testbed.Result, 1)
	go func() {
		done <- testbed.Run(t, exec.CommandContext(t.Context(), ckd, "replay", "--addr", address, "--model", "fetal-health",
			"--passes", passes, "--rate", "1000", "--batch", "16"))
	}()
	for range 3 {
		time.Sleep(400 * time.Millisecond)
		if err := d.Process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-d.Exited
		d = serveOn(t, address, "--policy", policy)
	}
	r := <-done
	if r.Code != 0 {
		t.Fatalf("replay: exit %d: %s", r.Code, r.Stderr)
	}
	online := lines(t, r.Stdout)
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
	t.Parallel()
	policy := writePolicy(t, policyText)
	address := "unix:" + filepath.Join(t.TempDir(), "ckd.sock")
	passes := recording("ctg-ensemble", ".passes.npy")
	d := serveOn(t, address, "--policy", policy, "--max-stream-age", "250ms")
	done := make(chan testbed.Result, 1)
	go func() {
		done <- testbed.Run(t, exec.CommandContext(t.Context(), ckd, "replay", "--addr", address, "--model", "fetal-health",
			"--passes", passes, "--rate", "1500", "--batch", "8"))
	}()
	for range 2 {
		time.Sleep(400 * time.Millisecond)
		if code := d.Stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		d = serveOn(t, address, "--policy", policy, "--max-stream-age", "250ms")
	}
	r := <-done
	if r.Code != 0 || len(lines(t, r.Stdout)) != 2126 || strings.Contains(r.Stdout, `"error"`) {
		t.Errorf("replay: exit %d, %d lines: %s", r.Code, len(lines(t, r.Stdout)), r.Stderr)
	}
}
