package testbed

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Main builds commands, of the folders that are given, says where each is, and runs
// the tests: it is what TestMain calls.
//
// The tests wait for other programs most of the time, so that more of them run side by
// side than there are processors; -parallel still has the last word.
func Main(m *testing.M, commands map[string]*string) (code int) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "ckd-testbed")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in the system's temporary folder
	for folder, binary := range commands {
		*binary = filepath.Join(dir, filepath.Base(folder))
		build := exec.Command("go", "build", "-o", *binary, ".")
		build.Dir = folder // of the module that it belongs to
		build.Stdout, build.Stderr = os.Stdout, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintf(os.Stderr, "building %s: %v\n", folder, err)
			return 1
		}
	}
	return m.Run()
}

// Program finds a program that a test needs: by the environment variable, else
// on the PATH. Without it the test is skipped, unless CKD_REQUIRE_TOOLS is set.
func Program(t *testing.T, name, variable string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CKD_REQUIRE_TOOLS") != "" {
			t.Fatalf("%s is not installed, and CKD_REQUIRE_TOOLS is set", name)
		}
		t.Skipf("%s is not installed; set %s to its path", name, variable)
	}
	return path
}

// Result of a command that ran to its end.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a command to its end, however it ends.
func Run(t *testing.T, c *exec.Cmd) Result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", c.Args, err)
	}
	return Result{stdout.String(), stderr.String(), c.ProcessState.ExitCode()}
}
