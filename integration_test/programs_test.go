package integration_test

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// TestGhz loads the daemon with the call templates of deploy/ghz.
func TestGhz(t *testing.T) {
	t.Parallel()
	ghz := testbed.Program(t, "ghz", "GHZ")
	d := serve(t, "--policy", "../deploy/policy/fetal-health.yaml")
	decided := 0.0
	for _, c := range []struct {
		call, data    string
		calls, inputs int // inputs counts those of one call
	}{
		{"ckd.v1.UncertaintyService.Decompose", "../deploy/ghz/decompose.json", 2000, 1},
		{"ckd.v1.UncertaintyService.DecomposeStream", "../deploy/ghz/decompose-stream.json", 200, 4},
		{"inference.GRPCInferenceService/ModelInfer", "../deploy/ghz/model-infer.json", 2000, 1},
	} {
		t.Run(c.call, func(t *testing.T) {
			r := testbed.Run(t, exec.CommandContext(inTime(t), ghz, "--insecure", "--call", c.call, "--data-file", c.data,
				"--total", jsonText(t, c.calls), "--concurrency", "8", "--format", "json", d.GRPC[0]))
			var report struct {
				Count           int
				StatusCodeDistr map[string]int `json:"statusCodeDistribution"`
				ErrorDistr      map[string]int `json:"errorDistribution"`
			}
			if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
				t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
			}
			if report.Count != c.calls || report.StatusCodeDistr["OK"] != c.calls || len(report.ErrorDistr) != 0 {
				t.Errorf("report %+v", report)
			}
			decided += float64(c.calls * c.inputs)
			if got := d.gauge("ckd_decisions_total"); got != decided || d.gauge("ckd_inputs_rejected_total") != 0 {
				t.Errorf("%v decisions, want %v, and none rejected", got, decided)
			}
		})
	}
}
