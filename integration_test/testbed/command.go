package testbed

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Main builds commands, stores the path of each binary and runs the tests. TestMain calls it with
// the folder of each command.
//
// The tests mostly wait for other programs, so Main runs more of them side by side than there are
// processors. The flag -parallel overrides that.
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
	defer func() { _ = os.RemoveAll(dir) }() // the rest stays in the system's temporary folder
	for folder, binary := range commands {
		if *binary, err = build(dir, folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// Build builds the command of a folder with further flags of go build, and returns the path of the binary.
func Build(t *testing.T, folder string, flags ...string) string {
	t.Helper()
	binary, err := build(t.TempDir(), folder, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// build builds the command of a folder into a directory.
func build(dir, folder string, flags ...string) (binary string, err error) {
	binary = filepath.Join(dir, filepath.Base(folder))
	c := exec.Command("go", append(append([]string{"build", "-o", binary}, flags...), ".")...)
	c.Dir = folder // so that Go finds the module of the command
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("building %s: %w", folder, err)
	}
	return binary, nil
}

// Program returns the path of a program that a test needs, from the environment variable or else
// from the PATH. It skips the test if there is none, or fails it if CKD_REQUIRE_TOOLS is set.
func Program(t *testing.T, name, variable string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		Lacks(t, "%s is not installed; set %s to its path", name, variable)
	}
	return path
}

// Lacks skips a test that misses a tool, or fails it if CKD_REQUIRE_TOOLS is set.
func Lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CKD_REQUIRE_TOOLS") != "" {
		t.Fatalf(format+" (and CKD_REQUIRE_TOOLS is set)", args...)
	}
	t.Skipf(format, args...)
}

// findModules checks for modules without importing them, which would take seconds for PyTorch.
const findModules = `
import importlib.util, sys
sys.exit(not all(importlib.util.find_spec(m) for m in sys.argv[1:]))
`

// Python returns an interpreter that has the modules: $PYTHON or a python3. Without one it skips the
// test, or fails it if CKD_REQUIRE_TOOLS is set.
func Python(t *testing.T, modules ...string) string {
	t.Helper()
	for _, candidate := range []string{os.Getenv("PYTHON"), "python3", "/usr/bin/python3"} {
		if candidate != "" && exec.Command(candidate, append([]string{"-c", findModules}, modules...)...).Run() == nil {
			return candidate
		}
	}
	Lacks(t, "no python3 with %s; set PYTHON to one", strings.Join(modules, " "))
	return ""
}

// Result holds what a command printed and its exit code.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a command and waits until it exits, with any code.
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
