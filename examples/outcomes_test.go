package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// TestOutcomes reads a labelling tool's export back in: with labels of the tool's own, a case that
// nobody has read yet, and one without a receipt.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	d := serveLedger(t)
	dir := t.TempDir()
	receipts, export, joined := filepath.Join(dir, "receipts.csv"), filepath.Join(dir, "export.csv"), filepath.Join(dir, "outcomes.csv")
	decided := script(t, `
import base64, csv
recorded = numpy.load(sys.argv[2])[:, :40]
with ckd.Client(sys.argv[1]) as client:
    results = client.decompose("fetal-health", recorded, [f"c{i}" for i in range(40)], receipts=ckd.REVIEWED)
with open(sys.argv[3], "w", newline="") as file:
    csv.writer(file).writerows([["case", "receipt"]] + [[r.id, base64.b64encode(r.receipt).decode()] for r in results])
with open(sys.argv[4], "w", newline="") as file:
    rows = [["case", "choice", "reader"]] + [[r.id, "Normal", f"reader-{i % 2}"] for i, r in enumerate(results)]
    rows[1][1] = ""
    csv.writer(file).writerows(rows + [["another", "Normal", "reader-1"]])
`, d.GRPC[0], recording, receipts, export)
	if decided.Code != 0 {
		t.Fatalf("exit %d\n%s", decided.Code, decided.Stderr)
	}
	join := []string{"outcomes/join.py", "--receipts", receipts, "--class", "Normal=normal", export}
	r := run(t, python(t), join...)
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s", r.Code, r.Stderr)
	}
	if err := os.WriteFile(joined, []byte(r.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, python(t), append(join, "--choice", "label")...); r.Code != 1 || !strings.Contains(r.Stderr, export+":1: ") {
		t.Errorf("a column that is missing: exit %d\n%s", r.Code, r.Stderr)
	}
	sent := run(t, ckd, "outcomes", "send", "--addr", d.GRPC[0], "--file", joined)
	if n := strings.Count(sent.Stdout, "\n"); sent.Code != 0 || n != 39 {
		t.Errorf("exit %d, %d lines, expected 39\n%s", sent.Code, n, sent.Stderr)
	}
	for _, left := range []string{"1 rows have no truth yet", "1 rows have no receipt"} {
		if !strings.Contains(sent.Stderr, left) {
			t.Errorf("no %q in\n%s", left, sent.Stderr)
		}
	}
}

// serveLedger starts a daemon that keeps a ledger and audits every input.
func serveLedger(t *testing.T, args ...string) *testbed.Daemon {
	t.Helper()
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
	return serveOn(t, "127.0.0.1:0", append(args, "--policy", policy, "--receipt-keys", keys, "--ledger", testbed.Ledger(t, ckd))...)
}
