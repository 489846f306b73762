package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// loggedPolicy has a log of what is to be reviewed, and of a share or all of the rest.
func loggedPolicy(decisions string, threshold float64) string {
	text := strings.Replace(policyText, "threshold: 0.052", fmt.Sprintf("threshold: %v", threshold), 1)
	return text + "    log: {decisions: " + decisions + ", id: plain, vectors: true}\n"
}

// wantLogged expects every record of a daemon to be written or left out.
func wantLogged(t *testing.T, d *daemon, decided float64) {
	t.Helper()
	eventually(t, "all records are written", func() bool { return d.gauge("ckd_decision_log_waiting") == 0 })
	if all := d.gauge("ckd_decision_log_records_total"); all != decided || d.gauge("ckd_decisions_total") != decided {
		t.Errorf("the log counts %v decisions of %v, want %v", all, d.gauge("ckd_decisions_total"), decided)
	}
}

// TestDecisionLog replays a recording to a daemon with a decision log, under two policies, with the file moved away
// between them. The log has what the client was answered, and tells a byte that is changed.
func TestDecisionLog(t *testing.T) {
	t.Parallel()
	const inputs = 2126
	path, policies := filepath.Join(t.TempDir(), "decisions.log"), writePolicy(t, loggedPolicy("all", 0.052))
	d := serve(t, "--policy", policies, "--decision-log", path)
	replay := func() (lines []replayLine) {
		return decodeLines[replayLine](t, mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "fetal-health", "--passes", recording("ctg-mcdropout", ".passes.npy")).Stdout)
	}
	first := replay()
	wantLogged(t, d, inputs)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	d.replacePolicy(policies, loggedPolicy("0.1", 0.02)) // by SIGHUP, on which the daemon begins a new file
	eventually(t, "there is a new file", func() bool { _, err := os.Stat(path); return err == nil })
	second := replay()
	wantLogged(t, d, 2*inputs)
	leftOut := d.gauge("ckd_decision_log_records_total", "result", "left_out")
	if code := d.Stop(); code != 0 {
		t.Errorf("exit %d", code)
	}

	if r := mustRun(t, "log", "verify", path, path+".1"); !strings.HasPrefix(r.Stdout, "The log is whole. Of 1 process it has") ||
		!strings.Contains(r.Stdout, fmt.Sprintf(" %d records; %v decisions were left out", 2*inputs-int(leftOut), leftOut)) || strings.Contains(r.Stdout, "note") {
		t.Errorf("verify says %s", r.Stdout)
	}
	type record struct {
		Number                        int
		ID, Action, Reason, Predicted string
		Value, Share                  float64
		Mean                          []float64
	}
	records := decodeLines[record](t, mustRun(t, "log", "cat", path+".1").Stdout)
	if len(records) != inputs {
		t.Fatalf("%d records of the first policy, want %d", len(records), inputs)
	}
	byID := map[string]record{}
	for _, r := range records {
		byID[r.ID] = r
	}
	for _, answered := range first {
		r := byID[fmt.Sprint(answered.Index)]
		if d := answered.Decision; r.Action != d.Action || r.Reason != d.Reason || r.Value != d.Value || (len(r.Mean) > 0) != (d.Action == "defer") {
			t.Fatalf("input %d: record %+v, answered %+v", answered.Index, r, d)
		}
	}
	deferred, sampled := 0, 0
	for _, r := range decodeLines[record](t, mustRun(t, "log", "cat", path).Stdout) {
		if r.Action == "defer" {
			deferred++
		} else if sampled++; r.Share != 0.1 {
			t.Errorf("record %d has share %v", r.Number, r.Share)
		}
	}
	want := 0
	for _, answered := range second {
		if answered.Decision.Action == "defer" {
			want++
		}
	}
	// Three in ten million samples of a tenth have fewer or more by five standard deviations.
	if n := float64(inputs - want); deferred != want || float64(sampled) < 0.1*n-5*0.3*46 || float64(sampled) > 0.1*n+5*0.3*46 {
		t.Errorf("%d records are of deferred inputs, want %d; %d of the other %v", deferred, want, sampled, n)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(text, []byte(`"action":"defer"`)) + len(`"action":"d`)
	text[at]++
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "log", "verify", path, path+".1"); r.Code != 1 || !strings.Contains(r.Stdout, path+":") || !strings.Contains(r.Stdout, "are not as they were written: their SHA-256 is") {
		t.Errorf("of a changed byte verify says, with exit %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// TestDecisionLogOfNobody has the log go to a pipe that nobody reads: every input is answered, and what is lost is
// counted, told, and does not hold up the end.
func TestDecisionLogOfNobody(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	d := serve(t, "--policy", writePolicy(t, loggedPolicy("all", 0.052)), "--decision-log", pipe, "--shutdown-grace", "1s")
	decided := 0.0
	for d.gauge("ckd_decision_log_records_total", "result", "lost") == 0 {
		r := mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "fetal-health", "--quiet", "--passes", recording("ctg-mcdropout", ".passes.npy"))
		if decided += 2126; decided > 60*2126 {
			t.Fatalf("%v decisions and none is lost: %s", decided, r.Stderr)
		}
	}
	if all := d.gauge("ckd_decision_log_records_total") + d.gauge("ckd_decision_log_waiting"); all != decided {
		t.Errorf("the log counts %v decisions, want %v", all, decided)
	}
	d.says("the decision log loses records: ")
	d.says("a write does not return: a pipe that nobody reads")
	began := time.Now()
	if code := d.Stop(); code != 0 || time.Since(began) > hang/2 {
		t.Errorf("exit %d after %v", code, time.Since(began))
	}
	d.says("the decision log is not complete")
}

// TestDecisionLogOnStdout reads the lines of a daemon's standard output.
func TestDecisionLogOnStdout(t *testing.T) {
	t.Parallel()
	d := serve(t, "--policy", writePolicy(t, loggedPolicy("reviewed", 0.052)), "--decision-log", "stdout")
	mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "fetal-health", "--quiet", "--passes", recording("ctg-mcdropout", ".passes.npy"))
	wantLogged(t, d, 2126)
	d.Stop()
	var kinds [3]int
	for line := range strings.Lines(d.Log()) {
		var said struct {
			Number int
			Action string
			Start  *struct{ Why string }
			Close  *struct{ Written, Left_Out int }
		}
		switch err := json.Unmarshal([]byte(line), &said); {
		case err != nil:
			t.Errorf("%v: %s", err, line)
		case said.Start != nil:
			kinds[0]++
		case said.Close != nil:
			kinds[1] += said.Close.Written
		case said.Number > 0:
			kinds[2]++
		}
	}
	if kinds[0] != 1 || kinds[1] == 0 || kinds[1] != kinds[2] {
		t.Errorf("%d start lines, %d records in close lines and %d records", kinds[0], kinds[1], kinds[2])
	}
}
