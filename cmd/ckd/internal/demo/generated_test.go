package demo

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/recordings"
)

//go:generate go test -run ^TestGenerated$ -update .

var update = flag.Bool("update", false, "learn the demo's early-stopping rule anew")

const generatedHead = `# The early-stopping rule of the demo's policy, learned and certified on the inputs that tune its thresholds. Written by
#
#   go generate ./cmd/ckd/internal/demo
#
# which tunes the demo's policy and runs, on the inputs that tune it,
#
#   ckd calibrate early-stop --policy tuned.yaml --passes tuning.npy --out settled.yaml
`

// TestGenerated checks that the committed rule is in force: that it was learned for the policy as
// the demo tunes it now.
func TestGenerated(t *testing.T) {
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	tuning, _ := split(r.Passes.N)
	if *update {
		settleText = learnRule(t, r, tuning)
		if err := os.WriteFile("settle.yaml", []byte(settleText), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set, err := tune(r, tuning, settleText)
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := set.Get(modelName); p.EarlyStop() == nil || !strings.HasPrefix(settleText, generatedHead) {
		t.Error("settle.yaml is not of the policy that the demo tunes: run go generate ./cmd/ckd/internal/demo")
	}
}

// learnRule returns the block of the rule that ckd calibrate learns for the tuned policy.
func learnRule(t *testing.T, r *recordings.Recording, tuning []int) string {
	t.Helper()
	dir := t.TempDir()
	inDir := func(name string) string { return filepath.Join(dir, name) }
	set, err := tune(r, tuning, "")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := set.Get(modelName)
	if err := os.WriteFile(inDir("tuned.yaml"), p.Marshal(), 0o600); err != nil {
		t.Fatal(err)
	}
	values := &record.Array{Shape: []int{r.Passes.S, len(tuning), r.Passes.K}}
	for s := range r.Passes.S {
		values.Float32 = append(values.Float32, pass(r, s, tuning)...)
	}
	file, err := os.Create(inDir("tuning.npy"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := record.Write(file, values); err != nil {
		t.Fatal(err)
	}
	// Leave out the version of the working tree, which changes with each commit.
	calibrate := exec.CommandContext(t.Context(), "go", "run", "-buildvcs=false", "../..", "calibrate", "early-stop",
		"--policy", inDir("tuned.yaml"), "--passes", inDir("tuning.npy"), "--out", inDir("settled.yaml"))
	if out, err := calibrate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(inDir("settled.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const begin = "      early_stopping:\n"
	_, block, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatalf("the policy has no rule:\n%s", text)
	}
	return generatedHead + "    calibrated:\n" + begin + block
}
