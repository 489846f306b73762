package oip_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/servertest"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// TestReadiness checks that the server is always live, that it is ready while it wants requests,
// and that a model is ready if it exists in that version.
func TestReadiness(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	ready := func() string {
		t.Helper()
		live, err := h.client.ServerLive(t.Context(), &pb.ServerLiveRequest{})
		if err != nil || !live.GetLive() {
			t.Errorf("not live: %v", err)
		}
		all, err := h.client.ServerReady(t.Context(), &pb.ServerReadyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(all.GetReady())
		for _, r := range []*pb.ModelReadyRequest{{Name: "ctg"}, {Name: "ctg", Version: "v1"}, {Name: "ctg", Version: "1"}, {Name: "nobody"}} {
			one, err := h.client.ModelReady(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			said += fmt.Sprint(" ", one.GetReady())
		}
		return said
	}
	if got, want := ready(), "true true true false false"; got != want {
		t.Errorf("ready: %s, want %s", got, want)
	}
	h.server.Drain()
	if got, want := ready(), "false false false false false"; got != want {
		t.Errorf("draining: %s, want %s", got, want)
	}
}

// TestMetadata checks the tensors in both forms of metadata.
func TestMetadata(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	about, err := h.client.ServerMetadata(t.Context(), &pb.ServerMetadataRequest{})
	if err != nil || about.GetName() != "ckd" || about.GetVersion() == "" || !slices.Equal(about.GetExtensions(), []string{"model_configuration"}) {
		t.Errorf("%v, %v", about, err)
	}
	for model, c := range map[string]struct {
		versions []string
		shape    []int64
	}{"ctg": {[]string{"v1"}, []int64{-1, -1, 3}}, "observed": {nil, []int64{-1, -1, 2}}, "evidential": {nil, []int64{-1, 1, 3}}} {
		m, err := h.client.ModelMetadata(t.Context(), &pb.ModelMetadataRequest{Name: model})
		if err != nil {
			t.Fatal(err)
		}
		in := m.GetInputs()
		if m.GetName() != model || m.GetPlatform() != "ckd" || !slices.Equal(m.GetVersions(), c.versions) ||
			len(in) != 1 || in[0].GetName() != "passes" || in[0].GetDatatype() != "FP32" || !slices.Equal(in[0].GetShape(), c.shape) {
			t.Errorf("metadata %v", m)
		}
		response, err := h.client.ModelConfig(t.Context(), &pb.ModelConfigRequest{Name: model})
		if err != nil {
			t.Fatal(err)
		}
		config := response.GetConfig()
		if config.GetName() != model || config.GetBackend() != "ckd" || config.GetMaxBatchSize() != 0 || len(config.GetInput()) != 1 ||
			config.GetInput()[0].GetDataType() != pb.DataType_TYPE_FP32 || !slices.Equal(config.GetInput()[0].GetDims(), c.shape) ||
			config.GetModelTransactionPolicy() == nil || config.GetModelTransactionPolicy().GetDecoupled() {
			t.Errorf("config %v", config)
		}
		var names []string
		for i, o := range m.GetOutputs() {
			names = append(names, o.GetName())
			same := config.GetOutput()[i]
			if same.GetName() != o.GetName() || !slices.Equal(same.GetDims(), o.GetShape()) ||
				"TYPE_"+strings.ReplaceAll(o.GetDatatype(), "BYTES", "STRING") != same.GetDataType().String() {
				t.Errorf("metadata %v, config %v", o, same)
			}
		}
		if want := append(slices.Clone(allOutputs), "review", "receipt", "error"); !slices.Equal(names, want) {
			t.Errorf("outputs %v, want %v", names, want)
		}
	}
	for _, r := range []*pb.ModelMetadataRequest{{Name: "nobody"}, {Name: "ctg", Version: "v2"}} {
		_, err := h.client.ModelMetadata(t.Context(), r)
		if status.Code(err) != codes.NotFound || servertest.FaultOf(err).Reason != "UNKNOWN_MODEL" {
			t.Errorf("%v: %v", r, err)
		}
		_, err = h.client.ModelConfig(t.Context(), &pb.ModelConfigRequest{Name: r.GetName(), Version: r.GetVersion()})
		if status.Code(err) != codes.NotFound {
			t.Errorf("%v: %v", r, err)
		}
	}
	h.eventually(t, 0, "ckd_inputs_rejected_total") // no input was
}

func (h *harness) stream(t *testing.T) pb.GRPCInferenceService_ModelStreamInferClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	st, err := h.client.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestStream checks that a stream answers its requests in order, answers a wrong one with its
// error, and goes on.
func TestStream(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	st := h.stream(t)
	const n = 20
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			request := ask(ctg(t, 3).request("ctg", "", "FP32"), allOutputs...)
			request.Id = fmt.Sprint(i)
			if i%5 == 3 {
				request.ModelName = "nobody"
			}
			if err := st.Send(request); err != nil {
				sent <- err
				return
			}
		}
		sent <- st.CloseSend()
	}()
	native := ctg(t, 3).native(t, h, "ctg")
	for i := range n {
		reply, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := reply.GetInferResponse().GetId(); got != fmt.Sprint(i) {
			t.Errorf("answer %d has id %q", i, got)
		}
		if i%5 == 3 {
			if !strings.Contains(reply.GetErrorMessage(), `no policy names the model "nobody"`) || len(reply.GetInferResponse().GetOutputs()) > 0 {
				t.Errorf("answer %d: %v", i, reply)
			}
			continue
		}
		if reply.GetErrorMessage() != "" || !reply.GetInferResponse().GetParameters()["triton_final_response"].GetBoolParam() {
			t.Errorf("answer %d: %v", i, reply)
		}
		compare(t, read(t, reply.GetInferResponse()), native, classesOf["ctg"])
	}
	if _, err := st.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	h.eventually(t, 16*3+3, "ckd_decisions_total", "model", "ctg")
	h.eventually(t, 4*3, "ckd_inputs_rejected_total", "reason", "unknown_model")
	h.eventually(t, n, "grpc_server_msg_received_total", "grpc_method", "ModelStreamInfer")
}

