package integration_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ckd-project/ckd/integration_test/testbed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestGhz loads both RPCs with the call templates that the README shows.
func TestGhz(t *testing.T) {
	t.Parallel()
	ghz := testbed.Program(t, "ghz", "GHZ")
	d := serve(t, "--policy", "../deploy/policy/fetal-health.yaml")
	for call, c := range map[string]struct {
		data  string
		calls int
	}{
		"ckd.v1.UncertaintyService.Decompose":       {"../deploy/ghz/decompose.json", 2000},
		"ckd.v1.UncertaintyService.DecomposeStream": {"../deploy/ghz/decompose-stream.json", 200},
	} {
		t.Run(call, func(t *testing.T) {
			ctx := inTime(t)
			r := testbed.Run(t, exec.CommandContext(ctx, ghz, "--insecure", "--call", call, "--data-file", c.data,
				"--total", jsonText(t, c.calls), "--concurrency", "8", "--format", "json", d.GRPC[0]))
			var report struct {
				Count            int
				StatusCodeDistr  map[string]int `json:"statusCodeDistribution"`
				ErrorDistr       map[string]int `json:"errorDistribution"`
				Average, Fastest float64
			}
			if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
				t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
			}
			if report.Count != c.calls || report.StatusCodeDistr["OK"] != c.calls || len(report.ErrorDistr) != 0 {
				t.Errorf("report %+v", report)
			}
		})
	}
	_, text, _ := d.Get("/metrics")
	families := parse(t, text)
	// One input a unary call; four a stream, which the templates say.
	if got, want := sum(families["ckd_decisions_total"]), 2000.0+4*200; got != want {
		t.Errorf("%v decisions, want %v", got, want)
	}
	if got := sum(families["ckd_inputs_rejected_total"]); got != 0 {
		t.Errorf("%v inputs were rejected", got)
	}
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// streamInfo opens a stream and returns its first answer.
func streamInfo(t *testing.T, address string) *ckdv1.StreamInfo {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := ckdv1.NewUncertaintyServiceClient(conn).DecomposeStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	header := &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "fetal-health"}}}
	if err := stream.Send(header); err != nil {
		t.Fatal(err)
	}
	reply, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("after half-close: %v", err)
	}
	return reply.GetInfo()
}
