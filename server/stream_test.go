package server

import (
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/record"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

var (
	safeRow     = []float32{0.75, 0.25}
	criticalRow = []float32{0.25, 0.75}
	calmRow     = []float32{0.5, 0.25, 0.25} // of three classes
)

// TestErrorNamesPlace checks what the error of an input of a stream names.
func TestErrorNamesPlace(t *testing.T) {
	h := newHarness(t)
	st := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"x", "y"}, Values: slices.Repeat(calmRow, 2)})
	st.sendBlock(&ckdv1.Block{Group: 1, Values: slices.Concat(calmRow, []float32{0, float32(math.NaN()), 0})})
	got := expectError(t, st.receive().GetResults()[0].GetError(), "NOT_FINITE").Metadata
	want := map[string]string{
		"input": "y", "group": "1", "row": "1", "pass": "1", "class": "1", "class_name": "suspect", "value": "NaN", "expected": "a finite number",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata of the error (-want, +got):\n%s", diff)
	}
}

// TestManyOpenInputs checks that a half-close of many inputs is answered in several messages.
func TestManyOpenInputs(t *testing.T) {
	h := newHarness(t)
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended", Detail: ckdv1.Detail_DETAIL_FULL})
	const groups, inputs = 40, 100
	ids := make([]string, inputs)
	for g := range groups {
		values := slices.Concat(slices.Repeat(safeRow, inputs), slices.Repeat(criticalRow, inputs))
		st.sendBlock(&ckdv1.Block{Group: uint64(g), InputIds: ids, Passes: 2, ValuesLe: littleEndian(values)})
	}
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	messages, results := 0, 0
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := proto.Size(m); n > 2*replyBytes {
			t.Errorf("a message of %d bytes", n)
		}
		messages++
		results += len(m.GetResults())
	}
	if results != groups*inputs || messages < 2 {
		t.Errorf("%d results in %d messages", results, messages)
	}
}

// TestHeaderFaults checks that a bad first message ends the stream, with its reason.
func TestHeaderFaults(t *testing.T) {
	h := newHarness(t)
	for name, c := range map[string]struct {
		first  *ckdv1.DecomposeStreamRequest
		reason string
		text   string
	}{
		"block first":    {block(&ckdv1.Block{InputIds: []string{"a"}}), "HEADER_MISSING", "no header"},
		"nothing":        {&ckdv1.DecomposeStreamRequest{}, "HEADER_MISSING", "no header"},
		"wrong terms":    {header(&ckdv1.StreamHeader{Model: "ctg", Kind: ckdv1.Kind_KIND_LOGITS}), "WRONG_KIND", "KIND_PROBABILITIES"},
		"too few passes": {header(&ckdv1.StreamHeader{Model: "ctg", Passes: 3}), "TOO_FEW_PASSES", "no fewer than 4"},
		"too many":       {header(&ckdv1.StreamHeader{Model: "ctg", Passes: 1 << 31}), "TOO_MANY_PASSES", "over the limit"},
		"two rows":       {header(&ckdv1.StreamHeader{Model: "evidential", Passes: 2}), "TOO_MANY_PASSES", "expected 1"},
	} {
		t.Run(name, func(t *testing.T) {
			stream, err := h.client.DecomposeStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(c.first); err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			if expectFault(t, err, c.reason); !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %q", err, c.text)
			}
		})
	}
	h.eventually(t, 2, "ckd_inputs_rejected_total", "model", "")
	h.eventually(t, 0, "ckd_in_use", "resource", "streams")
}

// TestTooManyStreams checks that a stream too many is refused with a delay before another attempt.
func TestTooManyStreams(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.Streams = 1 })
	h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	second, err := h.client.DecomposeStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = second.Recv()
	if got := expectFault(t, err, "TOO_MANY_STREAMS"); got.Retry != retryStream {
		t.Errorf("to be tried again after %v, want %v", got.Retry, retryStream)
	}
}

// tensor returns some inputs of a recording for the unary call.
func tensor(p *record.Passes, inputs int) *ckdv1.DecomposeRequest {
	r := &ckdv1.DecomposeRequest{Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: uint32(p.S), Inputs: uint32(inputs)}
	for s := range p.S {
		r.Values = append(r.Values, rowsOfPass(p, s, 0, inputs)...)
	}
	return r
}

// TestRefusedInputsTakeNoMemory checks that memory is taken only for inputs that were opened.
func TestRefusedInputsTakeNoMemory(t *testing.T) {
	l := newLoad(t, loadPolicy(t, 30, 1000), &ckdv1.StreamHeader{Model: "m"}, shape{30, 1, 1000}, 1)
	ids := slices.Repeat([]string{"a"}, 4096)
	raw, err := proto.Marshal(block(&ckdv1.Block{Group: 1, InputIds: ids}))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := l.handle(t, segments(raw, len(raw)/2))
	runtime.ReadMemStats(&after)
	if got := r.message.(*wire.Outgoing).Results(); got != len(ids)-1 || l.stream.groups.inputs != 1 {
		t.Errorf("%d refused, %d open; want all but one refused", got, l.stream.groups.inputs)
	}
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 100<<20 { // most of it for the refusals
		t.Errorf("%d MB were allocated, with %d bytes of the budget", bytes>>20, l.stream.groups.held)
	}
}
