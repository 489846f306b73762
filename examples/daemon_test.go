package examples_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// ckd is the daemon's binary, and goExample that of the Go example; TestMain
// builds them.
var ckd, goExample string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if err := os.Setenv("PYTHONDONTWRITEBYTECODE", "1"); err != nil { // beside the examples
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return testbed.Main(m, map[string]*string{"../cmd/ckd": &ckd, "./go": &goExample})
	}())
}

const (
	policyFile = "../deploy/policy/fetal-health.yaml"
	recording  = "../internal/recordings/ctg-mcdropout.passes.npy"
)

// python finds an interpreter that has the modules. Without one the test is
// skipped, unless CKD_REQUIRE_TOOLS is set.
func python(t *testing.T, modules ...string) string {
	t.Helper()
	for _, pattern := range []string{"*/*.py", "*/*.binpb", "*/*/*.py", "triton/*/*/*/*.py"} {
		files, err := filepath.Glob(pattern)
		for _, file := range files {
			if _, statErr := os.Stat(file); err == nil { // by which go test learns what this depends on
				err = statErr
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	names := strings.Join(modules, " ")
	interpreters.Lock()
	defer interpreters.Unlock()
	path, known := interpreters.byModules[names]
	for _, candidate := range []string{os.Getenv("PYTHON"), "python3", "/usr/bin/python3"} {
		if !known && candidate != "" && exec.Command(candidate, append([]string{"-c", findModules}, modules...)...).Run() == nil {
			path, known = candidate, true
		}
	}
	interpreters.byModules[names] = path
	if path == "" {
		lacks(t, "no python3 with %s; set PYTHON to one", names)
	}
	return path
}

// interpreters remembers what python found: "" for none.
var interpreters = struct {
	sync.Mutex
	byModules map[string]string
}{byModules: map[string]string{}}

// findModules finds modules without importing them, which takes PyTorch seconds.
const findModules = `
import importlib.util, sys
sys.exit(not all(importlib.util.find_spec(m) for m in sys.argv[1:]))
`

// lacks skips a test for want of something, unless CKD_REQUIRE_TOOLS is set.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CKD_REQUIRE_TOOLS") != "" {
		t.Fatalf(format+" (and CKD_REQUIRE_TOOLS is set)", args...)
	}
	t.Skipf(format, args...)
}

func run(t *testing.T, name string, args ...string) testbed.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return testbed.Run(t, exec.CommandContext(ctx, name, args...))
}

// serve starts a daemon on a free port, and stops it at the end of the test.
func serve(t *testing.T, args ...string) *testbed.Daemon {
	t.Helper()
	return serveOn(t, "127.0.0.1:0", append([]string{"--policy", policyFile}, args...)...)
}

func serveOn(t *testing.T, listen string, args ...string) *testbed.Daemon {
	t.Helper()
	withHTTP := slices.Contains(args, "--http")
	command := exec.Command(ckd, append([]string{"serve", "--listen", listen, "--admin", "127.0.0.1:0"}, args...)...)
	return testbed.StartUntil(t, command, func(d *testbed.Daemon) bool {
		return len(d.GRPC) > strings.Count(listen, ",") && d.Admin != "" && (d.HTTP != "" || !withHTTP)
	})
}
