package integration_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ckd-project/ckd/client"
)

// TestSocketPath serves and dials a socket whose path is as long as the system allows, and is told of one
// byte more by its length and the limit: "invalid argument" sent somebody looking at their flags.
func TestSocketPath(t *testing.T) {
	t.Parallel()
	most := len(syscall.RawSockaddrUnix{}.Path) - 1
	folder, err := os.MkdirTemp("", "ckd") // t.TempDir may be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	longest := filepath.Join(folder, strings.Repeat("d", most-len(folder)-1))
	policy := writePolicy(t, policyText)
	serveOn(t, "unix:"+longest, "--policy", policy)
	for _, target := range []string{"unix:" + longest, "unix://" + longest} {
		c, err := client.Dial(target)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Models(t.Context()); err != nil {
			t.Error(err)
		}
	}
	want := fmt.Sprintf("a path of %d bytes, expected at most %d", most+1, most)
	if r := run(t, "serve", "--policy", policy, "--admin", "off", "--listen", "unix:"+longest+"d"); r.Code != 2 || !strings.Contains(r.Stderr, want) {
		t.Errorf("exit %d, want 2 and %q: %s", r.Code, want, r.Stderr)
	}
	for _, target := range []string{"unix:" + longest + "d", "unix://" + longest + "d"} {
		if _, err := client.Dial(target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestLogReaderGone checks that a daemon goes on, and ends in order, when the program that reads its log
// is gone: a restart of somebody's log shipper ended the daemon with SIGPIPE.
func TestLogReaderGone(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "ckd.sock")
	c := exec.CommandContext(inTime(t), ckd, "serve", "--policy", writePolicy(t, policyText), "--listen", "unix:"+socket, "--admin", "off")
	log, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(log).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	models := func() error {
		conn, err := client.Dial("unix:" + socket)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Models(t.Context())
		return err
	}
	eventually(t, "it serves", func() bool { return models() == nil })
	for range 3 { // each writes to the log
		if err := c.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if err := models(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v, expected 0", err)
	}
}