// roundTrip sends a request and reads its answer, so that the stream is open on the server.
func roundTrip(t *testing.T, st pb.GRPCInferenceService_ModelStreamInferClient) {
	t.Helper()
	if err := st.Send(ctg(t, 1).request("ctg", "", "FP32")); err != nil {
		t.Fatal(err)
	}
	if reply, err := st.Recv(); err != nil || reply.GetErrorMessage() != "" {
		t.Fatalf("%v, %v", reply, err)
	}
}

// ends waits for the end of a stream with a reason.
func ends(t *testing.T, st pb.GRPCInferenceService_ModelStreamInferClient, code codes.Code, want string) {
	t.Helper()
	for {
		_, err := st.Recv()
		if err == nil {
			continue
		}
		if status.Code(err) != code {
			t.Fatalf("%v, want %v", err, code)
		}
		if servertest.FaultOf(err).Reason != want {
			t.Errorf("%v, want %s", err, want)
		}
		return
	}
}

// TestStreamEnds checks that a stream without a request under way ends when the daemon stops, and at
// its greatest age.
func TestStreamEnds(t *testing.T) {
	for name, c := range map[string]struct {
		used bool          // whether the stream has had a request
		age  time.Duration // the greatest, or 0 for the default
		end  func(*server.Server)
	}{
		"drained": {used: true, end: (*server.Server).Drain},
		"killed":  {end: (*server.Server).Kill},
		"old":     {age: 50 * time.Millisecond, end: func(*server.Server) {}},
	} {
		t.Run(name, func(t *testing.T) {
			limits := server.DefaultLimits()
			limits.StreamAge = cmp.Or(c.age, limits.StreamAge)
			h := newHarness(t, limits)
			st := h.stream(t)
			if c.used {
				roundTrip(t, st)
			}
			c.end(h.server)
			ends(t, st, codes.Unavailable, "DRAINING")
		})
	}
}

// TestStreamLimit checks that the streams of both protocols share one limit.
func TestStreamLimit(t *testing.T) {
	limits := server.DefaultLimits()
	limits.Streams = 1
	h := newHarness(t, limits)
	st := h.stream(t)
	roundTrip(t, st)
	ends(t, h.stream(t), codes.ResourceExhausted, "TOO_MANY_STREAMS")
	native, err := h.native.DecomposeStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := native.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a native stream: %v", err)
	}
	roundTrip(t, st)
}

// TestStreamStalls checks that a client which does not read its answers loses the stream.
func TestStreamStalls(t *testing.T) {
	limits := server.DefaultLimits()
	limits.SendStall, limits.MessageBytes = 100*time.Millisecond, 1<<20
	h := newHarness(t, limits)
	st := h.stream(t)
	request := ask(ctg(t, 2000).request("ctg", "", "FP32"), allOutputs...)
	roundTrip(t, st)
	go func() {
		for st.Send(request) == nil { // Recv returns the reason
		}
	}()
	for deadline := time.Now().Add(time.Minute); !h.server.Idle() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	ends(t, st, codes.ResourceExhausted, "SEND_STALLED")
}
