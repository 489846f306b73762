package calibrate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/timed"
)

// TestOutside builds and runs a program of another module that evaluates and calibrates with arrays
// of its own. It uses no network: what this module needs is in the module cache.
func TestOutside(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copied := func(from, to string, change func(string) string) {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), []byte(change(string(data))), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	as := func(text string) string { return text }
	copied("testdata/outside/main.go", "main.go", as)
	copied("../go.sum", "go.sum", as)
	copied("../go.mod", "go.mod", func(text string) string {
		return "module example.com/outside\n\n" + regexp.MustCompile(`(?m)^go \S+$`).FindString(text) +
			"\n\nrequire github.com/ckd-project/ckd v0.0.0\n\nreplace github.com/ckd-project/ckd => " + root + "\n"
	})
	run := exec.CommandContext(t.Context(), "go", "run", ".")
	run.Dir = dir
	run.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	out, err := run.CombinedOutput()
	switch {
	case err != nil && strings.Contains(string(out), "GOPROXY=off"):
		t.Skipf("the module cache lacks something: %s", out)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "600 inputs, 600 decisions, policy outside with "; !strings.Contains(string(out), want) {
		t.Errorf("it says %q, expected %q", out, want)
	}
}
