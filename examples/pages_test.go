package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// session runs all blocks of a page of docs in order, in a folder of its own, and returns what they print.
func session(t *testing.T, page string, modules ...string) (out, dir string) {
	t.Helper()
	interpreter := python(t, append(modules, "grpc", "google.protobuf", "numpy")...)
	dir = t.TempDir()
	for name, target := range map[string]string{"internal": "../internal", "deploy": "../deploy", "bin/ckd": ckd, "bin/python3": interpreter} {
		target, err := filepath.Abs(target)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)
		}
		if err == nil {
			err = os.Symlink(target, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{"testdata/run_page.py", "../docs/" + page}
	for i, path := range paths {
		var err error
		if _, err = os.Stat(path); err == nil { // makes go test depend on the file
			paths[i], err = filepath.Abs(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, interpreter, paths[0], paths[1], ckd)
	c.Dir, c.Env = dir, append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "CKD_BINARY="+ckd)
	r := testbed.Run(t, c)
	if r.Code != 0 {
		t.Fatalf("docs/%s: exit %d\n%s%s", page, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout, dir
}

// TestOutcomesPage goes through docs/outcomes.md. The ledger counts every outcome that was sent, and is
// the restored one in the end.
func TestOutcomesPage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		testbed.Lacks(t, "openssl is not installed")
	}
	out, dir := session(t, "outcomes.md")
	labels, err := os.ReadFile(filepath.Join(dir, "labels.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if reviews := strings.Count(string(labels), "\n") - 1; reviews < 900 || reviews > 1700 {
		t.Errorf("%d reviews of 2126 inputs, a fifth of them deferred and half of the others audited", reviews)
	}
	for _, want := range []string{"0 outcomes are overdue", "Generation 2 begins", "1 decisions with outcomes are deleted"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
