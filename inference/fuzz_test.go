package inference_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/inference"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// registrar catches what is registered, to be called without a connection.
type registrar struct{ service pb.GRPCInferenceServiceServer }

func (r *registrar) RegisterService(_ *grpc.ServiceDesc, implementation any) {
	r.service = implementation.(pb.GRPCInferenceServiceServer)
}

// FuzzModelInfer gives ModelInfer any request. Whatever comes, it must not panic,
// an error has a reason that is the client's doing, an answer has what its shapes
// say and no number that cannot be, and nothing of the budget is kept.
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
	inference.Register(&to, s)
	sound := ctg(f, 10).request("ctg", "", "FP32")
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &pb.ModelInferRequest{}
		if proto.Unmarshal(data, r) != nil {
			return
		}
		response, err := to.service.ModelInfer(t.Context(), r)
		if err != nil {
			if reason, _, _ := reasonIn(t, err); status.Code(err) == codes.Internal || reason == "" {
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
		for name, numbers := range a.numbers {
			for i, x := range numbers {
				if known := len(a.texts["error"]) == 0 || a.texts["error"][i*len(a.texts["error"])/len(numbers)] == ""; math.IsInf(x, 0) || x < 0 ||
					math.IsNaN(x) && known && name != "threshold" {
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
