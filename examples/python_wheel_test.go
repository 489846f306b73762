package examples_test

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestPythonWheel builds the wheel of this machine twice, which must give the same bytes, and runs
// what is in it. The program and the package must have the version that was asked for.
func TestPythonWheel(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	python := python(t, "grpc", "google.protobuf", "numpy", "build", "setuptools", "wheel")
	wheel := buildWheel(t, python, t.TempDir())
	if again := buildWheel(t, python, t.TempDir()); !bytes.Equal(wheel, again) {
		t.Error("the same commit gave two different wheels")
	}
	dir := t.TempDir()
	unzip(t, wheel, dir)
	c := exec.CommandContext(t.Context(), python, "-c", `
import ckd, subprocess, sys
print(ckd.__version__, ckd.__file__)
with ckd.Daemon(sys.argv[1]) as daemon, daemon.client() as client:
    print(client.model("fetal-health").classes)
sys.stdout.flush()
subprocess.run([sys.executable, "-m", "ckd", "version"], check=True)
sys.exit(subprocess.run([sys.executable, "-m", "ckd", "check", "nothing.yaml"]).returncode)
`, "../deploy/policy/fetal-health.yaml")
	c.Env = append(os.Environ(), "PYTHONPATH="+dir, "CKD_BINARY=")
	r := testbed.Run(t, c)
	for _, want := range []string{"1.2.3 " + dir, "('normal', 'suspect', 'pathologic')", "ckd 1.2.3 (revision "} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("%q is not printed\n%s%s", want, r.Stdout, r.Stderr)
		}
	}
	if r.Code != 1 || !strings.Contains(r.Stderr, "nothing.yaml") {
		t.Errorf("exit %d, expected that of ckd check\n%s", r.Code, r.Stderr)
	}
}

// buildWheel builds the wheel of this machine into an empty folder and returns it.
func buildWheel(t *testing.T, python, out string) []byte {
	t.Helper()
	platform := runtime.GOOS + "/" + runtime.GOARCH
	c := exec.CommandContext(t.Context(), python, "../python/wheels.py", "--out", out, "--platform", platform, "--version", "1.2.3")
	if r := testbed.Run(t, c); r.Code != 0 {
		t.Fatalf("exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	files, err := filepath.Glob(filepath.Join(out, "ckd-1.2.3-py3-none-*.whl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, error %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// unzip writes the files of a wheel with their modes, as pip does.
func unzip(t *testing.T, wheel []byte, dir string) {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range archive.File {
		content, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, file.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, file.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}
