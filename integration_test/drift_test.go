package integration_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
)

// TestDrift: a policy that calibrate writes has the daemon tell when inputs are no
// longer like those that it was calibrated on: soon, not before, and no longer than
// it lasts.
func TestDrift(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	t.Parallel()
	file := calibrateDigits(t)
	if text := mustRun(t, "check", file).Stdout; !strings.Contains(text,
		"Drift is looked for of 0, 1, 2, 3, 4, 5 and 6, beside 506 inputs: ") {
		t.Errorf("check does not tell of the reference:\n%s", text)
	}
	d := serve(t, "--policy", file)
	c, err := client.Dial(d.GRPC[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := 0
	known, unknown := readDigits(t, "digits-id"), readDigits(t, "digits-ood")
	send := func(of digits, from, inputs int) {
		t.Helper()
		b := client.Batch{Model: "digits", Layout: client.NSK, Passes: of.passes, Inputs: inputs}
		b.Values = of.values[from*of.each : (from+inputs)*of.each]
		if _, err := c.Decompose(inTime(t), b); err != nil {
			t.Fatal(err)
		}
		sent += inputs
	}
	filled := func(window int) float64 {
		return d.gauge("ckd_drift_window_filled", "model", "digits", "window", strconv.Itoa(window))
	}

	// The digits that it was calibrated on, four times over: nothing has changed.
	for range 4 {
		send(known, 0, known.inputs)
		if raised := d.gauge("ckd_drift_alarms_total"); raised != 0 {
			t.Fatalf("%v alarms of %d digits that have not changed", raised, sent)
		}
	}
	if compared := d.gauge("ckd_drift_inputs_total"); compared > float64(sent) || compared < float64(sent-7) {
		t.Errorf("%v inputs of %d are compared", compared, sent)
	}
	for _, window := range []int{64, 256, 1024} {
		if filled(window) != 1 {
			t.Errorf("the window of %d inputs is not filled after %d", window, sent)
		}
	}

	// Another threshold does not begin the windows anew.
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before := d.gauge("ckd_policy_last_reload_success_timestamp_seconds")
	other := bytes.Replace(text, []byte("    critical: "), []byte("    version: two\n    critical: "), 1)
	if err := os.WriteFile(file, other, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy is read again", func() bool {
		return d.gauge("ckd_policy_last_reload_success_timestamp_seconds") != before
	})
	if _, text, _ := d.Get("/metrics"); !strings.Contains(text, `version="two"`) || filled(1024) != 1 {
		t.Error("after another version of the policy the windows are not as they were")
	}

	// Digits that it does not know: 64 inputs at most, and the 7 that may wait.
	const within = 64 + 7
	const batch = 8
	seenAfter, at := 0, 0
	for ; at+batch <= unknown.inputs && seenAfter == 0; at += batch {
		send(unknown, at, batch)
		if d.gauge("ckd_drift_alarm") > 0 {
			seenAfter = at + batch
		}
	}
	t.Logf("digits that it does not know are seen after %d inputs", seenAfter)
	if seenAfter == 0 || seenAfter > within {
		t.Errorf("seen after %d inputs, want at most %d", seenAfter, within)
	}
	for more := 0; at < unknown.inputs; at += more {
		more = min(64, unknown.inputs-at)
		send(unknown, at, more)
		if d.gauge("ckd_drift_alarm") == 0 {
			t.Fatalf("no alarm any more after %d inputs that it does not know", at+more)
		}
	}
	if z := d.gauge("ckd_drift_z", "model", "digits", "class", "0", "signal", "epistemic", "window", "256"); z < 5.5 {
		t.Errorf("z of C_k of a class is %v, want one above 5.5", z)
	}

	// The digits of before: it ends when they have filled every window, which is
	// looked at each eighth of it.
	const ends = 1024 + 1024/8 + 7
	after := 0
	for ; after < ends; after += 46 {
		send(known, after%known.inputs, 46) // 506 are 11 times 46
	}
	if alarms := d.gauge("ckd_drift_alarm"); alarms != 0 {
		t.Errorf("%v alarms after %d inputs that it knows, want none after %d", alarms, after, ends)
	}
}

// TestDriftNeedsReference: without one there are no series of drift, also after a
// reload that takes it out.
func TestDriftNeedsReference(t *testing.T) {
	t.Parallel()
	file := calibrateDigits(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := serve(t, "--policy", file)
	series := func() int {
		_, text, _ := d.Get("/metrics")
		return strings.Count(text, "\nckd_drift_")
	}
	if n, want := series(), 7*3*(2*3+2)+2*3+1; n != want {
		t.Errorf("%d series of drift, want %d", n, want)
	}
	without, _, found := strings.Cut(string(text), "\n      reference:")
	if !found {
		t.Fatalf("the policy has no reference:\n%s", text)
	}
	if err := os.WriteFile(file, []byte(without+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "without a reference there are no series of drift", func() bool { return series() == 0 })
	if n := serve(t, "--policy", writePolicy(t, policyText)).gauge("ckd_drift_alarm"); n != 0 {
		t.Errorf("%v alarms of a policy without a reference", n)
	}
}

// TestDriftQueries: the queries of docs/drift.md, asked of a Prometheus that scrapes a
// daemon with drift, say so.
func TestDriftQueries(t *testing.T) {
	if testing.Short() {
		t.Skip("a Prometheus takes seconds")
	}
	t.Parallel()
	binary, promtool := testbed.Program(t, "prometheus", "PROMETHEUS"), testbed.Program(t, "promtool", "PROMTOOL")
	d := serve(t, "--policy", calibrateDigits(t))
	mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "digits", "--quiet", "--passes", recording("digits-ood", ".passes.npy"))
	p := testbed.StartPrometheus(t, binary, scrapeConfig(t, promtool, d))
	at := p.Scraped(time.Now())
	text, err := os.ReadFile("../docs/drift.md")
	if err != nil {
		t.Fatal(err)
	}
	// Least and greatest value, and series, of the answers in the order of the page.
	answers := []struct {
		low, high float64
		series    int // 0: any number
	}{
		{1, 1, 0},
		{0.5, 1, 0},
		{-0.5, 0.5, 7 * 3}, // over 1024 inputs, which there have not been: 0
		{0, 1, 3},
		{0, math.Inf(1), 7 * 3 * 3},
		{0, 1, 7 * 3},
	}
	blocks := regexp.MustCompile("(?s)```promql\n(.*?)\n```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != len(answers) {
		t.Fatalf("%d queries, want %d", len(blocks), len(answers))
	}
	for i, block := range blocks {
		want, got := answers[i], p.Query(block[1], at)
		if len(got) == 0 || want.series > 0 && len(got) != want.series {
			t.Errorf("%s\nreturns %d series, want %d", block[1], len(got), want.series)
		}
		for _, sample := range got {
			if v := float64(sample.Value); !(v >= want.low && v <= want.high) {
				t.Errorf("%s\n%v is %v, want %v to %v", block[1], sample.Metric, v, want.low, want.high)
			}
		}
	}
}

// TestBadReference: every fault of a reference is told, with where it is, by check
// and by serve.
func TestBadReference(t *testing.T) {
	t.Parallel()
	const file = "../policy/testdata/calibration-reference.bad.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	checked, served := run(t, "check", file), run(t, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--policy", file)
	if checked.Code == 0 || served.Code == 0 {
		t.Errorf("check exits with %d, serve with %d", checked.Code, served.Code)
	}
	faults := 0
	for line := range strings.Lines(string(text)) {
		want, found := strings.CutPrefix(line, "# want: ")
		if !found {
			break
		}
		faults++
		want = filepath.Base(file) + ":" + strings.TrimSpace(want)
		if !strings.Contains(checked.Stdout+checked.Stderr, want) {
			t.Errorf("check does not tell\n%s\nbut\n%s", want, checked.Stdout+checked.Stderr)
		}
		if !strings.Contains(strings.ReplaceAll(served.Stderr, `\"`, `"`), strings.TrimSpace(want)) {
			t.Errorf("serve does not tell\n%s\nbut\n%s", want, served.Stderr)
		}
	}
	if faults < 8 {
		t.Errorf("%d faults looked for", faults)
	}
}

// calibrateDigits makes a policy for the digits from 0 to 6.
func calibrateDigits(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	mustRun(t, "calibrate", "--passes", recording("digits-id", ".passes.npy"), "--labels", recording("digits-id", ".labels.npy"),
		"--classes", "0,1,2,3,4,5,6", "--critical", "1,2", "--name", "digits", "--coverage", "0.8", "--out", file)
	return file
}

// digits is the inputs of a recording, [inputs][passes][classes], of which each has so many
// values.
type digits struct {
	values               []float32
	inputs, passes, each int
}

func readDigits(t *testing.T, name string) digits {
	t.Helper()
	values, n, s, k := readRecording(t, name, math.MaxInt)
	return digits{values, n, s, s * k}
}
