package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/policy"
)

// decisionLog writes a log of three decisions, and returns its path and that of the key file for its ids.
func decisionLog(t *testing.T) (path, keyFile string) {
	t.Helper()
	path, keyFile = filepath.Join(t.TempDir(), "decisions.log"), filepath.Join(t.TempDir(), "keys")
	secret := strings.Repeat("5a", 32)
	if err := os.WriteFile(keyFile, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	hash := outcometest.Keys(t, secret).DrawKey().ID([]byte("exam, 2"))
	l, err := decisionlog.Open(decisionlog.Options{Path: path, Software: "1"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetPolicies(nil)
	var scores [decomp.NumScores]float64
	scores[decomp.MI] = 0.25
	begin := time.Date(2026, 3, 1, 23, 59, 59, 0, time.UTC).UnixMicro()
	add := func(r decisionlog.Record, d policy.Decision) {
		r.Classes, r.Decision, r.Scores, r.Passes, r.Share = []string{"a", "b"}, &d, &scores, 30, 1
		l.Add(&r)
	}
	add(decisionlog.Record{Time: begin, Model: "one", PolicyHash: "abc", ID: []byte("exam, 1")},
		policy.Decision{Action: policy.Defer, Reason: policy.AboveThreshold, Score: policy.MI, Value: 0.25, Threshold: 0.1, HasThreshold: true, Class: 1})
	add(decisionlog.Record{Time: begin + 1_000_000, Model: "one", PolicyHash: "abd", IDHash: hash},
		policy.Decision{Action: policy.Retain, Reason: policy.UnderThreshold, Score: policy.MI, Value: 0.05, Class: -1})
	add(decisionlog.Record{Time: begin + 2_000_000, Model: "two", PolicyHash: "abe"},
		policy.Decision{Action: policy.Retain, Reason: policy.PredictedCritical, Score: policy.MI, Value: 0.05, Class: -1})
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path, keyFile
}

// TestLogCat chooses records by every flag.
func TestLogCat(t *testing.T) {
	t.Parallel()
	path, keys := decisionLog(t)
	for flags, want := range map[string]string{
		"":                            "123",
		"--model one":                 "12",
		"--action retain":             "23",
		"--reason predicted_critical": "3",
		"--policy ab":                 "123",
		"--policy abd":                "2",
		"--since 2026-03-02":          "23",
		"--until 2026-03-02":          "1",
		"--since 2026-03-01T23:59:59Z --until 2026-03-02T00:00:01Z": "12",
		"--id=exam,_1":                        "1",
		"--id=exam,_2":                        "",
		"--id=exam,_2 --receipt-keys " + keys: "2",
	} {
		args := []string{"log", "cat", path}
		for flag := range strings.FieldsSeq(flags) {
			args = append(args, strings.ReplaceAll(flag, ",_", ", "))
		}
		out, stderr, code := runCommand(t, args...)
		got := ""
		for line := range strings.Lines(out) {
			got += strings.TrimPrefix(line, `{"number":`)[:1]
		}
		if code != 0 || got != want {
			t.Errorf("%s: exit %d, records %q, want %q\n%s", flags, code, got, want, stderr)
		}
	}
	out, _, code := runCommand(t, "log", "cat", "--format", "csv", path)
	const first = "1,2026-03-01T23:59:59Z,\"exam, 1\",,one,,abc,defer,above_threshold,,mi,0.25,0.1,b,a,,0,30,false,false,0,,,0,0.25,"
	if rows := strings.Split(out, "\n"); code != 0 || len(rows) != 5 || !strings.HasPrefix(rows[0], "number,time,id,") || !strings.HasPrefix(rows[1], first) {
		t.Errorf("exit %d, table %s", code, out)
	}
	for text, args := range map[string][]string{
		"--receipt-keys means nothing": {"--receipt-keys", keys},
		"expected a day or a time":     {"--since", "yesterday"},
	} {
		if _, stderr, code := runCommand(t, append([]string{"log", "cat", path}, args...)...); code != 2 || !strings.Contains(stderr, text) {
			t.Errorf("%v: exit %d: %s", args, code, stderr)
		}
	}
}

// TestLogFaults gives files that are none of a decision log, or not as they were written.
func TestLogFaults(t *testing.T) {
	t.Parallel()
	path, _ := decisionLog(t)
	if out, stderr, code := runCommand(t, "log", "verify", path); code != 0 || out != "The log is whole. Of 1 process it has 3 records; 0 decisions were left out as policies say, and 0 records were lost.\n" {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `"exam, 1"`, `"exam, 1`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, code := runCommand(t, "log", "verify", path); code != 1 || !strings.Contains(out, "The log is not as it was written: 3 faults.") || !strings.Contains(out, path+":2: not a line of a decision log: ") {
		t.Errorf("exit %d: %s", code, out)
	}
	if out, stderr, code := runCommand(t, "log", "cat", path); code != 1 || strings.Count(out, "\n") != 2 || !strings.Contains(stderr, path+":2: not a line of a decision log: ") {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	for _, command := range []string{"cat", "verify"} {
		if _, stderr, code := runCommand(t, "log", command, path+".none"); code != 1 || !strings.Contains(stderr, "no such file") {
			t.Errorf("%s: exit %d: %s", command, code, stderr)
		}
	}
}
