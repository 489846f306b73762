package server

import (
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

// TestBlockFaults: what is wrong with a block fails the inputs that it names,
// with the reason; the stream goes on and the other inputs are not touched.
func TestBlockFaults(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	one := slices.Concat(safeRow, safeRow) // a pass of two inputs
	open := func() *ckdv1.DecomposeStreamRequest {
		return block(&ckdv1.Block{Group: 1, InputIds: []string{"a", "b"}, Values: one})
	}
	type fault struct {
		id     string
		row    uint32
		reason ckdv1.ErrorReason
	}
	for name, c := range map[string]struct {
		message *ckdv1.DecomposeStreamRequest
		want    []fault
		alive   []string // inputs of the group that go on
	}{
		"one value short": {
			block(&ckdv1.Block{Group: 1, Values: one[1:]}),
			[]fault{{"a", 0, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH}, {"b", 1, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH}}, nil,
		},
		"one value short for one row": {
			block(&ckdv1.Block{Group: 1, Rows: []uint32{1}, Values: one[:1]}),
			[]fault{{"b", 1, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH}}, []string{"a"},
		},
		"passes that the values do not have": {
			block(&ckdv1.Block{Group: 1, Passes: math.MaxUint32, Values: one}),
			[]fault{{"a", 0, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH}, {"b", 1, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH}}, nil,
		},
		"passes without values": {
			block(&ckdv1.Block{Group: 1, Passes: 1}),
			[]fault{{"a", 0, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH}, {"b", 1, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH}}, nil,
		},
		"bytes that are no float32": {
			block(&ckdv1.Block{Group: 1, ValuesLe: make([]byte, 15)}),
			[]fault{{"a", 0, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH}, {"b", 1, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH}}, nil,
		},
		"two encodings": {
			block(&ckdv1.Block{Group: 1, Values: one, ValuesLe: littleEndian(one)}),
			[]fault{{"a", 0, ckdv1.ErrorReason_ERROR_REASON_TWO_ENCODINGS}, {"b", 1, ckdv1.ErrorReason_ERROR_REASON_TWO_ENCODINGS}}, nil,
		},
		"a negative value": {
			block(&ckdv1.Block{Group: 1, Values: []float32{0.5, 0.5, 1.5, -0.5}}),
			[]fault{{"b", 1, ckdv1.ErrorReason_ERROR_REASON_ABOVE_ONE}}, []string{"a"},
		},
		"a row that does not sum to one": {
			block(&ckdv1.Block{Group: 1, Values: []float32{0.5, 0.25, 0.5, 0.5}}),
			[]fault{{"a", 0, ckdv1.ErrorReason_ERROR_REASON_SUM_NOT_ONE}}, []string{"b"},
		},
		"a group that is open": {
			block(&ckdv1.Block{Group: 1, InputIds: []string{"c"}, Values: safeRow}),
			[]fault{{"", 0, ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN}}, []string{"a", "b"},
		},
		"a group never opened": {
			block(&ckdv1.Block{Group: 2, Values: safeRow}),
			[]fault{{"", 0, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP}}, []string{"a", "b"},
		},
		"an id that is open": {
			block(&ckdv1.Block{Group: 2, InputIds: []string{"b"}, Values: safeRow}),
			[]fault{{"b", 0, ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ID}}, []string{"a", "b"},
		},
		"a row out of range": {
			block(&ckdv1.Block{Group: 1, Rows: []uint32{7, 0}, Values: one}),
			[]fault{{"", 0, ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE}}, []string{"a", "b"},
		},
		"more rows than there are": {
			block(&ckdv1.Block{Group: 1, Rows: []uint32{0, 1, 0}, Values: slices.Concat(one, safeRow)}),
			[]fault{{"", 0, ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE}}, []string{"a", "b"},
		},
		"a row named twice": {
			block(&ckdv1.Block{Group: 1, Rows: []uint32{1, 1}, Values: one}),
			[]fault{{"b", 1, ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ROW}}, []string{"a"},
		},
		"too few passes": {
			block(&ckdv1.Block{Group: 1, Rows: []uint32{0}, Final: true}),
			[]fault{{"a", 0, ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES}}, []string{"b"},
		},
		"neither header nor block": {
			&ckdv1.DecomposeStreamRequest{}, []fault{{"", 0, ckdv1.ErrorReason_ERROR_REASON_EMPTY_MESSAGE}}, []string{"a", "b"},
		},
		"another header": {
			&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "ctg"}}},
			[]fault{{"", 0, ckdv1.ErrorReason_ERROR_REASON_HEADER_CHANGED}}, []string{"a", "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
			st.send(open())
			st.send(c.message)
			var got []fault
			reply := st.receive()
			for _, f := range reply.GetFaults() { // of the message: of no input
				reason, meta := reasonIn(t, f)
				if meta["expected"] == "" || meta["input"] != "" {
					t.Errorf("fault %v", f)
				}
				got = append(got, fault{"", 0, reason})
			}
			for _, r := range reply.GetResults() {
				if r.GetError() == nil {
					t.Errorf("%q has no error", r.GetInputId())
					continue
				}
				reason, meta := reasonIn(t, r.GetError())
				if meta["expected"] == "" {
					t.Errorf("%v does not say what was expected: %v", reason, r.GetError())
				}
				if r.GetInputId() != "" && meta["input"] != r.GetInputId() {
					t.Errorf("%v names the input %q, not %q", reason, meta["input"], r.GetInputId())
				}
				got = append(got, fault{r.GetInputId(), r.GetRow(), reason})
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			st.send(block(&ckdv1.Block{Group: 1, Values: one}))
			var alive []string
			for _, r := range st.rest() {
				if r.GetDecomposition() == nil {
					t.Errorf("%q: %v", r.GetInputId(), r.GetError())
				}
				alive = append(alive, r.GetInputId())
			}
			if !slices.Equal(alive, c.alive) {
				t.Errorf("went on: %v, want %v", alive, c.alive)
			}
		})
	}
}

