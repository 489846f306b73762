package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestPythonPackage runs the tests of the Python package with this build of the daemon.
func TestPythonPackage(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		testbed.Lacks(t, "openssl is not installed")
	}
	tests, err := filepath.Glob("../python/tests/test_*.py")
	if err != nil || len(tests) == 0 {
		t.Fatalf("%d files, error %v", len(tests), err)
	}
	further := map[string][]string{ // modules, by file
		"test_torch.py": {"torch"}, "test_sklearn.py": {"sklearn"}, "test_readme.py": {"torch", "sklearn"},
	}
	for _, file := range tests {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			python := python(t, append(further[filepath.Base(file)], "grpc", "google.protobuf", "numpy", "pytest")...)
			c := exec.CommandContext(t.Context(), python, "-m", "pytest", "-q", "tests/"+filepath.Base(file))
			c.Dir, c.Env = "../python", append(os.Environ(), "CKD_BINARY="+ckd)
			if r := testbed.Run(t, c); r.Code != 0 {
				t.Errorf("exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

// TestPythonTypes checks the types of the Python package, as strictly as mypy can.
func TestPythonTypes(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	python := python(t, "grpc", "google.protobuf", "numpy", "mypy")
	c := exec.CommandContext(t.Context(), python, "-m", "mypy", "--cache-dir", t.TempDir())
	c.Dir = "../python"
	if r := testbed.Run(t, c); r.Code != 0 {
		t.Errorf("exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}
