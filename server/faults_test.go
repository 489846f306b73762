package server

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/servertest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestBlockFaults checks that a bad block fails the inputs that it names, with the reason, and that
// the stream and the other inputs go on.
func TestBlockFaults(t *testing.T) {
	h := newHarness(t)
	one := slices.Concat(safeRow, safeRow) // a pass of two inputs
	type fault struct {
		id     string
		row    uint32
		reason string
	}
	both := func(reason string) []fault { return []fault{{"a", 0, reason}, {"b", 1, reason}} }
	for name, c := range map[string]struct {
		message *ckdv1.DecomposeStreamRequest
		want    []fault
		alive   []string // inputs of the group that go on
	}{
		"one value short":                    {block(&ckdv1.Block{Group: 1, Values: one[1:]}), both("WRONG_LENGTH"), nil},
		"one value short for one row":        {block(&ckdv1.Block{Group: 1, Rows: []uint32{1}, Values: one[:1]}), []fault{{"b", 1, "WRONG_LENGTH"}}, []string{"a"}},
		"passes that the values do not have": {block(&ckdv1.Block{Group: 1, Passes: math.MaxUint32, Values: one}), both("WRONG_LENGTH"), nil},
		"passes without values":              {block(&ckdv1.Block{Group: 1, Passes: 1}), both("WRONG_LENGTH"), nil},
		"bytes that are no float32":          {block(&ckdv1.Block{Group: 1, ValuesLe: make([]byte, 15)}), both("WRONG_LENGTH"), nil},
		"two encodings":                      {block(&ckdv1.Block{Group: 1, Values: one, ValuesLe: littleEndian(one)}), both("TWO_ENCODINGS"), nil},
		"a negative value":                   {block(&ckdv1.Block{Group: 1, Values: []float32{0.5, 0.5, 1.5, -0.5}}), []fault{{"b", 1, "ABOVE_ONE"}}, []string{"a"}},
		"a row that does not sum to one":     {block(&ckdv1.Block{Group: 1, Values: []float32{0.5, 0.25, 0.5, 0.5}}), []fault{{"a", 0, "SUM_NOT_ONE"}}, []string{"b"}},
		"a group that is open":               {block(&ckdv1.Block{Group: 1, InputIds: []string{"c"}, Values: safeRow}), []fault{{"", 0, "GROUP_OPEN"}}, []string{"a", "b"}},
		"a group never opened":               {block(&ckdv1.Block{Group: 2, Values: safeRow}), []fault{{"", 0, "UNKNOWN_GROUP"}}, []string{"a", "b"}},
		"an id that is open":                 {block(&ckdv1.Block{Group: 2, InputIds: []string{"b"}, Values: safeRow}), []fault{{"b", 0, "DUPLICATE_ID"}}, []string{"a", "b"}},
		"a row out of range":                 {block(&ckdv1.Block{Group: 1, Rows: []uint32{7, 0}, Values: one}), []fault{{"", 0, "ROW_OUT_OF_RANGE"}}, []string{"a", "b"}},
		"more rows than there are":           {block(&ckdv1.Block{Group: 1, Rows: []uint32{0, 1, 0}, Values: slices.Concat(one, safeRow)}), []fault{{"", 0, "ROW_OUT_OF_RANGE"}}, []string{"a", "b"}},
		"a row named twice":                  {block(&ckdv1.Block{Group: 1, Rows: []uint32{1, 1}, Values: one}), []fault{{"b", 1, "DUPLICATE_ROW"}}, []string{"a"}},
		"too few passes":                     {block(&ckdv1.Block{Group: 1, Rows: []uint32{0}, Final: true}), []fault{{"a", 0, "TOO_FEW_PASSES"}}, []string{"b"}},
		"neither header nor block":           {&ckdv1.DecomposeStreamRequest{}, []fault{{"", 0, "EMPTY_MESSAGE"}}, []string{"a", "b"}},
		"another header":                     {header(&ckdv1.StreamHeader{Model: "ctg"}), []fault{{"", 0, "HEADER_CHANGED"}}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
			st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a", "b"}, Values: one})
			st.send(c.message)
			var got []fault
			reply := st.receive()
			for _, of := range reply.GetFaults() { // faults of the message, not of an input
				f := servertest.FaultOf(status.ErrorProto(of))
				if f.Metadata["expected"] == "" || f.Metadata["input"] != "" {
					t.Errorf("fault %v", of)
				}
				got = append(got, fault{"", 0, f.Reason})
			}
			for _, r := range reply.GetResults() {
				f := servertest.FaultOf(status.ErrorProto(r.GetError()))
				if f.Metadata["expected"] == "" || f.Metadata["input"] != r.GetInputId() {
					t.Errorf("the error of %q does not name it, or what was expected: %v", r.GetInputId(), r)
				}
				got = append(got, fault{r.GetInputId(), r.GetRow(), f.Reason})
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(fault{})); diff != "" {
				t.Errorf("faults (-want, +got):\n%s", diff)
			}
			st.sendBlock(&ckdv1.Block{Group: 1, Values: one})
			left := st.rest()
			expectIDs(t, left, c.alive...)
			for _, r := range left {
				if r.GetDecomposition() == nil {
					t.Errorf("%q: %v", r.GetInputId(), r.GetError())
				}
			}
		})
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *(v.(*[]byte)), nil }
func (rawCodec) Unmarshal([]byte, any) error   { return nil }
func (rawCodec) Name() string                  { return "proto" }

// TestUndecodable checks that bytes which do not decode end their stream as the fault of the
// client.
func TestUndecodable(t *testing.T) {
	h := newHarness(t)
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
