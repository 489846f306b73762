package integration_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/timed"
)

// TestEarlyStopping learns a rule and replays real passes with it. A third of the passes must be
// enough, and nearly all decisions must be those of all passes. Then it serves a rule that settles
// everything: full-pass checks must stop it until there is another policy.
func TestEarlyStopping(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	const inputs = 2126
	passes, file := recording("ctg-lowrank", ".passes.npy"), filepath.Join(t.TempDir(), "settled.yaml")
	mustRun(t, "calibrate", "early-stop", "--policy", "testdata/lowrank.yaml", "--passes", passes, "--out", file)
	if text := mustRun(t, "check", file).Stdout; !regexp.MustCompile(`With confidence 90%,\s+at most\s+1%`).MatchString(text) {
		t.Errorf("check does not tell of the rule:\n%s", text)
	}
	d := serve(t, "--policy", file)
	replay := func(flags ...string) (lines []replayLine, summary string) {
		t.Helper()
		r := mustRun(t, append([]string{"replay", "--addr", d.GRPC[0], "--model", "ctg", "--passes", passes}, flags...)...)
		return decodeLines[replayLine](t, r.Stdout), r.Stderr
	}
	want, _ := replay()
	if saved := d.gauge("ckd_passes_saved_total"); len(want) != inputs || saved != 0 {
		t.Fatalf("%d inputs decided, %v passes saved of a client that does not accept it", len(want), saved)
	}
	replay("--settle") // uses up the first 400 inputs, which are all checked
	got, summary := replay("--settle")
	differ := 0
	for i := range min(len(got), inputs) {
		if got[i].Decision.Action != want[i].Decision.Action {
			differ++
		}
	}
	// 1% of 2126 is 21, and the rule was learned on half of the inputs.
	if len(got) != inputs || differ > 40 {
		t.Errorf("%d inputs decided, %d of them otherwise", len(got), differ)
	}
	figures := regexp.MustCompile(`of 30 passes used on average\n.* saved: (\S+)x fewer`).FindStringSubmatch(summary)
	if figures == nil {
		t.Fatalf("replay says %s", summary)
	}
	if factor, err := strconv.ParseFloat(figures[1], 64); err != nil || factor < 2.5 {
		t.Errorf("%s times fewer passes: %v", figures[1], err)
	}
	saved, late, checked := d.gauge("ckd_passes_saved_total"), d.gauge("ckd_passes_late_total"), d.gauge("ckd_early_stop_checked_total")
	if saved < 2*inputs*30/2 || late > saved/100 || checked < 400 || checked > inputs {
		t.Errorf("%v passes saved, %v late, %v inputs checked", saved, late, checked)
	}
	health := func(want string) {
		t.Helper()
		if _, text, _ := d.Get("/healthz"); !strings.Contains(text, want) {
			t.Errorf("/healthz says %s, want %q", text, want)
		}
	}
	health(" checked were decided otherwise (certified: at most 0.01 of all)")

	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d.replacePolicy(file, regexp.MustCompile(`(retain|defer): -?[0-9.]+`).ReplaceAllString(string(good), "$1: 999999"))
	replay("--settle")
	eventually(t, "full-pass checks stop the rule", func() bool { return d.gauge("ckd_early_stop_halted") == 1 })
	health("load another policy: ")
	if _, summary := replay("--settle"); !strings.Contains(summary, "ckd: no early stopping: ") {
		t.Errorf("after the stop replay says %s", summary)
	}
	d.replacePolicy(file, string(good))
	if _, summary := replay("--settle"); d.gauge("ckd_early_stop_halted") != 0 || strings.Contains(summary, "no early stopping") {
		t.Errorf("after another policy replay says %s", summary)
	}
}
