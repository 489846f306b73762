package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"google.golang.org/grpc"

	pb "github.com/ckd-project/ckd/proto/inference"

	"github.com/ckd-project/ckd/oip/rest"
)

// deferring implements a gRPC client whose server defers every input.
type deferring struct{ pb.GRPCInferenceServiceClient }

func (deferring) ModelInfer(_ context.Context, r *pb.ModelInferRequest, _ ...grpc.CallOption) (*pb.ModelInferResponse, error) {
	n := r.GetInputs()[0].GetShape()[0]
	return &pb.ModelInferResponse{
		ModelName:         r.GetModelName(),
		Outputs:           []*pb.ModelInferResponse_InferOutputTensor{{Name: "defer", Datatype: "BOOL", Shape: []int64{n}}},
		RawOutputContents: [][]byte{[]byte(strings.Repeat("\x01", int(n)))},
	}, nil
}

// The handler turns requests in JSON into calls of a gRPC client, and the answers back.
func Example() {
	handler := rest.New(deferring{}, rest.Options{})
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v2/models/retina/infer", strings.NewReader(
		`{"inputs":[{"name":"passes","datatype":"FP32","shape":[1,2,2],"data":[[[0.9,0.1],[0.2,0.8]]]}]}`)))
	fmt.Println(answer.Code, strings.TrimSpace(answer.Body.String()))
	// Output: 200 {"model_name":"retina","outputs":[{"name":"defer","datatype":"BOOL","shape":[1],"data":[true]}]}
}
