package demo

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
)

//go:generate go test -run ^TestGenerated$ -update .

var update = flag.Bool("update", false, "tune the demo's policy anew")

const generatedHead = `# The demo's policy, tuned on one half of its recording. Written by
#
#   go generate ./cmd/ckd/internal/demo
#
# which sets the thresholds of testdata/policy.yaml.tmpl and runs, on the inputs that tune them,
#
#   ckd calibrate early-stop --policy tuned.yaml --passes tuning.npy --out policy.yaml
`

// TestGenerated checks that the committed policy is what tuning gives now, and that its early-stopping rule
// was learned for it.
func TestGenerated(t *testing.T) {
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	tuning, _ := split(r.Passes.N)
	tuned := tune(t, r, tuning)
	if *update {
		policyText = append([]byte(generatedHead), learnRule(t, r, tuning, tuned)...)
		if err := os.WriteFile("policy.yaml", policyText, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := committed(t)
	without := *p
	without.EarlyStopping = nil
	calibration := *p.Calibration
	calibration.PolicyHash = tuned.Calibration.PolicyHash
	without.Calibration = &calibration
	if diff := cmp.Diff(string(tuned.Marshal()), string(without.Marshal())); p.EarlyStop() == nil || diff != "" {
		t.Errorf("policy.yaml is not what tuning gives: run go generate ./cmd/ckd/internal/demo (-tuned +committed):\n%s", diff)
	}
}

// committed returns the demo's policy.
func committed(t *testing.T) *policy.Policy {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "demo policy", Data: policyText})
	if err != nil {
		t.Fatal(err)
	}
	return set.All()[0]
}

// tune sets each threshold to the quantile of its score among the tuning inputs that the gate
// routes to it. It does not use labels. The policy also records what it retains of these inputs, what
// it misses of them by their labels, and how they are distributed, so that the daemon can compare
// live inputs and outcomes.
func tune(t *testing.T, r *recordings.Recording, tuning []int) *policy.Policy {
	t.Helper()
	parse := func(primary, fallback string) *policy.Policy {
		var text bytes.Buffer
		err := template.Must(template.ParseFiles("testdata/policy.yaml.tmpl")).Execute(&text, struct{ Primary, Fallback string }{primary, fallback})
		if err != nil {
			t.Fatal(err)
		}
		set, err := policy.Parse(policy.File{Name: "demo policy", Data: text.Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		return set.All()[0]
	}
	routed := map[policy.GateOutcome][]float64{}
	decide(t, parse("", ""), r, tuning, func(o *engine.Outcome) {
		routed[o.Decision.Gate] = append(routed[o.Decision.Gate], o.Decision.Value)
	})
	threshold := func(gate policy.GateOutcome) string { return fmt.Sprint(eval.Threshold(routed[gate], coverage)) }
	p := parse(threshold(policy.ByPrimary), threshold(policy.ByFallback))
	var seen drift.Sample
	var labels, predicted []int
	var retained []bool
	decide(t, p, r, tuning, func(o *engine.Outcome) {
		seen.Add(o.C, o.Skewness, o.Predicted)
		labels, predicted = append(labels, r.Labels[tuning[len(labels)]]), append(predicted, o.Predicted)
		retained = append(retained, o.Decision.Action == policy.Retain)
	})
	s := eval.Select(labels, predicted, retained, r.Critical)
	critical := eval.Select(labels, predicted, slices.Repeat([]bool{true}, len(labels)), r.Critical).Critical
	share := func(events, total int) *policy.Interval {
		low, high := binomial.Interval(events, total, 0.95)
		return &policy.Interval{Value: float64(events) / float64(total), Low: low, High: high}
	}
	described := *p
	described.Calibration = &policy.Calibration{
		Software: "ckd demo", PolicyHash: p.Hash, Posterior: "mc-dropout",
		Objective:                "coverage 0.8 of the inputs that each score decides, without labels",
		Recording:                policy.Recording{Inputs: len(tuning), CriticalInputs: critical, Passes: r.Passes.S},
		ExpectedCoverage:         share(s.Retained, s.Inputs),
		ExpectedCriticalMissRate: share(s.Missed, critical),
		Lines:                    &policy.StatedLines{CriticalMissRate: 0.08, By: "ckd demo", On: "2026-11-27"},
		Reference:                seen.Reference(),
	}
	return &described
}

// decide decides some inputs of a recording by a policy.
func decide(t *testing.T, p *policy.Policy, r *recordings.Recording, inputs []int, each func(*engine.Outcome)) {
	t.Helper()
	model, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	batch, outcome := model.NewBatch(), model.NewOutcome()
	if err := batch.Reset(decomp.Tensor{Passes: r.Passes.S, Inputs: r.Passes.N, Float32: r.Passes.Float32}); err != nil {
		t.Fatal(err)
	}
	for _, i := range inputs {
		if err := batch.Outcome(i, outcome); err != nil {
			t.Fatal(err)
		}
		each(outcome)
	}
}

// learnRule returns the policy with the rule that ckd calibrate learns for it.
func learnRule(t *testing.T, r *recordings.Recording, tuning []int, p *policy.Policy) []byte {
	t.Helper()
	dir := t.TempDir()
	inDir := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(inDir("tuned.yaml"), p.Marshal(), 0o600); err != nil {
		t.Fatal(err)
	}
	values := &record.Array{Shape: []int{r.Passes.S, len(tuning), r.Passes.K}}
	for s := range r.Passes.S {
		values.Float32 = append(values.Float32, pass(r, s, tuning)...)
	}
	var file bytes.Buffer
	if err := record.Write(&file, values); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(inDir("tuning.npy"), file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	// Leave out the version of the working tree, which changes with each commit.
	calibrate := exec.CommandContext(t.Context(), "go", "run", "-buildvcs=false", "../..", "calibrate", "early-stop",
		"--policy", inDir("tuned.yaml"), "--passes", inDir("tuning.npy"), "--out", inDir("policy.yaml"))
	if out, err := calibrate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(inDir("policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