func block(b *ckdv1.Block) *ckdv1.DecomposeStreamRequest {
	return &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *(v.(*[]byte)), nil }
func (rawCodec) Unmarshal([]byte, any) error   { return nil }
func (rawCodec) Name() string                  { return "proto" }

// TestUndecodable: bytes that are no message end their stream, as the client's
// fault and not as the daemon's.
func TestUndecodable(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	stream, err := h.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		ckdv1.UncertaintyService_DecomposeStream_FullMethodName, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	junk := []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}
	if err := stream.SendMsg(&junk); err != nil {
		t.Fatal(err)
	}
	err = stream.RecvMsg(&junk)
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("the stream ended with %v", err)
	}
	h.eventually(t, 1, "grpc_server_handled_total", "grpc_code", "InvalidArgument")
	if n := h.logs.FilterLevelExact(zapcore.ErrorLevel).Len(); n != 0 {
		t.Errorf("%d lines of the log at level error", n)
	}
}

// TestNoAmplification: no message, however made, is answered with much more
// than it brought.
func TestNoAmplification(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	open := &ckdv1.Block{Group: 1, InputIds: make([]string, 4000), Values: slices.Repeat(safeRow, 4000)}
	outside := make([]uint32, 4000)
	for i := range outside {
		outside[i] = math.MaxUint32
	}
	for name, b := range map[string]*ckdv1.Block{
		"many empty ids":         {Group: 2, InputIds: make([]string, 200_000)},
		"many ids of a group":    {Group: 1, InputIds: make([]string, 200_000)},
		"many rows":              {Group: 1, Rows: make([]uint32, 500_000)},
		"rows that do not exist": {Group: 1, Rows: outside},
		"a short block":          {Group: 1, Values: safeRow},
	} {
		st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
		st.sendBlock(open)
		st.sendBlock(b)
		// Every error of an input has its details; an input has had some bytes.
		if reply := st.receive(); proto.Size(reply) > 4000*512 {
			t.Errorf("%s: %d bytes are answered with %d", name, proto.Size(b), proto.Size(reply))
		}
		st.cancel()
	}
}
