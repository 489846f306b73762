package oip_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/oip"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// registrar keeps what is registered, so that a test can call it without a connection.
type registrar struct{ service pb.GRPCInferenceServiceServer }

func (r *registrar) RegisterService(_ *grpc.ServiceDesc, implementation any) {
	r.service = implementation.(pb.GRPCInferenceServiceServer)
}

// FuzzModelInfer gives ModelInfer any request. It must not panic, its errors must blame the client,
// its answers must have the elements that their shapes state and no impossible number, and it must
// return all of the budget.
func FuzzModelInfer(f *testing.F) {
	for _, form := range []string{"FP32", "typed FP32", "FP64", "typed FP64", "FP16", "BF16"} {
		for _, r := range []*pb.ModelInferRequest{
			ctg(f, 2).request("ctg", "SNK", form),
			ask(tensor{2, 1, 3, []float32{1, 2, 3, 0.5, 0.25, 0}}.request("evidential", "", form), append(allOutputs, "error")...),
			ask(tensor{1, 2, 3, []float32{1, 2, 3, 300, 200, 100}}.request("logits", "NSK", form), "variance"),
			before(ctg(f, 1).request("ctg", "", form), "label"),
		} {
			raw, err := proto.Marshal(r)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	limits := server.DefaultLimits()
	limits.OpenInputBytes = 1 << 20
	s, _ := newServer(f, limits)
	setPolicies(f, s)
	var to registrar
	oip.Register(&to, s)
	sound := ctg(f, 10).request("ctg", "", "FP32")
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &pb.ModelInferRequest{}
		if proto.Unmarshal(data, r) != nil {
			return
		}
		response, err := to.service.ModelInfer(t.Context(), r)
		if err != nil {
			if status.Code(err) == codes.Internal || servertest.FaultOf(err).Reason == "" {
				t.Errorf("%v", err)
			}
			return
		}
		var ours []*pb.ModelInferResponse_InferOutputTensor
		var raw [][]byte
		for i, o := range response.GetOutputs() { // what is handed through may be anything
			if !slices.Contains(allOutputs, o.GetName()) && o.GetName() != "error" {
				continue
			}
			if ours = append(ours, o); len(response.GetRawOutputContents()) > 0 {
				raw = append(raw, response.GetRawOutputContents()[i])
			}
		}
		response.Outputs, response.RawOutputContents = ours, raw
		a := read(t, response)
		refused := a.texts("error")
		for name := range a {
			numbers := a.numbers(name)
			unknown := []string{"threshold", "risk", "priority", "priority_percentile"} // where the policy does not say
			for i, x := range numbers {
				if known := len(refused) == 0 || refused[i*len(refused)/len(numbers)] == ""; math.IsInf(x, 0) || x < 0 ||
					math.IsNaN(x) && known && !slices.Contains(unknown, name) {
					t.Errorf("%s[%d] is %v", name, i, x)
				}
			}
		}
		// The budget has room for few: what is kept would be missed soon.
		if _, err := to.service.ModelInfer(context.Background(), sound); err != nil {
			t.Errorf("after it, a sound request: %v", err)
		}
	})
}
