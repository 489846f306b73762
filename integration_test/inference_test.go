package integration_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/record"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// TestGhzModelInfer loads the Open Inference Protocol with the call template of deploy/ghz.
func TestGhzModelInfer(t *testing.T) {
	ghz := testbed.Program(t, "ghz", "GHZ")
	t.Parallel()
	d := serve(t, "--policy", "../deploy/policy/fetal-health.yaml")
	const calls = 2000
	ctx := inTime(t)
	r := testbed.Run(t, exec.CommandContext(ctx, ghz, "--insecure", "--call", "inference.GRPCInferenceService/ModelInfer",
		"--data-file", "../deploy/ghz/model-infer.json", "--total", fmt.Sprint(calls), "--concurrency", "8", "--format", "json", d.GRPC[0]))
	var report struct {
		Count           int
		StatusCodeDistr map[string]int `json:"statusCodeDistribution"`
		ErrorDistr      map[string]int `json:"errorDistribution"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
	}
	if report.Count != calls || report.StatusCodeDistr["OK"] != calls || len(report.ErrorDistr) != 0 {
		t.Errorf("report %+v", report)
	}
	if got := d.gauge("ckd_decisions_total"); got != calls {
		t.Errorf("%v decisions, want %d", got, calls)
	}
}

// outputs of the Open Inference Protocol by name: []float64, []bool or []string.
type outputs map[string]any

// outputNames are those that the native service has, too.
var outputNames = []string{
	"c", "skewness", "mean", "variance", "m", "mi", "entropy", "sum_c", "score", "threshold",
	"defer", "deciding_class", "reason", "degenerate", "decision",
}

// native is the answers of Decompose as the outputs that say the same.
func native(t *testing.T, conn *grpc.ClientConn, r *ckdv1.DecomposeRequest, options ...grpc.CallOption) outputs {
	t.Helper()
	r.Detail = ckdv1.Detail_DETAIL_FULL
	answer, err := ckdv1.NewUncertaintyServiceClient(conn).Decompose(inTime(t), r, options...)
	if err != nil {
		t.Fatal(err)
	}
	numbers, texts, truths := map[string][]float64{}, map[string][]string{}, map[string][]bool{}
	word := func(enum fmt.Stringer, prefix string) string {
		return strings.ToLower(strings.TrimPrefix(enum.String(), prefix))
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
		for name, values := range map[string][]float64{
			"c": d.GetC(), "skewness": d.GetSkewness(), "mean": d.GetMean(), "variance": d.GetVariance(), "m": d.GetM(),
			"mi": {d.GetMi()}, "entropy": {d.GetEntropy()}, "sum_c": {d.GetSumC()}, "score": {decision.GetValue()},
			"threshold": {decision.GetThreshold()}, "deciding_class": {deciding},
		} {
			numbers[name] = append(numbers[name], values...)
		}
		truths["defer"] = append(truths["defer"], decision.GetAction() == ckdv1.Action_ACTION_DEFER)
		truths["degenerate"] = append(truths["degenerate"], d.GetDegenerate())
		texts["reason"] = append(texts["reason"], word(decision.GetReason(), "DECISION_REASON_"))
		texts["decision"] = append(texts["decision"], word(decision.GetAction(), "ACTION_"))
	}
	all := outputs{}
	for name, v := range numbers {
		all[name] = v
	}
	for name, v := range truths {
		all[name] = v
	}
	for name, v := range texts {
		all[name] = v
	}
	return all
}

// inferred is the outputs of an answer over gRPC, raw or not.
func inferred(t *testing.T, answer *inferencepb.ModelInferResponse) outputs {
	t.Helper()
	all := outputs{}
	for i, o := range answer.GetOutputs() {
		contents := o.GetContents()
		numbers, truths, texts := contents.GetFp64Contents(), contents.GetBoolContents(), contents.GetBytesContents()
		for _, n := range contents.GetInt64Contents() {
			numbers = append(numbers, float64(n))
		}
		if len(answer.GetRawOutputContents()) > 0 {
			for raw := answer.GetRawOutputContents()[i]; len(raw) > 0; {
				switch o.GetDatatype() {
				case "FP64":
					numbers, raw = append(numbers, math.Float64frombits(binary.LittleEndian.Uint64(raw))), raw[8:]
				case "INT64":
					numbers, raw = append(numbers, float64(int64(binary.LittleEndian.Uint64(raw)))), raw[8:]
				case "BOOL":
					truths, raw = append(truths, raw[0] == 1), raw[1:]
				default:
					n := 4 + binary.LittleEndian.Uint32(raw)
					texts, raw = append(texts, raw[4:n]), raw[n:]
				}
			}
		}
		switch o.GetDatatype() {
		case "BOOL":
			all[o.GetName()] = truths
		case "BYTES":
			words := make([]string, len(texts))
			for i, text := range texts {
				words[i] = string(text)
			}
			all[o.GetName()] = words
		default:
			all[o.GetName()] = numbers
		}
	}
	return all
}

// told is the outputs of JSON: of the REST form, or what another program has printed.
func told(t *testing.T, name string, data json.RawMessage) any {
	t.Helper()
	var into any = new([]float64)
	switch name {
	case "defer", "degenerate":
		into = new([]bool)
	case "reason", "decision":
		into = new([]string)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v: %.200s", name, err, data)
	}
	return reflect.ValueOf(into).Elem().Interface()
}

// equal holds outputs against those of the native service, bit by bit.
func equal(t *testing.T, what string, got, want outputs) {
	t.Helper()
	for name := range got {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s: %s is not that of Decompose: %.200v, want %.200v", what, name, got[name], want[name])
		}
	}
}

// readRecording is the first inputs of a recording, [N,S,K].
func readRecording(t *testing.T, name string, limit int) (values []float32, n, s, k int) {
	t.Helper()
	p, err := record.ReadPasses(recording(name, ".passes.npy"), record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n = min(limit, p.N)
	values = make([]float32, 0, n*p.S*p.K)
	for i := range n {
		for s := range p.S {
			at := (s*p.N + i) * p.K
			values = append(values, p.Float32[at:at+p.K]...)
		}
	}
	return values, n, p.S, p.K
}

// TestInferenceEqualsDecompose: on real passes all forms of the Open Inference Protocol, over gRPC and REST, have the
// results of the native service, to the last bit.
func TestInferenceEqualsDecompose(t *testing.T) {
	t.Parallel()
	s := serveSite(t)
	conn := s.dial()
	infer := inferencepb.NewGRPCInferenceServiceClient(conn)
	for _, name := range recordings {
		values, n, passes, classes := readRecording(t, name, 400)
		shape := []int64{int64(n), int64(passes), int64(classes)}
		want := native(t, conn, &ckdv1.DecomposeRequest{
			Model: "fetal-health", Layout: ckdv1.Layout_LAYOUT_NSK, Inputs: uint32(n), Passes: uint32(passes), Values: values,
		})
		deferred := 0
		for _, d := range want["defer"].([]bool) {
			if d {
				deferred++
			}
		}
		if len(want) != len(outputNames) || deferred == 0 || deferred == n {
			t.Fatalf("%s: %d outputs, %d inputs of %d deferred", name, len(want), deferred, n)
		}
		request := func(datatype string) *inferencepb.ModelInferRequest {
			r := &inferencepb.ModelInferRequest{ModelName: "fetal-health", Id: name, Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{
				Name: "passes", Datatype: datatype, Shape: shape,
			}}}
			for _, o := range outputNames {
				r.Outputs = append(r.Outputs, &inferencepb.ModelInferRequest_InferRequestedOutputTensor{Name: o})
			}
			return r
		}
		raw := new(bytes.Buffer)
		for _, v := range values {
			_ = binary.Write(raw, binary.LittleEndian, v) // a buffer takes everything
		}
		rawRequest, typed := request("FP32"), request("FP32")
		rawRequest.RawInputContents = [][]byte{raw.Bytes()}
		typed.Inputs[0].Contents = &inferencepb.InferTensorContents{Fp32Contents: values}
		for form, r := range map[string]*inferencepb.ModelInferRequest{"raw": rawRequest, "typed": typed} {
			answer, err := infer.ModelInfer(inTime(t), r)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, form, err)
			}
			got := inferred(t, answer)
			if answer.GetId() != name || len(got) != len(outputNames) || len(answer.GetRawOutputContents()) != len(outputNames) {
				t.Errorf("%s, %s: id %q, %d outputs", name, form, answer.GetId(), len(got))
			}
			equal(t, name+", "+form, got, want)
		}
		equal(t, name+", REST", overREST(t, s, shape, values), want)
	}
}

// overREST asks for all outputs by JSON.
func overREST(t *testing.T, s *daemon, shape []int64, values []float32) outputs {
	t.Helper()
	type tensor struct {
		Name     string  `json:"name"`
		Datatype string  `json:"datatype,omitempty"`
		Shape    []int64 `json:"shape,omitempty"`
		Data     any     `json:"data,omitempty"`
	}
	asked := map[string][]tensor{"inputs": {{"passes", "FP32", shape, values}}}
	for _, name := range outputNames {
		asked["outputs"] = append(asked["outputs"], tensor{Name: name})
	}
	r := s.mustAsk(http.MethodPost, "/v2/models/fetal-health/infer", jsonText(t, asked))
	var answer struct {
		Outputs []struct {
			Name string
			Data json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil || r.code != http.StatusOK || len(answer.Outputs) != len(outputNames) {
		t.Fatalf("REST: %v: %d %.300s", err, r.code, r.body)
	}
	all := outputs{}
	for _, o := range answer.Outputs {
		all[o.Name] = told(t, o.Name, o.Data)
	}
	return all
}

// TestForeignClient: grpcio, which knows nothing but the protocol's definition, makes every call over mutual TLS with a
// token, and has the decisions of the native service.
func TestForeignClient(t *testing.T) {
	python := pythonWith(t, "grpc", "grpc_tools.protoc", "numpy")
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
		Outputs map[string]json.RawMessage
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
		len(said.Config) != 1 || said.Config[0] != "passes" || said.Nobody != "NOT_FOUND" || said.NoToken != "UNAUTHENTICATED" {
		t.Errorf("it says %.600s", r.Stdout)
	}
	values, n, passes, _ := readRecording(t, "ctg-mcdropout", limit)
	conn := dialTLS(t, s.GRPC[0], trusting(v.servers, own.TLS(t)))
	want := native(t, conn, &ckdv1.DecomposeRequest{
		Model: "fetal-health", Layout: ckdv1.Layout_LAYOUT_NSK, Inputs: uint32(n), Passes: uint32(passes), Values: values,
	}, grpc.PerRPCCredentials(bearerToken(token)))
	check := func(what string, fields map[string]json.RawMessage) {
		t.Helper()
		if len(fields) != 8 {
			t.Errorf("%s: %d outputs", what, len(fields))
		}
		got := outputs{}
		for name, data := range fields {
			got[name] = told(t, name, data)
		}
		equal(t, what, got, want)
	}
	check("raw", said.Raw.Outputs)
	check("typed", said.Typed.Outputs)
	if said.Raw.ID != "raw" || said.Typed.ID != "typed" || len(said.Stream) != 3 ||
		!strings.Contains(string(said.Stream[1][0]), "no policy names the model") {
		t.Fatalf("it says %.600s", r.Stdout)
	}
	for _, i := range []int{0, 2} {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(said.Stream[i][1], &fields); err != nil || string(said.Stream[i][0]) != `""` {
			t.Fatalf("answer %d of the stream: %s, %v", i, said.Stream[i][0], err)
		}
		check(fmt.Sprintf("answer %d of the stream", i), fields)
	}
	v.isKeptBy(s)
}

// bearerToken is a token that goes with every call over TLS.
type bearerToken string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearerToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearerToken) RequireTransportSecurity() bool { return true }

// pythonWith finds an interpreter that has the modules. Without one the test is skipped, unless CKD_REQUIRE_TOOLS is set.
func pythonWith(t *testing.T, modules ...string) string {
	t.Helper()
	imports := "import " + strings.Join(modules, ", ")
	for _, path := range []string{os.Getenv("PYTHON"), "python3", "/usr/bin/python3"} {
		if path != "" && exec.Command(path, "-c", imports).Run() == nil {
			return path
		}
	}
	if os.Getenv("CKD_REQUIRE_TOOLS") != "" {
		t.Fatalf("no python3 has %s, and CKD_REQUIRE_TOOLS is set", strings.Join(modules, ", "))
	}
	t.Skipf("no python3 has %s; set PYTHON to one", strings.Join(modules, ", "))
	return ""
}
