package integration_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/client"
)

// TestWhatif logs what a daemon decides, reports what was true, and asks what two other policies would have decided: that
// must be what they decide about the same passes. The receipts must hold what the log has.
func TestWhatif(t *testing.T) {
	t.Parallel()
	const inputs = 500
	f := newLedgered(t)
	old := loggedPolicy("all", 0.052) + "    audit: {rate: 0.5, m: 1, due: 1s}\n"
	if err := os.WriteFile(f.policy, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "decisions.log")
	d := serveSite(t, "--policy", f.policy, "--receipt-keys", f.keys, "--ledger", f.ledger, "--decision-log", path)
	all := f.stream(t, d, "", inputs)
	wantLogged(t, d, inputs)
	_, outcomes := outcomesOf(all)
	if _, err := f.dial(t, d).ReportOutcomes(inTime(t), outcomes, client.Reconnect{}); err != nil {
		t.Fatal(err)
	}
	export := filepath.Join(t.TempDir(), "outcomes.jsonl")
	exported := outcomesOn(t, d, "export")
	if err := os.WriteFile(export, []byte(exported), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("exit %d", code)
	}

	type record struct {
		Action, Reason, Predicted, Stratum string
		Policy                             string  `json:"policy_hash"`
		Version                            string  `json:"model_version"`
		Value                              float32 // as receipts have it
		Passes                             int
		Review                             bool
		Propensity                         float32
	}
	logged := decodeLines[record](t, mustRun(t, "log", "cat", path).Stdout)
	opened := decodeLines[record](t, mustRun(t, "receipts", "open", "--receipt-keys", f.keys, "--policy", f.policy, casesFile(t, all)).Stdout)
	if len(logged) != inputs || len(opened) != inputs {
		t.Fatalf("%d records, and %d receipts opened", len(logged), len(opened))
	}
	byID := map[int]record{}
	for i, record := range decodeLines[struct{ ID string }](t, mustRun(t, "log", "cat", path).Stdout) {
		id, err := strconv.Atoi(record.ID)
		if err != nil {
			t.Fatal(err)
		}
		byID[id] = logged[i]
	}
	for i := range inputs {
		if byID[i] != opened[i] {
			t.Fatalf("input %d: record %+v, receipt %+v", i, byID[i], opened[i])
		}
	}

	var report struct {
		Decisions, More, Fewer, Unknown float64
		Outcomes                        struct {
			Known                int
			MissedThen, ReadThen float64
		}
	}
	for _, threshold := range []float64{0.03, 0.08} {
		next := writePolicy(t, strings.Replace(loggedPolicy("all", threshold), "threshold: 0.023", "threshold: 0.03", 1))
		more, fewer := 0.0, 0.0
		for i, r := range decodeLines[replayLine](t, mustRun(t, "decompose", "--policy", next, "--passes", recording("ctg-mcdropout", ".passes.npy")).Stdout)[:inputs] {
			switch then := byID[i].Action; {
			case then == "retain" && r.Decision.Action == "defer":
				more++
			case then == "defer" && r.Decision.Action == "retain":
				fewer++
			}
		}
		text := mustRun(t, "whatif", "--policy", next, "--log", path, "--outcomes", export, "--format", "json").Stdout
		if err := json.Unmarshal([]byte(text), &report); err != nil {
			t.Fatal(err)
		}
		if report.Decisions != inputs || report.Unknown != 0 || report.More != more || report.Fewer != fewer || more+fewer == 0 {
			t.Errorf("%v more and %v fewer by the passes; whatif says %s", more, fewer, text)
		}
		if known := strings.Count(exported, "\n") - strings.Count(exported, `"truth":null`); report.Outcomes.Known != known || known == 0 {
			t.Errorf("%d truths, whatif knows %d", known, report.Outcomes.Known)
		}
		if screen := mustRun(t, "whatif", "--policy", next, "--log", path).Stdout; strings.Count(screen, "\n") > 40 {
			t.Errorf("%s", screen)
		}
	}
}
