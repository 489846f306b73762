package integration_test

import (
	"os/exec"
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
