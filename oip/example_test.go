package oip_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/ckd-project/ckd/proto/inference"
)

// A client of model servers asks a daemon on this machine for the decision on one input: five
// passes over three classes.
func Example() {
	conn, err := grpc.NewClient("localhost:8590", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	var values []byte
	for range 5 {
		for _, p := range []float32{0.7, 0.2, 0.1} {
			values = binary.LittleEndian.AppendUint32(values, math.Float32bits(p))
		}
	}
	response, err := pb.NewGRPCInferenceServiceClient(conn).ModelInfer(context.Background(), &pb.ModelInferRequest{
		ModelName:        "fetal-health",
		Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: "passes", Datatype: "FP32", Shape: []int64{1, 5, 3}}},
		Outputs:          []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "defer"}},
		RawInputContents: [][]byte{values},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("a person should see the input:", response.GetRawOutputContents()[0][0] == 1)
	_ = conn.Close() // all calls are over
}
