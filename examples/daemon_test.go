package examples_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// ckd and goExample are the paths of the daemon and of the Go example, which TestMain builds.
var ckd, goExample string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		// Otherwise Python writes its cache beside the examples, and does not find the package.
		// And its arithmetic waits in threads that spin, beside other tests.
		if err := errors.Join(os.Setenv("PYTHONDONTWRITEBYTECODE", "1"), os.Setenv("OMP_NUM_THREADS", "1"), setPythonPath()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return testbed.Main(m, map[string]*string{"../cmd/ckd": &ckd, "./go": &goExample})
	}())
}

// setPythonPath lets Python find the package ckd.
func setPythonPath() error {
	path, err := filepath.Abs("../python")
	if err != nil {
		return err
	}
	return os.Setenv("PYTHONPATH", path)
}

const (
	policyFile = "../deploy/policy/fetal-health.yaml"
	recording  = "../internal/recordings/ctg-mcdropout.passes.npy"
)

// python returns an interpreter that has the modules.
func python(t *testing.T, modules ...string) string {
	t.Helper()
	for _, pattern := range []string{"*/*.py", "*/*/*.py", "triton/*/*/*/*.py", "../python/ckd/*", "../python/tests/*.py"} {
		files, err := filepath.Glob(pattern)
		for _, file := range files {
			if _, statErr := os.Stat(file); err == nil { // makes go test depend on the file
				err = statErr
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return testbed.Python(t, modules...)
}

func run(t *testing.T, name string, args ...string) testbed.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return testbed.Run(t, exec.CommandContext(ctx, name, args...))
}

// script runs Python code that has ckd and NumPy imported.
func script(t *testing.T, code string, args ...string) testbed.Result {
	t.Helper()
	const imports = "import sys\nimport ckd, numpy\n"
	interpreter := python(t, "grpc", "google.protobuf", "numpy")
	return run(t, interpreter, append([]string{"-c", imports + code}, args...)...)
}

// serve starts a daemon on a free port and stops it at the end of the test.
func serve(t *testing.T, args ...string) *testbed.Daemon {
	t.Helper()
	return serveOn(t, "127.0.0.1:0", append([]string{"--policy", policyFile}, args...)...)
}

func serveOn(t *testing.T, listen string, args ...string) *testbed.Daemon {
	t.Helper()
	return testbed.ServeOn(t, ckd, listen, args...)
}
