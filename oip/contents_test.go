package oip

import (
	"math"
	"testing"

	pb "github.com/ckd-project/ckd/proto/inference"
)

// TestRawContents checks the bytes of every datatype, and that elements of another one are reported.
func TestRawContents(t *testing.T) {
	t.Parallel()
	for datatype, c := range map[string]struct {
		typed *pb.InferTensorContents
		raw   string
	}{
		"BOOL":   {&pb.InferTensorContents{BoolContents: []bool{true, false}}, "\x01\x00"},
		"INT8":   {&pb.InferTensorContents{IntContents: []int32{-128, 127}}, "\x80\x7f"},
		"INT16":  {&pb.InferTensorContents{IntContents: []int32{-2, 258}}, "\xfe\xff\x02\x01"},
		"INT32":  {&pb.InferTensorContents{IntContents: []int32{math.MinInt32}}, "\x00\x00\x00\x80"},
		"INT64":  {&pb.InferTensorContents{Int64Contents: []int64{-1}}, "\xff\xff\xff\xff\xff\xff\xff\xff"},
		"UINT8":  {&pb.InferTensorContents{UintContents: []uint32{255, 1}}, "\xff\x01"},
		"UINT16": {&pb.InferTensorContents{UintContents: []uint32{65535}}, "\xff\xff"},
		"UINT32": {&pb.InferTensorContents{UintContents: []uint32{math.MaxUint32}}, "\xff\xff\xff\xff"},
		"UINT64": {&pb.InferTensorContents{Uint64Contents: []uint64{math.MaxUint64}}, "\xff\xff\xff\xff\xff\xff\xff\xff"},
		"FP32":   {&pb.InferTensorContents{Fp32Contents: []float32{0.1}}, "\xcd\xcc\xcc\x3d"},
		"FP64":   {&pb.InferTensorContents{Fp64Contents: []float64{0.1}}, "\x9a\x99\x99\x99\x99\x99\xb9\x3f"},
		"BYTES":  {&pb.InferTensorContents{BytesContents: [][]byte{{}, []byte("a\xff")}}, "\x00\x00\x00\x00\x02\x00\x00\x00a\xff"},
		"FP16":   {nil, ""},
	} {
		if raw, ok := rawContents(c.typed, datatype); !ok || string(raw) != c.raw {
			t.Errorf("%s: %x, %v, want %x", datatype, raw, ok, c.raw)
		}
		two := &pb.InferTensorContents{Fp32Contents: []float32{1}, BoolContents: []bool{true}}
		if raw, ok := rawContents(two, datatype); ok {
			t.Errorf("%v as %s is %x", two, datatype, raw)
		}
	}
}
