package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestMLflow registers a policy twice, and lets two attempts fail: one that nothing certifies, and one
// that asks for no certificate. It runs with MLflow where that is installed, and otherwise with a stand-in
// for its calls, which cannot show that MLflow takes them.
func TestMLflow(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	interpreter := python(t)
	path := os.Getenv("PYTHONPATH")
	if exec.CommandContext(t.Context(), interpreter, "-c", "import mlflow.exceptions").Run() != nil { // mlflow alone would be the folder of the example
		standIn, err := filepath.Abs("testdata/mlflow")
		if err != nil {
			t.Fatal(err)
		}
		t.Log("mlflow is not installed: with a stand-in")
		path = standIn + string(os.PathListSeparator) + path
	}
	env := append(os.Environ(), "PYTHONPATH="+path, "CKD_BINARY="+ckd, "MLFLOW_TRACKING_URI=file:"+t.TempDir())
	run := func(args ...string) testbed.Result {
		c := exec.CommandContext(t.Context(), interpreter, args...)
		c.Env = env
		return testbed.Run(t, c)
	}
	register := func(objective ...string) testbed.Result {
		return run(append([]string{"mlflow/register.py", "--register", "fetal-health-policy", "--for-version", "7", "--",
			"--passes", recording, "--labels", strings.Replace(recording, "passes", "labels", 1), "--classes", "normal,suspect,pathologic",
			"--critical", "suspect,pathologic", "--name", "fetal-health"}, objective...)...)
	}
	var hash string
	for _, version := range []string{"1", "2"} {
		r := register("--max-critical-miss", "0.08", "--confidence", "0.9")
		prefix := "fetal-health-policy version " + version + ": policy "
		if r.Code != 0 || !strings.HasPrefix(r.Stdout, prefix) {
			t.Fatalf("exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
		}
		hash = strings.TrimSpace(strings.TrimPrefix(r.Stdout, prefix))
	}
	for _, refused := range []struct {
		objective []string
		why       string
	}{
		{[]string{"--max-critical-miss", "0.001"}, "critical inputs could certify"},
		{[]string{"--coverage", "0.8"}, "has no certificate"},
	} {
		r := register(refused.objective...)
		if r.Code != 3 || !strings.HasPrefix(r.Stderr, "not registered: ") || !strings.Contains(r.Stderr, refused.why) {
			t.Errorf("%q: exit %d, expected 3 and the reason: %s%s", refused.objective, r.Code, r.Stdout, r.Stderr)
		}
	}
	r := run("-c", `
import pathlib, sys, mlflow
client = mlflow.MlflowClient()
versions = client.search_model_versions("name='fetal-health-policy'")
assert len(versions) == 2, versions
version = client.get_model_version("fetal-health-policy", "1")
assert version.tags["ckd.policy_hash"] == sys.argv[1] and version.tags["ckd.for_version"] == "7", version.tags
folder = pathlib.Path(version.source.removeprefix("file://").removeprefix("file:"))
assert {"policy.yaml", "report.json", "to-sign.html"} <= {path.name for path in folder.iterdir()}, list(folder.iterdir())
assert sys.argv[1] in (folder / "to-sign.html").read_text(), "the page to sign has another policy"
data = client.get_run(version.run_id).data
assert data.metrics["target"] == 0.08 and data.metrics["critical"] == 471 and data.metrics["misses"] > 0, data.metrics
assert data.params["objective"].startswith("max-critical-miss 0.08"), data.params
failed = [run for run in client.search_runs(["0"]) if run.info.status == "FAILED"]
assert len(failed) == 2 and all(run.data.tags["ckd.refused"] and "ckd.policy_hash" not in run.data.tags for run in failed), failed
print(folder / "policy.yaml")
`, hash)
	if r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	check := testbed.Run(t, exec.CommandContext(t.Context(), ckd, "check", strings.TrimSpace(r.Stdout)))
	if check.Code != 0 || hash == "" || !strings.Contains(check.Stdout, hash) {
		t.Errorf("exit %d: %s; the policy's hash is not %q: %.200s", check.Code, check.Stderr, hash, check.Stdout)
	}
}
