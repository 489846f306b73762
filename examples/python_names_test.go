package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPythonNamesClasses renames classes. Results must have the names of the policy that decided. A
// stream takes them from its first reply, and calls ask for them.
func TestPythonNamesClasses(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(policyFile)
	if err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, text, 0o600); err != nil {
		t.Fatal(err)
	}
	d := serveOn(t, "127.0.0.1:0", "--policy", policy)
	r := script(t, `
import os, pathlib, time
path, recorded = pathlib.Path(sys.argv[2]), numpy.load(sys.argv[3])[:, :9]
ids = [str(i) for i in range(9)]
until = time.monotonic() + 60

def answers(results):
    """What there is to print, once for both ways of asking."""
    assert time.monotonic() < until, results
    return [str(r) for r in results]

with ckd.Client(sys.argv[1]) as client, client.session("fetal-health") as session:
    stream = lambda: answers(session.decide(ids, recorded))
    call = lambda: answers(client.decompose("fetal-health", recorded, ids))
    first = stream()
    assert call() == first == call(), first
    print(*first, sep="\n")

    renamed = path.with_suffix(".new")
    renamed.write_text(path.read_text().replace("normal", "usual").replace("pathologic", "grave"))
    os.replace(renamed, path)
    expected = [line.replace("normal", "usual").replace("pathologic", "grave") for line in first]
    assert expected != first
    while (got := call()) != expected:
        assert got == first, got
    # The stream ends with the names that it has told of. Inputs may be on their way.
    while (got := stream()) != expected:
        assert all(line.startswith("no decision: the policy of model") for line in got), got
    assert call() == stream() == expected
`, d.GRPC[0], policy, recording)
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s", r.Code, r.Stderr)
	}
	for _, want := range []string{
		"retain: predicted normal, cbec 0.0002, at most 0.0230\n",
		"defer: predicted pathologic, c_crit_max 0.0577, above 0.0520, deciding class pathologic\n",
	} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("no line with %q\n%s", want, r.Stdout)
		}
	}
}
