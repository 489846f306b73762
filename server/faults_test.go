package server

import (
	"errors"
	"math"
	"slices"
	"testing"

	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *(v.(*[]byte)), nil }
func (rawCodec) Unmarshal([]byte, any) error   { return nil }
func (rawCodec) Name() string                  { return "proto" }

// TestUndecodable checks that bytes which are no message end their stream or call as the fault of the
// client.
func TestUndecodable(t *testing.T) {
	h := newHarness(t)
	for _, method := range []string{
		ckdv1.UncertaintyService_DecomposeStream_FullMethodName, ckdv1.UncertaintyService_Decompose_FullMethodName, ckdv1.UncertaintyService_GetModel_FullMethodName,
	} {
		stream, err := h.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(rawCodec{}))
		if err != nil {
			t.Fatal(err)
		}
		junk := []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}
		if err := errors.Join(stream.SendMsg(&junk), stream.CloseSend()); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&junk); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s ends with %v", method, err)
		}
	}
	h.eventually(t, 1, "grpc_server_handled_total", "grpc_code", "InvalidArgument", "grpc_method", "DecomposeStream")
	if n := h.logs.FilterLevelExact(zapcore.ErrorLevel).Len(); n != 0 {
		t.Errorf("%d lines of the log at level error", n)
	}
}

// TestNoAmplification checks that no message is answered with much more than it brought.
func TestNoAmplification(t *testing.T) {
	h := newHarness(t)
	open := &ckdv1.Block{Group: 1, InputIds: make([]string, 4000), Values: slices.Repeat(safeRow, 4000)}
	outside := slices.Repeat([]uint32{math.MaxUint32}, 4000)
	for name, b := range map[string]*ckdv1.Block{
		"many empty ids":         {Group: 2, InputIds: make([]string, 200_000)},
		"many ids of a group":    {Group: 1, InputIds: make([]string, 200_000)},
		"many rows":              {Group: 1, Rows: make([]uint32, 500_000)},
		"rows that do not exist": {Group: 1, Rows: outside},
		"a short block":          {Group: 1, Values: safeRow},
	} {
		t.Run(name, func(t *testing.T) {
			st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
			st.sendBlock(open)
			st.sendBlock(b)
			// Every error of an input has details, and every input took some bytes.
			if reply := st.receive(); proto.Size(reply) > 4000*512 {
				t.Errorf("%d bytes are answered with %d", proto.Size(b), proto.Size(reply))
			}
		})
	}
}
