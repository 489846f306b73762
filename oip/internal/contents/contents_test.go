package contents_test

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/oip/internal/contents"
	pb "github.com/ckd-project/ckd/proto/inference"
)

// TestForms checks that every datatype survives the way to the other form and back.
func TestForms(t *testing.T) {
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
		"FP16":   {&pb.InferTensorContents{}, ""},
	} {
		t.Run(datatype, func(t *testing.T) {
			if raw, ok := contents.Raw(c.typed, datatype); !ok || string(raw) != c.raw {
				t.Errorf("%x, %v, want %x", raw, ok, c.raw)
			}
			if typed, ok := contents.Typed([]byte(c.raw), datatype); !ok || !proto.Equal(typed, c.typed) {
				t.Errorf("%v, %v, want %v", typed, ok, c.typed)
			}
		})
	}
}

// TestNoForm checks that elements without another form are reported.
func TestNoForm(t *testing.T) {
	for datatype, c := range map[string]*pb.InferTensorContents{
		"FP16": {Fp32Contents: []float32{1}}, "INT8": {Fp32Contents: []float32{1}}, "FP32": {Fp32Contents: []float32{1}, BoolContents: []bool{true}},
	} {
		if raw, ok := contents.Raw(c, datatype); ok {
			t.Errorf("%v as %s is %x", c, datatype, raw)
		}
	}
	for datatype, raw := range map[string]string{
		"FP16": "ab", "": "a", "FP32": "abcdef", "INT16": "a", "BYTES": "\x01\x00\x00\x00a\xff\xff\xff\xffb",
	} {
		if c, ok := contents.Typed([]byte(raw), datatype); ok {
			t.Errorf("%q as %s is %v", raw, datatype, c)
		}
	}
}
