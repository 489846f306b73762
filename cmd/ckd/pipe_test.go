//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEvaluateReadsNamedPipes expects a named pipe to be opened once. Opened again, it would wait
// for a writer for ever.
func TestEvaluateReadsNamedPipes(t *testing.T) {
	t.Parallel()
	file, pipe := threeInputs(t), filepath.Join(t.TempDir(), "passes.npy")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, data, 0o600) }()
	args := []string{"evaluate", "--labels", handLabels(t, 1, 2, 0), "--critical", "1,2", "--bootstrap", "2",
		"--format", "json", "--passes"}
	var stdout, stderr string
	code, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		stdout, stderr, code = runCommand(t, append(args, pipe)...)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it still waits after 30 seconds")
	}
	if err := <-written; err != nil || code != exitOK {
		t.Fatalf("exit code %d: %s (%v)", code, stderr, err)
	}
	report := readReport(t, stdout)
	compare(t, "passes", valueAt(t, report, "source", "passes"), map[string]any{"name": pipe, "sha256": ""}, 0, 0)
	compare(t, "the rest", valueAt(t, report, "summary"), valueAt(t, readReport(t, runOK(t, append(args, file)...)), "summary"), 0, 0)
	if !strings.Contains(stderr, pipe) {
		t.Errorf("%q does not name %s", stderr, pipe)
	}
}

// TestCalibrateToADevice expects that a device is not read to see whether it holds a policy:
// reading some devices never ends.
func TestCalibrateToADevice(t *testing.T) {
	t.Parallel()
	wantFragment(t, runOK(t, calibrating("ensemble", "--coverage", "0.8", "--out", "/dev/null")...), "this policy")
}
