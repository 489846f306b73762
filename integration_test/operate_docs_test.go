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

// TestOperateCommands runs the commands of docs/operate.md from the project's root.
func TestOperateCommands(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	d := serve(t, "--policy", "../deploy/policy/fetal-health.yaml")
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(readPage(t, "operate.md"), -1) {
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
	if ran < 3 {
		t.Errorf("found only %d commands in docs/operate.md", ran)
	}
}

// TestUpgradeCommands runs the commands of docs/upgrade.md in their order: it backs up and verifies a ledger
// that a daemon keeps, loses its folder, restores it, and starts a daemon on it.
func TestUpgradeCommands(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	d := f.serve(t, "127.0.0.1:0", "--ledger", f.ledger)
	backup := filepath.Join(t.TempDir(), "ledger.db")
	own := regexp.MustCompile(`/backup/\S+`)
	var ran []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)\n *```").FindAllStringSubmatch(readPage(t, "upgrade.md"), -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.NewReplacer("/var/lib/ckd/ledger", f.ledger, " receipt-keys", " "+f.keys).Replace(own.ReplaceAllString(strings.TrimSpace(line), backup))
			name := strings.Join(strings.Fields(line)[1:3], " ")
			if ran = append(ran, name); name == "outcomes restore" { // the folder is lost
				if code, err := d.Stop(), os.RemoveAll(f.ledger); code != 0 || err != nil {
					t.Fatalf("exit code %d, error %v", code, err)
				}
			}
			c := exec.CommandContext(inTime(t), "sh", "-c", line)
			c.Env = append(os.Environ(), "PATH="+filepath.Dir(ckd)+":"+os.Getenv("PATH"))
			if r := testbed.Run(t, c); r.Code != 0 {
				t.Errorf("%s: exit %d\n%s%s", line, r.Code, r.Stdout, r.Stderr)
			}
		}
	}
	if want := []string{"outcomes backup", "outcomes verify", "outcomes restore"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	f.serve(t, "127.0.0.1:0", "--ledger", f.ledger)
}
