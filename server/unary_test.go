package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/wire"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// TestUnary: both layouts and encodings of real passes, equal to the engine's
// own numbers.
func TestUnary(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	passes := ctg(t)
	const inputs = 200
	snk := tensor(passes, inputs)
	snk.Detail = ckdv1.Detail_DETAIL_FULL
	nsk := proto.Clone(snk).(*ckdv1.DecomposeRequest)
	nsk.Layout, nsk.Values = ckdv1.Layout_LAYOUT_NSK, nil
	var values []float32
	for i := range inputs {
		nsk.InputIds = append(nsk.InputIds, fmt.Sprint(i))
		for s := range passes.S {
			values = append(values, rowsOfPass(passes, s, i, i+1)...)
		}
	}
	nsk.ValuesLe = littleEndian(values)

	model := (*h.server.catalog.Load())["ctg"].full.Model
	reference, outcome := model.NewBatch(), model.NewOutcome()
	if err := reference.Reset(decomp.Tensor{Passes: passes.S, Inputs: passes.N, Float32: passes.Float32}); err != nil {
		t.Fatal(err)
	}
	for _, request := range []*ckdv1.DecomposeRequest{snk, nsk} {
		response, err := h.client.Decompose(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if len(response.GetResults()) != inputs || response.GetPolicy().GetVersion() != "v1" || len(response.GetPolicy().GetHash()) != 64 {
			t.Fatalf("%d results, policy %v", len(response.GetResults()), response.GetPolicy())
		}
		for i, r := range response.GetResults() {
			if err := reference.Outcome(i, outcome); err != nil {
				t.Fatal(err)
			}
			compare(t, r, model, outcome)
			if int(r.GetRow()) != i || len(request.GetInputIds()) > 0 && r.GetInputId() != fmt.Sprint(i) {
				t.Errorf("result %d has row %d, id %q", i, r.GetRow(), r.GetInputId())
			}
		}
	}
	h.eventually(t, 2*inputs, "ckd_decisions_total", "model", "ctg")
}

// TestUnaryBadRow: a bad row fails its input, with everything named.
func TestUnaryBadRow(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	passes := ctg(t)
	for name, c := range map[string]struct {
		value  float32
		reason ckdv1.ErrorReason
		meta   map[string]string
	}{
		"NaN":       {float32(math.NaN()), ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE, map[string]string{"class": "2", "value": "NaN"}},
		"infinite":  {float32(math.Inf(-1)), ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE, map[string]string{"class": "2", "value": "-Inf"}},
		"negative":  {-0.5, ckdv1.ErrorReason_ERROR_REASON_NEGATIVE, map[string]string{"class": "2", "value": "-0.5"}},
		"above one": {1.5, ckdv1.ErrorReason_ERROR_REASON_ABOVE_ONE, map[string]string{"class": "2", "value": "1.5"}},
		"sum":       {0.5, ckdv1.ErrorReason_ERROR_REASON_SUM_NOT_ONE, map[string]string{"expected": "1 within 0.001"}},
	} {
		t.Run(name, func(t *testing.T) {
			request := tensor(passes, 3)
			request.InputIds = []string{"x", "y", "z"}
			row := request.Values[(7*3+1)*3 : (7*3+1)*3+3] // pass 7 of input 1
			copy(row, []float32{0.25, 0, c.value})
			response, err := h.client.Decompose(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range response.GetResults() {
				if i != 1 {
					if r.GetDecomposition() == nil {
						t.Errorf("input %d: %v", i, r.GetError())
					}
					continue
				}
				reason, meta := reasonIn(t, r.GetError())
				if reason != c.reason || meta["input"] != "y" || meta["row"] != "1" || meta["pass"] != "7" {
					t.Errorf("%v %v", reason, meta)
				}
				for key, want := range c.meta {
					if meta[key] != want {
						t.Errorf("%s is %q, want %q", key, meta[key], want)
					}
				}
				field := ""
				for _, d := range status.FromProto(r.GetError()).Details() {
					if bad, ok := d.(*errdetails.BadRequest); ok {
						field = bad.GetFieldViolations()[0].GetField()
					}
				}
				want := "inputs[1].passes[7].classes[2]"
				if c.reason == ckdv1.ErrorReason_ERROR_REASON_SUM_NOT_ONE {
					want = "inputs[1].passes[7]"
				}
				if field != want {
					t.Errorf("field %q, want %q", field, want)
				}
			}
		})
	}
	h.eventually(t, 10, "ckd_decisions_total", "model", "ctg")
	h.eventually(t, 5, "ckd_inputs_rejected_total", "model", "ctg")
	h.eventually(t, 300, "ckd_passes_total", "model", "ctg")
}

// TestUnaryRefusals: what makes the tensor unreadable refuses the call.
func TestUnaryRefusals(t *testing.T) {
	limits := DefaultLimits()
	limits.InputsPerRequest, limits.PassesPerInput, limits.InputIDBytes = 100, 1000, 8
	h := newHarness(t, limits)
	passes := ctg(t)
	for name, c := range map[string]struct {
		change func(*ckdv1.DecomposeRequest)
		code   codes.Code
		reason ckdv1.ErrorReason
		text   string
	}{
		"unknown model":   {func(r *ckdv1.DecomposeRequest) { r.Model = "nobody" }, codes.NotFound, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, `no policy names the model "nobody", expected one of: ctg, `},
		"misspelt model":  {func(r *ckdv1.DecomposeRequest) { r.Model = "evidental" }, codes.NotFound, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, `, did you mean "evidential"?`},
		"no model":        {func(r *ckdv1.DecomposeRequest) { r.Model = "" }, codes.NotFound, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, `""`},
		"wrong classes":   {func(r *ckdv1.DecomposeRequest) { r.Classes = []string{"normal", "suspect", "other"} }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_CLASSES, "classes[2]"},
		"wrong K":         {func(r *ckdv1.DecomposeRequest) { r.Classes = []string{"normal"} }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_CLASSES, "3 classes"},
		"wrong kind":      {func(r *ckdv1.DecomposeRequest) { r.Kind = ckdv1.Kind_KIND_DIRICHLET }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_KIND, "KIND_DIRICHLET"},
		"posterior":       {func(r *ckdv1.DecomposeRequest) { r.Posterior = strings.Repeat("x", 129) }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_POSTERIOR, "posterior: got"},
		"unknown detail":  {func(r *ckdv1.DecomposeRequest) { r.Detail = 9 }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_ENUM, "detail"},
		"no layout":       {func(r *ckdv1.DecomposeRequest) { r.Layout = 0 }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_LAYOUT, "LAYOUT_UNSPECIFIED"},
		"unknown layout":  {func(r *ckdv1.DecomposeRequest) { r.Layout = 9 }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_LAYOUT, "layout is 9"},
		"one value short": {func(r *ckdv1.DecomposeRequest) { r.Values = r.Values[1:] }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH, "179 values, expected 30 passes x 2 inputs x 3 classes"},
		"overflow":        {func(r *ckdv1.DecomposeRequest) { r.Passes, r.Inputs = 1000, 100 }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH, "1000 passes"},
		"odd bytes":       {func(r *ckdv1.DecomposeRequest) { r.Values, r.ValuesLe = nil, make([]byte, 7) }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH, "7 bytes"},
		"two encodings":   {func(r *ckdv1.DecomposeRequest) { r.ValuesLe = make([]byte, 4) }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_TWO_ENCODINGS, "both"},
		"too few passes":  {func(r *ckdv1.DecomposeRequest) { r.Passes, r.Values = 3, r.Values[:18] }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES, "3 passes, expected at least 4"},
		"one pass":        {func(r *ckdv1.DecomposeRequest) { r.Passes, r.Values = 1, r.Values[:6] }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES, "expected at least"},
		"too many passes": {func(r *ckdv1.DecomposeRequest) { r.Passes = 1001 }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "limit of 1000"},
		"too many inputs": {func(r *ckdv1.DecomposeRequest) { r.Inputs = 101 }, codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "limit of 100"},
		"ids missing":     {func(r *ckdv1.DecomposeRequest) { r.InputIds = []string{"a"} }, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_ID_COUNT, "1 input ids, expected none or 2"},
	} {
		t.Run(name, func(t *testing.T) {
			request := tensor(passes, 2)
			c.change(request)
			_, err := h.client.Decompose(t.Context(), request)
			st := status.Convert(err)
			if st.Code() != c.code {
				t.Fatalf("code %v, want %v: %v", st.Code(), c.code, err)
			}
			if reason, _ := reasonIn(t, st.Proto()); reason != c.reason || !contains(st.Message(), c.text) {
				t.Errorf("%v %q, want %v with %q", reason, st.Message(), c.reason, c.text)
			}
		})
	}
	h.eventually(t, 0, "ckd_decisions_total")
	h.eventually(t, 0, "ckd_passes_total")
	h.eventually(t, 3*2, "ckd_inputs_rejected_total", "model", "", "reason", "unknown_model")
}

// TestUnaryIDs: an id that is twice there, or too long, fails its input alone.
func TestUnaryIDs(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	request := tensor(ctg(t), 5)
	long := strings.Repeat("x", 1<<20)
	request.InputIds = []string{"a", "a", "", "", long}
	response, err := h.client.Decompose(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	want := []ckdv1.ErrorReason{0, ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ID, 0, 0, ckdv1.ErrorReason_ERROR_REASON_ID_TOO_LONG}
	for i, r := range response.GetResults() {
		if want[i] == 0 {
			if r.GetDecomposition() == nil {
				t.Errorf("input %d: %v", i, r.GetError())
			}
		} else if reason, _ := reasonIn(t, r.GetError()); reason != want[i] {
			t.Errorf("input %d: %v, want %v", i, reason, want[i])
		}
	}
	if n := proto.Size(response); n > 4096 {
		t.Errorf("an id of a megabyte is answered with %d bytes", n)
	}
	h.eventually(t, 3, "ckd_decisions_total")
	h.eventually(t, 2, "ckd_inputs_rejected_total", "model", "ctg")
}

// TestLongTexts: what a client sent is not sent back at length, so that an error
// does not break the connection that it travels on.
func TestLongTexts(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	long := strings.Repeat("\u00e9", 1<<20)
	for name, r := range map[string]*ckdv1.DecomposeRequest{
		"model":   {Model: long},
		"classes": {Model: "ctg", Classes: []string{"normal", long, "pathologic"}},
	} {
		_, err := h.client.Decompose(t.Context(), r)
		st := status.Convert(err)
		if code := st.Code(); code != codes.NotFound && code != codes.InvalidArgument || proto.Size(st.Proto()) > 2048 {
			t.Errorf("%s: %v, %d bytes", name, code, proto.Size(st.Proto()))
		}
	}
	for _, e := range h.logs.All() {
		if n := len(fmt.Sprint(e.ContextMap())); n > 2048 {
			t.Errorf("a line of the log has %d bytes", n)
		}
	}
}

// TestReplyLimit: what would make a reply too large is refused before the work.
func TestReplyLimit(t *testing.T) {
	limits := DefaultLimits()
	limits.ReplyBytes = 4096
	h := newHarness(t, limits)
	request := tensor(ctg(t), 20)
	if _, err := h.client.Decompose(t.Context(), request); err != nil {
		t.Errorf("decisions alone: %v", err)
	}
	request.Detail = ckdv1.Detail_DETAIL_FULL
	_, err := h.client.Decompose(t.Context(), request)
	if reason, meta := reasonIn(t, status.Convert(err).Proto()); reason != ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE || !contains(meta["expected"], "at most 11 inputs") {
		t.Errorf("everything: %v, %v", reason, meta)
	}
	st := h.open(t, &ckdv1.StreamHeader{Model: "ctg", Detail: ckdv1.Detail_DETAIL_FULL})
	st.sendBlock(&ckdv1.Block{InputIds: make([]string, 20), Values: rowsOfPass(ctg(t), 0, 0, 20)})
	if faults := st.receive().GetFaults(); len(faults) != 1 {
		t.Errorf("a group too large: %v", faults)
	}
}

// TestUnaryNothing: no inputs are no fault.
func TestUnaryNothing(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	response, err := h.client.Decompose(t.Context(), &ckdv1.DecomposeRequest{Model: "ctg", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 30})
	if err != nil || len(response.GetResults()) != 0 {
		t.Errorf("got %v, %v", response, err)
	}
}

// TestUnaryDirichletAndLogits: the other two kinds of rows.
func TestUnaryDirichletAndLogits(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	response, err := h.client.Decompose(t.Context(), &ckdv1.DecomposeRequest{
		Model: "evidential", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 1, Inputs: 2, Values: []float32{8, 1, 1, 2, 0, 6},
	})
	if err != nil {
		t.Fatal(err)
	}
	if response.GetResults()[0].GetDecomposition() == nil {
		t.Errorf("concentrations: %v", response.GetResults()[0].GetError())
	}
	if reason, _ := reasonIn(t, response.GetResults()[1].GetError()); reason != ckdv1.ErrorReason_ERROR_REASON_NOT_POSITIVE {
		t.Errorf("a concentration of zero: %v", reason)
	}
	_, err = h.client.Decompose(t.Context(), &ckdv1.DecomposeRequest{
		Model: "evidential", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 2, Inputs: 1, Values: []float32{8, 1, 1, 2, 1, 6},
	})
	if reason, _ := reasonIn(t, status.Convert(err).Proto()); reason != ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES {
		t.Errorf("two rows of concentrations: %v", err)
	}
	response, err = h.client.Decompose(t.Context(), &ckdv1.DecomposeRequest{
		Model: "logits", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 2, Inputs: 1, Values: []float32{0, 0, 0, 1000, 0, -1000}, Detail: ckdv1.Detail_DETAIL_VECTORS,
	})
	if err != nil {
		t.Fatal(err)
	}
	// The softmax of the first row is uniform, of the second one-hot.
	mean := response.GetResults()[0].GetDecomposition().GetMean()
	for k, want := range []float64{(1 + 1./3) / 2, 1. / 6, 1. / 6} {
		if math.Abs(mean[k]-want) > 1e-15 {
			t.Errorf("mean of logits %v, want %v in class %d", mean, want, k)
		}
	}
}

// TestModels: what clients are told of the policies.
func TestModels(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	list, err := h.client.ListModels(t.Context(), &ckdv1.ListModelsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range list.GetModels() {
		names = append(names, m.GetPolicy().GetModel())
	}
	if want := []string{"ctg", "evidential", "logits", "open-ended"}; !slices.Equal(names, want) {
		t.Errorf("models %v, want %v", names, want)
	}
	got, err := h.client.GetModel(t.Context(), &ckdv1.GetModelRequest{Model: "ctg"})
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got.GetModel(), list.GetModels()[0]) {
		t.Errorf("GetModel %v, ListModels %v", got.GetModel(), list.GetModels()[0])
	}
	m := got.GetModel()
	if m.GetPrimary().GetThreshold() != 0.02 || m.GetPrimary().GetScore() != ckdv1.Score_SCORE_C_CRIT_MAX ||
		m.GetFallback().GetThreshold() != 0.003 || m.GetGate() != ckdv1.Gate_GATE_ANY_CRITICAL || m.GetObserves() ||
		!slices.Equal(m.GetCritical(), []uint32{1, 2}) || !slices.Equal(m.GetSafe(), []uint32{0}) ||
		m.GetScope() != ckdv1.Scope_SCOPE_ALL || m.GetVariance() != ckdv1.Variance_VARIANCE_SAMPLE || m.GetSumTolerance() != 1e-3 ||
		m.GetReliabilityThreshold() != 0.3 || m.GetFewestPasses() != 4 || m.GetExpectedPasses() != 30 {
		t.Errorf("model %v", m)
	}
	if _, err := h.client.GetModel(t.Context(), &ckdv1.GetModelRequest{Model: "nobody"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown model: %v", err)
	}
}

// TestHealthAndReflection are there for whoever knows only gRPC.
func TestHealthAndReflection(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	check := func(service string) healthv1.HealthCheckResponse_ServingStatus {
		r, err := healthv1.NewHealthClient(h.conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatalf("%q: %v", service, err)
		}
		return r.GetStatus()
	}
	for _, service := range []string{"", "ctg", "evidential"} {
		if got := check(service); got != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%q is %v", service, got)
		}
	}
	if _, err := healthv1.NewHealthClient(h.conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "nobody"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown model: %v", err)
	}
	h.server.Drain()
	if got := check(""); got != healthv1.HealthCheckResponse_NOT_SERVING || h.server.Serving() {
		t.Errorf("while stopping: %v", got)
	}

	stream, err := reflectionv1.NewServerReflectionClient(h.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	found := slices.ContainsFunc(answer.GetListServicesResponse().GetService(), func(s *reflectionv1.ServiceResponse) bool {
		return s.GetName() == "ckd.v1.UncertaintyService"
	})
	if !found {
		t.Errorf("reflection lists %v", answer)
	}
}

// TestRequestID: the client's id comes back and is logged; without one there is
// a new one.
func TestRequestID(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	var header metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), requestIDKey, "my-request")
	if _, err := h.client.ListModels(ctx, &ckdv1.ListModelsRequest{}, grpcHeader(&header)); err != nil {
		t.Fatal(err)
	}
	if got := header.Get(requestIDKey); !slices.Equal(got, []string{"my-request"}) {
		t.Errorf("request id %v", got)
	}
	logged := false
	for _, e := range h.logs.All() {
		logged = logged || e.ContextMap()["request_id"] == "my-request"
	}
	if !logged {
		t.Errorf("no line of the log has the request id: %v", h.logs.All())
	}
	if _, err := h.client.ListModels(t.Context(), &ckdv1.ListModelsRequest{}, grpcHeader(&header)); err != nil {
		t.Fatal(err)
	}
	if got := header.Get(requestIDKey); len(got) != 1 || len(got[0]) != 16 {
		t.Errorf("a new request id %v", got)
	}
}

// TestTraceID: the trace that a call is part of is in its lines of the log.
func TestTraceID(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for sent, want := range map[string]any{
		"00-" + trace + "-00f067aa0ba902b7-01":                   trace,
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01": nil,
		"00-" + strings.Repeat("x", 32) + "-00f067aa0ba902b7-01": nil,
		"junk": nil, "": nil, strings.Repeat("-", 500): nil,
	} {
		h := newHarness(t, DefaultLimits())
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", sent)
		if _, err := h.client.ListModels(ctx, &ckdv1.ListModelsRequest{}); err != nil {
			t.Fatal(err)
		}
		lines := h.logs.FilterMessage("finished call").All()
		if len(lines) != 1 || lines[0].ContextMap()["trace_id"] != want {
			t.Errorf("traceparent %q: %v, want %v", sent, lines, want)
		}
	}
}

// TestChannelz is served where it is asked for, and nowhere else.
func TestChannelz(t *testing.T) {
	for _, on := range []bool{false, true} {
		registry := prometheus.NewRegistry()
		m, err := metrics.New(registry, metrics.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{Limits: DefaultLimits(), Logger: zap.NewNop(), Metrics: m, Registry: registry, Channelz: on})
		if err != nil {
			t.Fatal(err)
		}
		if _, served := s.GRPC().GetServiceInfo()["grpc.channelz.v1.Channelz"]; served != on {
			t.Errorf("channelz %v, want %v", served, on)
		}
	}
}

// TestPanicIsInternal: a panic becomes Internal with a fixed text, and a log
// line with the stack.
func TestPanicIsInternal(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	broken := catalog{"broken": &model{ref: &ckdv1.PolicyRef{}}} // without an engine
	h.server.catalog.Store(&broken)
	_, err := h.client.Decompose(t.Context(), &ckdv1.DecomposeRequest{Model: "broken"})
	if status.Code(err) != codes.Internal || contains(err.Error(), "nil pointer") {
		t.Errorf("got %v", err)
	}
	if reason, _ := reasonIn(t, status.Convert(err).Proto()); reason != ckdv1.ErrorReason_ERROR_REASON_INTERNAL {
		t.Errorf("reason %v", reason)
	}
	found := false
	for _, e := range h.logs.FilterMessage("panic in a call").All() {
		stack, _ := e.ContextMap()["stack"].(string)
		found = contains(stack, "Decompose")
	}
	if !found {
		t.Errorf("no log line with the stack: %v", h.logs.All())
	}
}

// TestEnumsAreMapped: every word of the policy has its enum value.
func TestEnumsAreMapped(t *testing.T) {
	for _, s := range policy.Scores() {
		if scoreMessages[s] == 0 {
			t.Errorf("score %s is not mapped", s)
		}
		if _, ok := decomp.ParseScore(string(s)); !ok {
			t.Errorf("score %s is none of decomp", s)
		}
	}
	if n := len(ckdv1.Score_name) - 1; len(policy.Scores()) != n || decomp.NumScores != n {
		t.Errorf("%d scores on the wire, %d in policies, %d computed", n, len(policy.Scores()), decomp.NumScores)
	}
	for name, got := range map[string]int32{
		"kind probabilities": int32(kindMessage(policy.Probabilities)), "kind logits": int32(kindMessage(policy.Logits)),
		"kind dirichlet":       int32(kindMessage(policy.Dirichlet)),
		"gate any-critical":    int32(enum[ckdv1.Gate](ckdv1.Gate_value, "GATE_", policy.AnyCritical)),
		"gate deciding-class":  int32(enum[ckdv1.Gate](ckdv1.Gate_value, "GATE_", policy.DecidingClass)),
		"gate always":          int32(enum[ckdv1.Gate](ckdv1.Gate_value, "GATE_", policy.Always)),
		"gate never":           int32(enum[ckdv1.Gate](ckdv1.Gate_value, "GATE_", policy.Never)),
		"scope all":            int32(enum[ckdv1.Scope](ckdv1.Scope_value, "SCOPE_", policy.AllInputs)),
		"scope predicted-safe": int32(enum[ckdv1.Scope](ckdv1.Scope_value, "SCOPE_", policy.PredictedSafe)),
		"variance sample":      int32(enum[ckdv1.Variance](ckdv1.Variance_value, "VARIANCE_", policy.Sample)),
		"variance population":  int32(enum[ckdv1.Variance](ckdv1.Variance_value, "VARIANCE_", policy.Population)),
	} {
		if got == 0 {
			t.Errorf("%s is not mapped", name)
		}
	}
	// Each word of a decision has its own number, and each number its word.
	said := map[string]bool{}
	for _, a := range []policy.Action{policy.Retain, policy.Defer, policy.Observe} {
		said[actionMessage(a).String()] = true
	}
	for _, g := range []policy.GateOutcome{policy.ByPrimary, policy.ByFallback} {
		said[gateMessage(g).String()] = true
	}
	for _, r := range []policy.Reason{
		policy.AboveThreshold, policy.UnderThreshold, policy.PredictedCritical, policy.IsDegenerate, policy.IsSaturated, policy.Observing,
	} {
		said[reasonMessage(r).String()] = true
	}
	for _, names := range []map[int32]string{ckdv1.Action_name, ckdv1.GateOutcome_name, ckdv1.DecisionReason_name} {
		for number, name := range names {
			if said[name] != (number != 0) {
				t.Errorf("%s: said %v", name, said[name])
			}
		}
	}
}

// TestUnaryCancelled: a caller that has gone is not worked for.
func TestUnaryCancelled(t *testing.T) {
	s, registry, _ := newServer(t, DefaultLimits())
	passes, err := record.ReadPasses("../internal/recordings/ctg-mcdropout.passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	raw, err := proto.Marshal(tensor(passes, 10))
	if err != nil {
		t.Fatal(err)
	}
	var in wire.Incoming
	if err := (wire.Codec{}).Unmarshal(segments(raw), &in); err != nil {
		t.Fatal(err)
	}
	defer in.Free()
	if _, err := s.decompose(ctx, &in); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call: %v", err)
	}
	h := &harness{registry: registry}
	if n := h.metric(t, "ckd_inputs_abandoned_total", "model", "ctg"); n != 10 {
		t.Errorf("%v inputs abandoned, want 10", n)
	}
}

// TestGzip: clients may compress, and the limit on messages is of what they
// unpack to.
func TestGzip(t *testing.T) {
	limits := DefaultLimits()
	limits.MessageBytes = 1 << 16
	h := newHarness(t, limits)
	request := tensor(ctg(t), 10)
	response, err := h.client.Decompose(t.Context(), request, grpc.UseCompressor("gzip"))
	if err != nil || len(response.GetResults()) != 10 {
		t.Errorf("compressed: %v", err)
	}
	bomb := &ckdv1.DecomposeRequest{Model: "ctg", ValuesLe: make([]byte, 1<<24)}
	if _, err := h.client.Decompose(t.Context(), bomb, grpc.UseCompressor("gzip")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message that unpacks to 16 MiB: %v", err)
	}
}
