package integration_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// TestUntilStdinCloses checks that the daemon stops in order when its standard input ends, and not
// before.
func TestUntilStdinCloses(t *testing.T) {
	t.Parallel()
	command := exec.Command(ckd, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--policy", writePolicy(t, policyText), "--until-stdin-closes")
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	d := testbed.Start(t, command, 1)
	if _, err := stdin.Write([]byte("input is not read\n")); err != nil {
		t.Fatal(err)
	}
	if status, body, _ := d.Get("/readyz"); status != 200 {
		t.Errorf("with its standard input open: %d %s", status, body)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	<-d.Exited
	if code := command.ProcessState.ExitCode(); code != 0 || !strings.Contains(d.Log(), `"msg":"stopped"`) {
		t.Errorf("exit %d, expected 0 after an orderly stop", code)
	}
}

// TestUntilOwnerDies checks that the daemon stops in order when whoever started it dies, and with it
// the pipe that the log goes to.
func TestUntilOwnerDies(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	command := exec.Command(ckd, "serve", "--listen", "unix:"+socket, "--admin", "127.0.0.1:0",
		"--policy", writePolicy(t, policyText), "--until-stdin-closes")
	var pipes []io.Closer
	for _, open := range []func() (io.ReadCloser, error){command.StdoutPipe, command.StderrPipe} {
		pipe, err := open()
		if err != nil {
			t.Fatal(err)
		}
		pipes = append(pipes, pipe)
	}
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	exists := func() bool { _, err := os.Stat(socket); return err == nil }
	eventually(t, "the daemon listens", exists)
	for _, pipe := range append(pipes, stdin) {
		_ = pipe.Close() // as the system does for a process that is killed
	}
	if err := command.Wait(); err != nil || exists() {
		t.Errorf("%v, expected exit 0; the socket is left: %v", err, exists())
	}
}
