package integration_test

import (
	"math"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestDriftQueries runs the queries of docs/drift.md on a Prometheus that scrapes two replicas, of
// which only one drifts.
func TestDriftQueries(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	binary, promtool := testbed.Program(t, "prometheus", "PROMETHEUS"), testbed.Program(t, "promtool", "PROMTOOL")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	mustRun(t, "calibrate", "--passes", recording("digits-id", ".passes.npy"), "--labels", recording("digits-id", ".labels.npy"),
		"--classes", "0,1,2,3,4,5,6", "--critical", "1,2", "--name", "digits", "--coverage", "0.8", "--out", policy)
	drifted, steady := serve(t, "--policy", policy), serve(t, "--policy", policy)
	for d, name := range map[*daemon]string{drifted: "digits-ood", steady: "digits-id"} {
		for range 4 { // fills all windows
			mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "digits", "--quiet", "--passes", recording(name, ".passes.npy"))
		}
	}
	alarms := int(drifted.gauge("ckd_drift_alarm"))
	if others := steady.gauge("ckd_drift_alarms_total"); alarms == 0 || others != 0 {
		t.Errorf("%d alarms of the replica that drifts, %v of the other", alarms, others)
	}
	p := testbed.StartPrometheus(t, binary, scrapeConfig(t, promtool, drifted, steady))
	eventually(t, "Prometheus finds both up", func() bool { return len(p.Query("up == 1", "")) == 2 })
	scraped := p.Scraped(time.Now())
	const signals = 7 * 3
	answers := []answer{ // in the order of the page
		{series: alarms, bounds: interval{1, 1}},
		{series: alarms, bounds: interval{0.5, 1}},
		{series: signals, bounds: interval{-0.5, 0.5}},
		{series: 3, bounds: interval{2, 2}},
		{series: signals * 3, bounds: interval{0, math.Inf(1)}},
		{series: signals, bounds: interval{0, 0.5}}, // one replica of two
	}
	blocks := regexp.MustCompile("(?s)```promql\n(.*?)\n```").FindAllStringSubmatch(readPage(t, "drift.md"), -1)
	if len(blocks) != len(answers) {
		t.Fatalf("%d queries, want %d", len(blocks), len(answers))
	}
	for i, block := range blocks {
		checkBounds(t, p, block[1], scraped, answers[i])
	}
}
