package oip_test

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/oip"
	"github.com/ckd-project/ckd/oip/internal/contents"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// testPolicies has a model of each kind, and one that only observes. The tolerance of ctg covers
// what rounding to BF16 does to sums.
var testPolicies = `
models:
  - name: risky
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 4, expected: 30}
    sum_tolerance: 0.02
    gate: never
    primary: {score: risk, threshold: 0.1}
    guard: {score: mi, threshold: 0.3}
    calibrated:
      risk:
        called_safe: {intercept: -1, slope: 0.5}
        called_critical: {intercept: 0.25, slope: 2}
        quantiles: [0` + strings.Repeat(", 0.25", 63) + `, 1]
        prevalence: 0.2
  - name: ctg
    version: v1
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 4, expected: 30}
    sum_tolerance: 0.02
    primary: {score: c_crit_max, threshold: 0.02}
    fallback: {score: cbec, threshold: 0.003}
    calibrated: {posterior: mc-dropout, recording: {passes: 30}}
  - name: graph
    tensor: dense/Softmax:0
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 4}
    primary: {score: c_crit_max, threshold: 0.02}
    fallback: {score: cbec, threshold: 0.003}
  - name: tolerance
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    gate: never
    passes: {fewest: 2}
  - name: observed
    classes: [safe, critical]
    critical: [critical]
    gate: never
    passes: {fewest: 2}
  - name: logits
    classes: [a, b, c]
    critical: [c]
    kind: logits
    gate: never
    passes: {fewest: 2, expected: 2}
    primary: {score: c_crit_max, threshold: 0.02}
  - name: evidential
    classes: [a, b, c]
    critical: [c]
    kind: dirichlet
    fallback: {score: entropy, threshold: 0.9}
`

// harness runs a server of both protocols behind a connection in memory.
type harness struct {
	server   *server.Server
	native   ckdv1.UncertaintyServiceClient
	client   pb.GRPCInferenceServiceClient
	registry *prometheus.Registry
}

func newServer(t testing.TB, limits server.Limits, change ...func(*server.Options)) (*server.Server, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Options{ClassLabels: 32, RejectReasons: server.RejectReasons()})
	if err != nil {
		t.Fatal(err)
	}
	options := server.Options{Limits: limits, Logger: zap.NewNop(), Metrics: m, Registry: registry}
	for _, c := range change {
		c(&options)
	}
	s, err := server.New(options)
	if err != nil {
		t.Fatal(err)
	}
	oip.Register(s, s)
	return s, registry
}

func setPolicies(t testing.TB, s *server.Server) {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(testPolicies)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetPolicies(set); err != nil {
		t.Fatal(err)
	}
}

