package server

import (
	"math"
	"slices"
	"testing"

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
			[]fault{{"c", 0, ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN}}, []string{"a", "b"},
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
			[]fault{{"", 7, ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE}}, []string{"a", "b"},
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
			for _, r := range st.receive().GetResults() {
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
