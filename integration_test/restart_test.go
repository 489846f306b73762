package integration_test

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestRestartedUnderLoad restarts the daemon several times during a replay, with and without a chance
// to drain. The replay must answer every input once, as decompose does.
func TestRestartedUnderLoad(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	for name, end := range map[string]func(*daemon){
		"killed": func(d *daemon) {
			if err := d.Process.Process.Kill(); err != nil {
				t.Error(err)
			}
			<-d.Exited
		},
		"stopped": func(d *daemon) {
			if code := d.Stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := writePolicy(t, policyText)
			address := "unix:" + filepath.Join(t.TempDir(), "ckd.sock")
			passes := recording("ctg-mcdropout", ".passes.npy")
			offline := decodeLines[any](t, mustRun(t, "decompose", "--passes", passes, "--policy", policy).Stdout)
			start := func() *daemon { return serveOn(t, address, "--policy", policy, "--max-stream-age", "250ms") }
			d := start()
			done := make(chan testbed.Result, 1)
			go func() {
				done <- testbed.Run(t, exec.CommandContext(t.Context(), ckd, "replay", "--addr", address, "--model", "fetal-health",
					"--passes", passes, "--rate", "500", "--batch", "16"))
			}()
			d.answers()
			for range 3 {
				time.Sleep(400 * time.Millisecond)
				end(d)
				d = start()
			}
			r := <-done
			if r.Code != 0 {
				t.Fatalf("replay: exit %d: %s", r.Code, r.Stderr)
			}
			if d := cmp.Diff(offline, decodeLines[any](t, r.Stdout), approximately(1e-12)); d != "" {
				t.Errorf("-offline +online:\n%s", d)
			}
		})
	}
}

// answers waits until the daemon has decided on an input. Only then does the replay survive a
// restart: one that finds no daemon at its start fails.
func (d *daemon) answers() {
	d.t.Helper()
	eventually(d.t, "the daemon has decided on an input", func() bool { return d.gauge("ckd_decisions_total") > 0 })
}
