package daemon_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/config"
)

const (
	firstPolicy  = "models: [{name: m, version: one, classes: [a, b], critical: [b]}]\n"
	secondPolicy = "models: [{name: m, version: two, classes: [a, b], critical: [b]}]\n"
	badPolicy    = "models: [{name: m, classes: [a], critical: [b]}]\n"
)

// reloading is a running daemon that reloads the policies of a folder.
type reloading struct {
	*started
	file string
}

func startReloading(t *testing.T) *reloading {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, file, firstPolicy)
	d := &reloading{start(t, func(c *config.Config) {
		c.Policy, c.Pprof = []string{filepath.Dir(file)}, "127.0.0.1:0"
	}), file}
	d.eventually("/healthz", `version "one"`) // it runs and receives signals
	return d
}

func (d *reloading) write(text string) { d.t.Helper(); write(d.t, d.file, text) }

// write replaces a file as a whole.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".next", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".next", file); err != nil {
		t.Fatal(err)
	}
}

func (d *reloading) request(method, path string) (int, string) {
	d.t.Helper()
	return request(d.t, method, d.AdminURL()+path, func(*http.Request) {})
}

func (d *reloading) eventually(path, part string) {
	d.t.Helper()
	body := ""
	for range 1000 {
		if _, body = d.request(http.MethodGet, path); strings.Contains(body, part) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.t.Errorf("%s never says %q: %s", path, part, body)
}

// TestReloadOnChange checks that a changed file comes into force, that a bad one does not, and that
// the next good one does.
func TestReloadOnChange(t *testing.T) {
	d := startReloading(t)
	d.eventually("/metrics", "ckd_policy_last_reload_successful 1")
	d.write(badPolicy)
	d.eventually("/metrics", "ckd_policy_last_reload_successful 0")
	d.eventually("/healthz", `version "one"`)
	d.eventually("/healthz", "policies: not reloaded, those before stay in force: "+d.file+":1:")
	d.write(secondPolicy)
	d.eventually("/healthz", `version "two"`)
	d.eventually("/metrics", "ckd_policy_last_reload_successful 1")
	if _, body := d.request(http.MethodGet, "/healthz"); strings.Contains(body, "not reloaded") {
		t.Errorf("a failure that is over is reported: %s", body)
	}
}

// TestReloadTellsChanges checks that the log says which policies a reload has put in force and removed,
// and what the former change.
func TestReloadTellsChanges(t *testing.T) {
	d := startReloading(t)
	n := "  - {name: n, classes: [a, b], critical: [b]}\n"
	for _, c := range []struct{ text, want string }{
		{"models:\n  - {name: m, version: two, classes: [a, b], critical: [b]}\n" + n, "policy in force m two [Other fields that changed: version.], policy in force n "},
		{"models:\n  - {name: m, version: three, classes: [a, b], critical: [a]}\n" + n,
			"policy in force m three [Critical, not to be missed (1 of 2 classes): a. Safe: b. Before: Critical, not to be missed (1 of 2 classes): b. Safe: a. " +
				"Other fields that changed: version.]"},
		{"models:\n" + n, "policy removed m three"},
	} {
		d.logs.TakeAll()
		d.write(c.text)
		told := func() string {
			var lines []string
			for _, e := range d.logs.All() {
				if strings.HasPrefix(e.Message, "policy ") {
					line := fmt.Sprint(e.Message, " ", e.ContextMap()["model"], " ", e.ContextMap()["version"])
					if changes := e.ContextMap()["changes"]; changes != nil {
						line += fmt.Sprint(" ", changes)
					}
					lines = append(lines, line)
				}
			}
			return strings.Join(lines, ", ")
		}
		testbed.Eventually(t, c.want, func() bool { return told() == c.want })
	}
}
