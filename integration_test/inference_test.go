package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/integration_test/testbed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// outputs holds the outputs that the foreign client asks for.
type outputs struct {
	C, MI, Score, Threshold []float64
	DecidingClass           []float64 `json:"deciding_class"`
	Defer                   []bool
	Reason, Decision        []string
}

// native calls Decompose and returns its results as outputs.
func native(ctx context.Context, t *testing.T, conn *grpc.ClientConn, r *ckdv1.DecomposeRequest) (o outputs) {
	t.Helper()
	answer, err := ckdv1.NewUncertaintyServiceClient(conn).Decompose(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range answer.GetResults() {
		d := result.GetDecomposition()
		if d == nil {
			t.Fatalf("input %d: %v", result.GetRow(), result.GetError())
		}
		decision := d.GetDecision()
		deciding := -1.0
		if decision.DecidingClass != nil {
			deciding = float64(decision.GetDecidingClass())
		}
		o.C, o.MI = append(o.C, d.GetC()...), append(o.MI, d.GetMi())
		o.Score, o.Threshold = append(o.Score, decision.GetValue()), append(o.Threshold, decision.GetThreshold())
		o.DecidingClass = append(o.DecidingClass, deciding)
		o.Defer = append(o.Defer, decision.GetAction() == ckdv1.Action_ACTION_DEFER)
		o.Reason = append(o.Reason, strings.ToLower(strings.TrimPrefix(decision.GetReason().String(), "DECISION_REASON_")))
		o.Decision = append(o.Decision, strings.ToLower(strings.TrimPrefix(decision.GetAction().String(), "ACTION_")))
	}
	return o
}

// TestForeignClient has Python's grpcio, which knows only the protocol's definition, make every
// call over mutual TLS with a token. The results must be those of the native service, to the last
// bit.
func TestForeignClient(t *testing.T) {
	python := testbed.Python(t, "grpc", "grpc_tools.protoc", "numpy")
	t.Parallel()
	v := newVault(t)
	token, sum := v.token("grader")
	own := v.clients.Client(t, "CN=grader")
	v.keep(own)
	access := v.put("access.yaml", []byte("identities:\n  - {name: grader, tokens: [{sha256: "+sum+"}], models: [fetal-health, nobody]}\n"))
	s := serveSite(t, append(v.mutual(v.servers.Issue(t)), "--access", access, "--log-level", "debug")...)

	const limit = 100
	c := exec.CommandContext(inTime(t), python, "testdata/oip_client.py", "--addr", s.GRPC[0], "--model", "fetal-health",
		"--passes", recording("ctg-mcdropout", ".passes.npy"), "--limit", fmt.Sprint(limit), "--proto", "../proto/inference/inference.proto",
		"--ca", v.put("servers.crt", v.servers.PEM), "--cert", v.put("own.crt", own.CertPEM), "--key", v.put("own.key", own.KeyPEM),
		"--token", v.put("own.token", []byte(token)))
	r := testbed.Run(t, c)
	if r.Code != 0 {
		t.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	type answer struct {
		ID      string
		Outputs outputs
	}
	var said struct {
		Live, Ready bool
		Server      string
		ModelReady  bool `json:"model_ready"`
		Inputs      json.RawMessage
		Config      []string
		Raw, Typed  answer
		Stream      [][2]json.RawMessage
		Nobody      string
		NoToken     string `json:"no_token"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &said); err != nil {
		t.Fatalf("%v: %s", err, r.Stdout)
	}
	if !said.Live || !said.Ready || said.Server != "ckd" || !said.ModelReady || string(said.Inputs) != `[["passes", "FP32", [-1, -1, 3]]]` ||
		len(said.Config) != 1 || said.Config[0] != "passes" || said.Nobody != "NOT_FOUND" || said.NoToken != "UNAUTHENTICATED" ||
		said.Raw.ID != "raw" || said.Typed.ID != "typed" || len(said.Stream) != 3 || !strings.Contains(string(said.Stream[1][0]), "no policy names the model") {
		t.Fatalf("it says %.600s", r.Stdout)
	}
	got := map[string]outputs{"raw": said.Raw.Outputs, "typed": said.Typed.Outputs}
	for _, i := range []int{0, 2} {
		var o outputs
		if err := json.Unmarshal(said.Stream[i][1], &o); err != nil || string(said.Stream[i][0]) != `""` {
			t.Fatalf("answer %d of the stream: %s, %v", i, said.Stream[i][0], err)
		}
		got[fmt.Sprintf("answer %d of the stream", i)] = o
	}
	values, n, passes, _ := readRecording(t, "ctg-mcdropout", limit)
	conn := dialTLS(t, s.GRPC[0], trusting(v.servers, own.TLS(t)))
	want := native(bearer(t, token), t, conn, &ckdv1.DecomposeRequest{
		Model: "fetal-health", Layout: ckdv1.Layout_LAYOUT_NSK, Inputs: uint32(n), Passes: uint32(passes), Values: values,
		Detail: ckdv1.Detail_DETAIL_FULL,
	})
	for name, o := range got {
		if d := cmp.Diff(want, o); d != "" {
			t.Errorf("%s: -Decompose +got:\n%s", name, d)
		}
	}
	v.checkSecrets(s)
}
