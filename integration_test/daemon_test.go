package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// ckd is the binary under test, which TestMain builds.
var ckd string

func TestMain(m *testing.M) { os.Exit(testbed.Main(m, map[string]*string{"../cmd/ckd": &ckd})) }

// Recordings with golden numbers.
var recordings = []string{"ctg-mcdropout", "ctg-lowrank", "ctg-ensemble"}

func recording(name, suffix string) string {
	return filepath.Join("..", "internal", "recordings", name+suffix)
}

// policyText is a policy that accepts all three recordings, ensemble included.
const policyText = `
models:
  - name: fetal-health
    version: integration
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 5}
    primary: {score: c_crit_max, threshold: 0.052}
    fallback: {score: cbec, threshold: 0.023}
`

func writePolicy(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs ckd to its end.
func run(t *testing.T, args ...string) testbed.Result {
	t.Helper()
	return testbed.Run(t, exec.CommandContext(inTime(t), ckd, args...))
}

// mustRun runs ckd, which must exit with 0.
func mustRun(t *testing.T, args ...string) testbed.Result {
	t.Helper()
	r := run(t, args...)
	if r.Code != 0 {
		t.Fatalf("ckd %s: exit %d\n%s", strings.Join(args, " "), r.Code, r.Stderr)
	}
	return r
}

// daemon is a running ckd serve.
type daemon struct {
	*testbed.Daemon
	t *testing.T
}

// serve starts a daemon on free ports and waits until it listens. It is stopped
// at the end of the test.
func serve(t *testing.T, args ...string) *daemon {
	t.Helper()
	return &daemon{testbed.Serve(t, ckd, args...), t}
}

func serveOn(t *testing.T, listen string, args ...string) *daemon {
	t.Helper()
	return &daemon{testbed.ServeOn(t, ckd, listen, args...), t}
}