func newHarness(t *testing.T, limits server.Limits, change ...func(*server.Options)) *harness {
	t.Helper()
	s, registry := newServer(t, limits, change...)
	setPolicies(t, s)
	t.Cleanup(func() { // after the server has stopped
		for deadline := time.Now().Add(time.Minute); !s.Idle(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("calls are left")
				break
			}
		}
	})
	conn := servertest.Dial(t, servertest.Serve(t, s.GRPC()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	return &harness{s, ckdv1.NewUncertaintyServiceClient(conn), pb.NewGRPCInferenceServiceClient(conn), registry}
}

// eventually waits until a metric has a value.
func (h *harness) eventually(t testing.TB, want float64, name string, labels ...string) {
	t.Helper()
	servertest.Eventually(t, h.registry, want, name, labels...)
}

// infer returns the answer to a request that must not be refused.
func (h *harness) infer(t tester, r *pb.ModelInferRequest) *pb.ModelInferResponse {
	t.Helper()
	response, err := h.client.ModelInfer(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// tester holds what the helpers need of a test, from package testing or from rapid.
type tester interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// tensor holds values in the default layout, [N][S][K].
type tensor struct {
	inputs, passes, classes int
	values                  []float32
}

// classesOf returns the classes of the models that tests compare.
var classesOf = map[string][]string{
	"risky": {"normal", "suspect", "pathologic"},
	"ctg":   {"normal", "suspect", "pathologic"}, "logits": {"a", "b", "c"}, "evidential": {"a", "b", "c"},
}

// ctg returns real passes of the first inputs of a recording.
func ctg(t testing.TB, inputs int) tensor {
	t.Helper()
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	p := r.Passes
	v := tensor{inputs, p.S, p.K, nil}
	for i := range inputs {
		for s := range p.S {
			v.values = append(v.values, p.Float32[p.Offset(s, i):][:p.K]...)
		}
	}
	return v
}

// mapped returns a copy of the tensor with every value changed.
func (v tensor) mapped(change func(float32) float32) tensor {
	v.values = slices.Clone(v.values)
	for i, x := range v.values {
		v.values[i] = change(x)
	}
	return v
}

// snk returns the values in the order [S][N][K].
func (v tensor) snk() []float32 {
	out := make([]float32, 0, len(v.values))
	for s := range v.passes {
		for i := range v.inputs {
			out = append(out, v.values[(i*v.passes+s)*v.classes:][:v.classes]...)
		}
	}
	return out
}

// request returns the values as a request, in the given layout and form.
func (v tensor) request(model, layout, form string) *pb.ModelInferRequest {
	values, shape := v.values, []int64{int64(v.inputs), int64(v.passes), int64(v.classes)}
	r := &pb.ModelInferRequest{ModelName: model, Parameters: map[string]*pb.InferParameter{}}
	if layout != "" {
		r.Parameters["layout"] = text(layout)
	}
	if layout == "SNK" {
		values, shape[0], shape[1] = v.snk(), shape[1], shape[0]
	}
	in := &pb.ModelInferRequest_InferInputTensor{Name: "passes", Datatype: form, Shape: shape}
	r.Inputs = append(r.Inputs, in)
	switch form {
	case "typed FP32":
		in.Datatype, in.Contents = "FP32", &pb.InferTensorContents{Fp32Contents: values}
		return r
	case "typed FP64":
		in.Datatype, in.Contents = "FP64", &pb.InferTensorContents{}
		for _, x := range values {
			in.Contents.Fp64Contents = append(in.Contents.Fp64Contents, float64(x))
		}
		return r
	}
	var raw []byte
	for _, x := range values {
		switch form {
		case "FP32":
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		case "FP64":
			raw = le64(raw, float64(x))
		case "FP16":
			raw = binary.LittleEndian.AppendUint16(raw, halfBits(x))
		case "BF16":
			raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(x)>>16))
		}
	}
	r.RawInputContents = [][]byte{raw}
	return r
}

// halfBits returns the 16 bits of a number in [2^-14,2) that FP16 holds exactly, or of zero.
func halfBits(x float32) uint16 {
	if x == 0 {
		return 0
	}
	bits := math.Float32bits(x)
	return uint16((bits>>23-127+15)<<10 | bits>>13&0x3ff)
}

// asHalf returns a number in [0,2) as FP16 holds it, truncated.
func asHalf(x float32) float32 {
	if x < 0x1p-14 {
		return 0
	}
	return math.Float32frombits(math.Float32bits(x) &^ 0x1fff)
}

// nearest rounds to the nearest number, ties to even, that cut leaves as it is: to so many bits
// fewer than float32 has.
func nearest(x float32, bits int) float32 {
	u := math.Float32bits(x)
	return math.Float32frombits(u + 1<<(bits-1) - 1 + u>>bits&1)
}

// asBrain returns a number as BF16 holds it, truncated.
func asBrain(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ 0xffff) }

func text(value string) *pb.InferParameter {
	return &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: value}}
}

// ask names the outputs of a request.
func ask(r *pb.ModelInferRequest, names ...string) *pb.ModelInferRequest {
	for _, name := range names {
		r.Outputs = append(r.Outputs, &pb.ModelInferRequest_InferRequestedOutputTensor{Name: name})
	}
	return r
}

// allOutputs lists the outputs of the protocol, except those for clients that take receipts.
var allOutputs = []string{
	"c", "skewness", "mean", "variance", "m", "mi", "entropy", "sum_c", "score", "threshold", "defer", "deciding_class",
	"reason", "degenerate", "decision", "predicted", "predicted_class", "risk", "priority", "priority_percentile",
}

// answer holds the outputs of a response by name.
type answer map[string]*pb.InferTensorContents

func (a answer) numbers(name string) []float64 { return a[name].GetFp64Contents() }
func (a answer) truths(name string) []bool     { return a[name].GetBoolContents() }
func (a answer) integers(name string) []int64  { return a[name].GetInt64Contents() }

func (a answer) texts(name string) []string {
	var texts []string
	for _, b := range a[name].GetBytesContents() {
		texts = append(texts, string(b))
	}
	return texts
}

// read reads a response as a client does, and checks it against the protocol.
func read(t tester, r *pb.ModelInferResponse) answer {
	t.Helper()
	raw := r.GetRawOutputContents()
	if len(raw) > 0 && len(raw) != len(r.GetOutputs()) {
		t.Fatalf("%d raw outputs of %d", len(raw), len(r.GetOutputs()))
	}
	a := answer{}
	for i, o := range r.GetOutputs() {
		elements, is, whole := 1, o.GetContents(), true
		for _, n := range o.GetShape() {
			elements *= int(n)
		}
		if len(raw) > 0 {
			if is != nil {
				t.Errorf("%s: raw and typed", o.GetName())
			}
			is, whole = contents.Typed(raw[i], o.GetDatatype())
		}
		found := map[string]int{
			"FP64": len(is.GetFp64Contents()), "INT64": len(is.GetInt64Contents()),
			"BOOL": len(is.GetBoolContents()), "BYTES": len(is.GetBytesContents()),
		}[o.GetDatatype()]
		if !whole || found != elements || found != contents.Count(is) {
			t.Errorf("%s of type %s: shape %v, %d elements of %d, whole %v", o.GetName(), o.GetDatatype(), o.GetShape(), found, contents.Count(is), whole)
		}
		a[o.GetName()] = is
	}
	return a
}

func le64(to []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(x))
}
