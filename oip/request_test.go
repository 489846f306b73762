package oip

import (
	"testing"

	"github.com/ckd-project/ckd/decomp"
	pb "github.com/ckd-project/ckd/proto/inference"
)

// TestBytes checks that a request announces the memory that its values take when they are read: the
// budget counts that.
func TestBytes(t *testing.T) {
	for datatype, bytes := range map[string]int{"FP32": 4, "FP64": 8, "FP16": 4, "BF16": 4} {
		r := &pb.ModelInferRequest{
			Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: passesName, Datatype: datatype, Shape: []int64{2, 3, 5}}},
			RawInputContents: [][]byte{make([]byte, 30*elements[datatype].size)},
		}
		q, fault := read(r)
		if fault != nil {
			t.Fatal(fault)
		}
		tensor := decomp.Tensor{}
		q.call.Read(&tensor)
		if took := 4*len(tensor.Float32) + 8*len(tensor.Float64); took != 30*bytes || q.call.Bytes != took {
			t.Errorf("%s takes %d bytes and says %d, want %d", datatype, took, q.call.Bytes, 30*bytes)
		}
	}
}
