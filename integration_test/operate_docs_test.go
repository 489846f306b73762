package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestOperateReaders checks that docs/metric-readers.md names a reader for exactly the metrics of
// docs/metrics.md.
func TestOperateReaders(t *testing.T) {
	t.Parallel()
	rows := func(page string) (names []string) {
		for _, m := range regexp.MustCompile("(?m)^\\| `(ckd_\\w+)` \\|(.*)$").FindAllStringSubmatch(readPage(t, page), -1) {
			if !regexp.MustCompile(`\w`).MatchString(m[2]) {
				t.Errorf("%s says nothing of %s", page, m[1])
			}
			names = append(names, m[1])
		}
		slices.Sort(names)
		return names
	}
	declared, read := rows("metrics.md"), rows("metric-readers.md")
	for _, name := range declared {
		if !slices.Contains(read, name) {
			t.Errorf("docs/metric-readers.md does not say who reads %s", name)
		}
	}
	for _, name := range read {
		if !slices.Contains(declared, name) {
			t.Errorf("docs/metric-readers.md speaks of %s, which docs/metrics.md does not have", name)
		}
	}
	if len(declared) < 40 || len(slices.Compact(read)) != len(declared) {
		t.Errorf("%d metrics are declared, and %d read", len(declared), len(read))
	}
}

// TestSizingCommands runs the commands of docs/sizing.md from the project's root.
func TestSizingCommands(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	d := serve(t, "--policy", "../deploy/policy/fetal-health.yaml")
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(readPage(t, "sizing.md"), -1) {
		for line := range strings.Lines(block[1]) {
			ran++
			name := strings.Fields(line)[0]
			t.Run(name, func(t *testing.T) {
				path := filepath.Dir(ckd) + ":" + os.Getenv("PATH")
				if name != "ckd" {
					path = filepath.Dir(testbed.Program(t, name, strings.ToUpper(name))) + ":" + path
				}
				own := strings.NewReplacer("127.0.0.1:8590", d.GRPC[0], "http://127.0.0.1:9590", d.Admin).Replace(line)
				c := exec.CommandContext(inTime(t), "sh", "-c", own)
				c.Dir, c.Env = "..", append(os.Environ(), "PATH="+path)
				r := testbed.Run(t, c)
				if r.Code != 0 || r.Stdout+r.Stderr == "" || strings.Contains(r.Stdout, "Error distribution") {
					t.Errorf("%s: exit %d\n%s%s", line, r.Code, r.Stdout, r.Stderr)
				}
			})
		}
	}
	if ran < 4 {
		t.Errorf("found only %d commands in docs/sizing.md", ran)
	}
}
