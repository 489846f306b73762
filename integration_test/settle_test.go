package integration_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// learned holds the policy that settledPolicy has learned, and what calibrate said.
var learned struct {
	sync.Once
	policy, told string
}

// settledPolicy returns the file of a policy with a rule that was learned for it.
func settledPolicy(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("to learn a rule takes seconds")
	}
	file := filepath.Join(t.TempDir(), "settled.yaml")
	learned.Do(func() { // it takes seconds
		learned.told = run(t, "calibrate", "--settle", "0.01", "--policy", "testdata/lowrank.yaml", "--passes", recording("ctg-lowrank", ".passes.npy"), "--out", file).Stdout
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		learned.policy = string(text)
	})
	if !strings.Contains(learned.told, "at most 0.01 of the inputs are decided otherwise") {
		t.Fatalf("calibrate says:\n%s", learned.told)
	}
	if err := os.WriteFile(file, []byte(learned.policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// actions are those that a command printed as JSON lines, by the number of the input.
func actions(t *testing.T, out string) map[int]string {
	t.Helper()
	all := map[int]string{}
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Index    int `json:"index"`
			Decision struct {
				Action string `json:"action"`
			} `json:"decision"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		all[line.Index] = line.Decision.Action
	}
	return all
}

// TestFrontier: the picture in the README is what the command draws.
func TestFrontier(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("other processors round otherwise")
	}
	if testing.Short() {
		t.Skip("to draw it takes seconds")
	}
	want, err := os.ReadFile("../docs/settle-frontier.svg")
	if err != nil {
		t.Fatal(err)
	}
	out := mustRun(t, "evaluate", "--settle", "--policy", "testdata/lowrank.yaml", "--format", "svg",
		"--passes", recording("ctg-lowrank", ".passes.npy"), "--labels", recording("ctg-lowrank", ".labels.npy"))
	if out.Stdout != string(want) {
		t.Error("ckd evaluate --settle --policy integration_test/testdata/lowrank.yaml --format svg, with the passes and labels of " +
			"ctg-lowrank, does not draw docs/settle-frontier.svg")
	}
}

// TestSettle learns a rule, and has the daemon settle real passes by it: a third of the
// passes is enough, and the decisions are those of all passes but for the share that is
// certified, or thereabouts.
func TestSettle(t *testing.T) {
	t.Parallel()
	file := settledPolicy(t)
	if text := mustRun(t, "check", file).Stdout; !strings.Contains(text, "With confidence 0.9, at most 1% of the inputs are then decided otherwise") {
		t.Errorf("check does not tell of the rule:\n%s", text)
	}
	d := serve(t, "--policy", file)
	replay := func(args ...string) (stdout, stderr string) {
		t.Helper()
		all := append([]string{"replay", "--addr", d.GRPC[0], "--model", "ctg", "--passes", recording("ctg-lowrank", ".passes.npy")}, args...)
		r := mustRun(t, all...)
		return r.Stdout, r.Stderr
	}
	full, _ := replay()
	want := actions(t, full)
	const inputs = 2126
	if len(want) != inputs || d.gauge("ckd_passes_saved_total") != 0 {
		t.Fatalf("%d inputs decided, %v passes saved of a client that does not accept it", len(want), d.gauge("ckd_passes_saved_total"))
	}
	replay("--settle", "--quiet") // has the 400 that are all audited
	settled, told := replay("--settle")
	got, differ := actions(t, settled), 0
	for i, action := range want {
		if got[i] != action {
			differ++
		}
	}
	// 1% of 2126 is 21; half of the inputs taught the rule.
	if len(got) != inputs || differ > 40 {
		t.Errorf("%d inputs decided, %d of them otherwise", len(got), differ)
	}
	figures := regexp.MustCompile(`(\S+) of 30 passes used on average\n.* (\d+) passes sent, (\d+) saved: (\S+)x fewer`).FindStringSubmatch(told)
	if figures == nil {
		t.Fatalf("replay says %s", told)
	}
	factor, err := strconv.ParseFloat(figures[4], 64)
	if err != nil || factor < 2.5 {
		t.Errorf("%s times fewer passes: %v", figures[4], err)
	}
	t.Logf("%d of %d decided otherwise, %s", differ, inputs, strings.TrimSpace(told))

	saved, late, audited := d.gauge("ckd_passes_saved_total"), d.gauge("ckd_passes_late_total"), d.gauge("ckd_settle_audited_total")
	if saved < 2*inputs*30/2 || late > saved/100 || audited < 400 || audited > inputs {
		t.Errorf("%v passes saved, %v late, %v inputs audited", saved, late, audited)
	}
	if stopped := d.gauge("ckd_settle_stopped"); stopped != 0 {
		t.Error("settling has stopped")
	}
	if _, text, _ := d.Get("/healthz"); !strings.Contains(text, "model ctg: settles inputs before their last pass: ") {
		t.Errorf("/healthz says %s", text)
	}
}

// TestSettleStops has a rule that settles whatever it sees: audits find it out, and the
// daemon then waits for all passes, until there is another policy.
func TestSettleStops(t *testing.T) {
	t.Parallel()
	file := settledPolicy(t)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wrong := regexp.MustCompile(`at_most: -\S+`).ReplaceAll(good, []byte("at_most: 999999"))
	if err := os.WriteFile(file, wrong, 0o600); err != nil {
		t.Fatal(err)
	}
	d := serve(t, "--policy", file)
	replay := func() (saved string) {
		t.Helper()
		r := mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "ctg", "--quiet", "--settle", "--passes", recording("ctg-lowrank", ".passes.npy"))
		if strings.Contains(r.Stderr, "ckd: nothing is settled early: ") {
			return "0"
		}
		figures := regexp.MustCompile(`(\d+) saved`).FindStringSubmatch(r.Stderr)
		if figures == nil {
			t.Fatalf("replay says %s", r.Stderr)
		}
		return figures[1]
	}
	replay()
	if d.gauge("ckd_settle_stopped") != 1 || !strings.Contains(d.Log(), "settling has stopped") {
		t.Error("settling has not stopped")
	}
	if _, text, _ := d.Get("/healthz"); !strings.Contains(text, "model ctg: has stopped to settle") {
		t.Errorf("/healthz says %s", text)
	}
	if saved := replay(); saved != "0" {
		t.Errorf("%s passes saved after the stop", saved)
	}
	reload := func(text []byte) {
		t.Helper()
		before := d.gauge("ckd_policy_last_reload_success_timestamp_seconds")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Process.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the policy is read again", func() bool {
			return d.gauge("ckd_policy_last_reload_success_timestamp_seconds") != before
		})
	}
	reload([]byte(strings.Replace(string(wrong), "    critical: ", "    version: two\n    critical: ", 1)))
	if saved := replay(); saved != "0" || d.gauge("ckd_settle_stopped") != 1 {
		t.Errorf("%s passes saved after a reload that changes nothing", saved)
	}
	reload(good)
	replay()
	if saved := replay(); saved == "0" || d.gauge("ckd_settle_stopped") != 0 {
		t.Errorf("%s passes saved after another policy", saved)
	}
}
