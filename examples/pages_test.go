package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// TestDoubleReadingPage goes through docs/double-reading.md: second readings are wanted, one of a reading
// that was withdrawn among them, then two third readings, then none.
func TestDoubleReadingPage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		testbed.Lacks(t, "openssl is not installed")
	}
	out, dir := session(t, "double-reading.md")
	var wanted []string
	for _, m := range regexp.MustCompile(`of (\d+) inputs another reading is wanted`).FindAllStringSubmatch(out, -1) {
		wanted = append(wanted, m[1])
	}
	if len(wanted) != 3 || wanted[0] == "0" || wanted[1] != "2" || wanted[2] != "0" {
		t.Errorf("another reading is wanted of %q inputs, expected some, 2 and 0", wanted)
	}
	csv, err := os.ReadFile(filepath.Join(dir, "wanted.csv"))
	if err != nil {
		t.Fatal(err)
	}
	withdrawn, err := os.ReadFile(filepath.Join(dir, "withdrawn.csv"))
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Split(strings.Split(string(withdrawn), "\n")[1], ",")[0]
	if !regexp.MustCompile(`(?m)^\d+,` + id + `,answered,[^,]*,second_read,ann$`).Match(csv) {
		t.Errorf("no second reading of %s is wanted after the first was withdrawn:\n%s", id, csv)
	}
	if !strings.Contains(out, "a third read by another source is wanted; read by ann, bob") {
		t.Errorf("no third reading is wanted in\n%s", out)
	}
}
