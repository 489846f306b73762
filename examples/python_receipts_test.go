package examples_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// TestPythonReceipts checks that the receipts which the Python client gets are of its inputs, from a
// call and from a stream, and that a retry is drawn alike.
func TestPythonReceipts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(policyFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	policy, keyFile := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "keys")
	key := fmt.Sprintf("%064x\n", 5)
	audited := strings.TrimRight(string(text), "\n") + "\n    audit: {rate: 0.5, slices: [{name: site, values: [north]}]}\n"
	for path, content := range map[string]string{policy: audited, keyFile: key} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := serveOn(t, "127.0.0.1:0", "--policy", policy, "--receipt-keys", keyFile)
	r := script(t, `
recorded = numpy.load(sys.argv[2])[:, :40]
ids = [f"i{i}" for i in range(40)]
contexts = [None if i == 3 else {"group": f"g{i // 2}", "slices": {"site": "north"}} for i in range(40)]
with ckd.Client(sys.argv[1]) as client:
    called = client.decompose("fetal-health", recorded, ids, receipts=ckd.ALL, model_version="v7", contexts=contexts)
    with client.session("fetal-health", receipts=ckd.ALL, model_version="v7") as session:
        streamed = session.decide(ids, recorded, contexts=contexts)
    with client.session("fetal-health", receipts=ckd.REVIEWED) as session:
        reviewed = session.decide(ids, recorded)
    without = client.decompose("fetal-health", recorded, ids)
assert [r.review for r in called] == [r.review for r in streamed] == [r.review for r in reviewed]
assert 0 < sum(r.review for r in called) < 40
assert all(bool(r.receipt) == r.review for r in reviewed)
assert not any(r.review or r.receipt for r in without)
for a, b in zip(called, streamed):
    print(a.receipt.hex(), b.receipt.hex())
`, d.GRPC[0], recording)
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s", r.Code, r.Stderr)
	}
	keys, err := receipt.ParseKeys("keys", []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	open := func(text string) receipt.Receipt {
		sealed, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		content, _, err := keys.Open(sealed)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	for i, line := range lines {
		called, streamed, _ := strings.Cut(line, " ")
		first, second := open(called), open(streamed)
		if diff := cmp.Diff(first, second, cmpopts.IgnoreFields(receipt.Receipt{}, "Time"), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("input %d: (-called +streamed):\n%s", i, diff)
		}
		group := keys.DrawKey().Group(fmt.Appendf(nil, "g%d", i/2))
		if i == 3 {
			group = 0
		}
		if first.Version != receipt.VersionHash("v7") || first.Group != group || (first.Slices[0] != 0) != (i != 3) {
			t.Errorf("input %d: %+v", i, first)
		}
	}
	if len(lines) != 40 {
		t.Errorf("%d lines, expected 40", len(lines))
	}
}
