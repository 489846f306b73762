package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPythonOutcomes takes receipts with results, and reads a labelling tool's CSV back in.
func TestPythonOutcomes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, err := os.ReadFile(policyFile)
	if err != nil {
		t.Fatal(err)
	}
	policy, keys := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "keys")
	audited := strings.Replace(string(text), "    critical:", "    audit: {rate: 1, due: 1s}\n    critical:", 1)
	for path, text := range map[string]string{policy: audited, keys: strings.Repeat("ab", 32) + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := serveOn(t, "127.0.0.1:0", "--policy", policy, "--receipt-keys", keys, "--ledger", filepath.Join(dir, "ledger"))
	labels := filepath.Join(dir, "labels.csv")
	r := script(t, `
import base64, csv
recorded = numpy.load(sys.argv[2])[:, :40]
ids = [str(i) for i in range(40)]
with ckd.Client(sys.argv[1]) as client, client.session("fetal-health", receipts=ckd.ALL) as session:
    streamed = session.decide(ids, recorded)
    called = client.decompose("fetal-health", recorded.transpose(1, 0, 2), ["again" + i for i in ids], receipts=ckd.REVIEWED)
    assert all(r.review and r.receipt for r in streamed + called), streamed
    assert not client.decompose("fetal-health", recorded.transpose(1, 0, 2))[0].receipt

    outcomes = [ckd.Outcome(r.receipt, "normal", "reader-1", time=1.7e9 if i == 0 else 0.0) for i, r in enumerate(streamed)]
    outcomes.append(ckd.Outcome(b"forged", "normal", "reader-1"))
    answers = client.report_outcomes(outcomes)
    assert all(a.status in ("counted", "second_read_wanted") and not a.error for a in answers[:-1]), answers
    assert answers[-1].status == "forged" and "outcomes[40].receipt" in answers[-1].error, answers[-1]
    assert {a.status for a in client.report_outcomes(outcomes[:40])} <= {"duplicate"}
    with open(sys.argv[3], "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["case", "receipt", "choice"])
        out.writerows([r.id, base64.b64encode(r.receipt).decode(), "normal"] for r in called)
with ckd.Client("127.0.0.1:1", patience=0.1) as nobody:
    (lost,) = nobody.report_outcomes(outcomes[:1])
    assert lost.status == "unsent" and lost.error, lost
`, d.GRPC[0], recording, labels)
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s", r.Code, r.Stderr)
	}
	sent := run(t, ckd, "outcomes", "send", "--addr", d.GRPC[0], "--file", labels, "--columns", "truth=choice", "--source", "tool")
	if n := strings.Count(sent.Stdout, "\n"); sent.Code != 0 || n != 40 {
		t.Errorf("exit %d, %d lines, expected 40\n%s", sent.Code, n, sent.Stderr)
	}
}
