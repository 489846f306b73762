package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

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
