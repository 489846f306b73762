package inference_test

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ckd-project/ckd/inference"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// testPolicies have a model of each kind, and one that observes. The tolerance of
// ctg takes in what the rounding to BF16 does to sums.
const testPolicies = `
models:
  - name: ctg
    version: v1
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 4, expected: 30}
    sum_tolerance: 0.02
    primary: {score: c_crit_max, threshold: 0.02}
    fallback: {score: cbec, threshold: 0.003}
    calibration: {posterior: mc-dropout, recording: {passes: 30}}
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

// harness is a server that speaks both protocols, behind a connection in memory.
type harness struct {
	server   *server.Server
	native   ckdv1.UncertaintyServiceClient
	client   pb.GRPCInferenceServiceClient
	registry *prometheus.Registry
}

func newServer(t testing.TB, limits server.Limits) (*server.Server, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Options{ClassLabels: 32, RejectReasons: server.RejectReasons()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Options{Limits: limits, Logger: zap.NewNop(), Metrics: m, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	inference.Register(s, s)
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

func newHarness(t *testing.T, limits server.Limits) *harness {
	t.Helper()
	s, registry := newServer(t, limits)
	setPolicies(t, s)
	pipe := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- s.GRPC().Serve(pipe) }()
	conn, err := grpc.NewClient("passthrough:bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.GRPC().Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		for deadline := time.Now().Add(time.Minute); !s.Idle(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("calls are left")
				break
			}
		}
	})
	return &harness{s, ckdv1.NewUncertaintyServiceClient(conn), pb.NewGRPCInferenceServiceClient(conn), registry}
}

// metric is the sum of a metric over the series with these labels.
func (h *harness) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := h.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// eventually waits until a metric, which the server may still be updating, has a
// value.
func (h *harness) eventually(t testing.TB, want float64, name string, labels ...string) {
	t.Helper()
	var got float64
	for range 6000 {
		if got = h.metric(t, name, labels...); got == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s%v is %v, want %v", name, labels, got, want)
}

// tensor is values in the default layout, [N][S][K].
type tensor struct {
	inputs, passes, classes int
	values                  []float32
}

// classesOf are the classes of the models that tests compare.
var classesOf = map[string][]string{
	"ctg": {"normal", "suspect", "pathologic"}, "logits": {"a", "b", "c"}, "evidential": {"a", "b", "c"},
}

// ctg is real passes of the first inputs of a recording.
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

// of makes other values of these.
func (v tensor) of(change func(float32) float32) tensor {
	v.values = slices.Clone(v.values)
	for i, x := range v.values {
		v.values[i] = change(x)
	}
	return v
}

// snk is the values as [S][N][K].
func (v tensor) snk() []float32 {
	out := make([]float32, 0, len(v.values))
	for s := range v.passes {
		for i := range v.inputs {
			out = append(out, v.values[(i*v.passes+s)*v.classes:][:v.classes]...)
		}
	}
	return out
}

// request is the values as a request in a layout, with the values in a form.
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
	var raw []byte
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
	case "FP32":
		for _, x := range values {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
	case "FP64":
		for _, x := range values {
			raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(float64(x)))
		}
	case "FP16":
		for _, x := range values {
			raw = binary.LittleEndian.AppendUint16(raw, halfBits(x))
		}
	case "BF16":
		for _, x := range values {
			raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(x)>>16))
		}
	}
	r.RawInputContents = [][]byte{raw}
	return r
}

// halfBits is a number of 16 bits, of one in [2^-14,2) that loses nothing by it,
// or of zero.
func halfBits(x float32) uint16 {
	if x == 0 {
		return 0
	}
	bits := math.Float32bits(x)
	return uint16((bits>>23-127+15)<<10 | bits>>13&0x3ff)
}

// asHalf is a number as FP16 has it, if it is in [0,2): cut off.
func asHalf(x float32) float32 {
	if x < 0x1p-14 {
		return 0
	}
	return math.Float32frombits(math.Float32bits(x) &^ 0x1fff)
}

// nearest rounds to the nearest number, ties to even, that cut leaves as it is: to so
// many bits fewer than float32 has.
func nearest(x float32, bits int) float32 {
	u := math.Float32bits(x)
	return math.Float32frombits(u + 1<<(bits-1) - 1 + u>>bits&1)
}

// asBrain is a number as BF16 has it: cut off.
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

// allOutputs is what the issue of the protocol's outputs is about.
var allOutputs = []string{
	"c", "skewness", "mean", "variance", "m", "mi", "entropy", "sum_c", "score", "threshold", "defer", "deciding_class",
	"reason", "degenerate", "decision", "predicted", "predicted_class",
}

// answer is the outputs of a response by name, whichever form they came in.
type answer struct {
	numbers  map[string][]float64
	truths   map[string][]bool
	integers map[string][]int64
	texts    map[string][]string
}

// read reads a response as a client does, and holds it against the protocol.
func read(t testing.TB, r *pb.ModelInferResponse) answer {
	t.Helper()
	a := answer{map[string][]float64{}, map[string][]bool{}, map[string][]int64{}, map[string][]string{}}
	raw := len(r.GetRawOutputContents()) > 0
	if raw && len(r.GetRawOutputContents()) != len(r.GetOutputs()) {
		t.Fatalf("%d raw outputs of %d", len(r.GetRawOutputContents()), len(r.GetOutputs()))
	}
	for i, o := range r.GetOutputs() {
		elements, found, c := 1, 0, o.GetContents()
		for _, n := range o.GetShape() {
			elements *= int(n)
		}
		var data []byte
		if raw {
			if data = r.GetRawOutputContents()[i]; c != nil {
				t.Errorf("%s: raw and typed", o.GetName())
			}
		}
		switch o.GetDatatype() {
		case "FP64":
			numbers := slices.Clone(c.GetFp64Contents())
			for ; len(data) >= 8; data = data[8:] {
				numbers = append(numbers, math.Float64frombits(binary.LittleEndian.Uint64(data)))
			}
			a.numbers[o.GetName()], found = numbers, len(numbers)
		case "INT64":
			integers := slices.Clone(c.GetInt64Contents())
			for ; len(data) >= 8; data = data[8:] {
				integers = append(integers, int64(binary.LittleEndian.Uint64(data)))
			}
			a.integers[o.GetName()], found = integers, len(integers)
		case "BOOL":
			truths := slices.Clone(c.GetBoolContents())
			for ; len(data) > 0; data = data[1:] {
				truths = append(truths, data[0] == 1)
			}
			a.truths[o.GetName()], found = truths, len(truths)
		case "BYTES":
			var texts []string
			for _, b := range c.GetBytesContents() {
				texts = append(texts, string(b))
			}
			for len(data) >= 4 {
				n := binary.LittleEndian.Uint32(data)
				texts, data = append(texts, string(data[4:4+n])), data[4+n:]
			}
			a.texts[o.GetName()], found = texts, len(texts)
		default:
			t.Errorf("%s: datatype %s", o.GetName(), o.GetDatatype())
		}
		if found != elements || len(data) > 0 {
			t.Errorf("%s: shape %v, %d elements, %d bytes over", o.GetName(), o.GetShape(), found, len(data))
		}
	}
	return a
}

// reasonIn is the reason in the details of an error, the field, and the metadata.
func reasonIn(t testing.TB, err error) (reason, field string, meta map[string]string) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() != "ckd.v1" {
				t.Errorf("domain %q", d.GetDomain())
			}
			reason, meta = d.GetReason(), d.GetMetadata()
		case *errdetails.BadRequest:
			field = d.GetFieldViolations()[0].GetField()
		}
	}
	if reason == "" {
		t.Errorf("no ErrorInfo in %v", err)
	}
	return reason, field, meta
}

func le64(to []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(x))
}
