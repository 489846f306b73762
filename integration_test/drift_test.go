package integration_test

import (
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestDriftQueries runs the queries of docs/triage.md on a Prometheus that scrapes two replicas, of
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
		for range 3 { // 1,518 inputs fill every window
			mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "digits", "--quiet", "--passes", recording(name, ".passes.npy"))
		}
	}
	if drifted.gauge("ckd_drift_alarm") == 0 || steady.gauge("ckd_drift_alarms_total") != 0 {
		t.Errorf("%v alarms of the replica that drifts, %v of the other", drifted.gauge("ckd_drift_alarm"), steady.gauge("ckd_drift_alarms_total"))
	}
	p := testbed.StartPrometheus(t, binary, scrapeConfig(t, promtool, drifted, steady))
	eventually(t, "Prometheus finds both up", func() bool { return len(p.Query("up == 1", "")) == 2 })
	scraped := p.Scraped(time.Now())
	// Bounds of the values, and number of series, in the order of the page.
	answers := []struct {
		low, high float64
		series    int // 0: any number
	}{
		{0.5, 1, 0},
		{2, 2, 3},       // both replicas have full windows
		{0, 0.5, 7 * 3}, // one replica of two
	}
	blocks := regexp.MustCompile("(?s)```promql\n(.*?)\n```").FindAllStringSubmatch(readPage(t, "triage.md"), -1)
	if len(blocks) != len(answers) {
		t.Fatalf("%d queries, want %d", len(blocks), len(answers))
	}
	for i, block := range blocks {
		want, got := answers[i], p.Query(block[1], scraped)
		if len(got) == 0 || want.series > 0 && len(got) != want.series {
			t.Errorf("%s\nreturns %d series, want %d", block[1], len(got), want.series)
		}
		for _, sample := range got {
			if v := float64(sample.Value); !(v >= want.low && v <= want.high) {
				t.Errorf("%s\n%v is %v, want %v to %v", block[1], sample.Metric, v, want.low, want.high)
			}
		}
	}
}
