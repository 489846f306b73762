package server

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

var (
	safeRow     = []float32{0.75, 0.25}
	criticalRow = []float32{0.25, 0.75}
	calmRow     = []float32{0.5, 0.25, 0.25} // of three classes
)

// TestStreamPassByPass streams real passes in groups, one block for each pass, in both encodings,
// and compares every number with the two-pass computation.
func TestStreamPassByPass(t *testing.T) {
	h := newHarness(t)
	passes := ctg(t)
	const inputs, batch = 256, 64
	st := h.open(t, &ckdv1.StreamHeader{Model: "ctg", Classes: []string{"normal", "suspect", "pathologic"}, Detail: ckdv1.Detail_DETAIL_FULL})
	if got := st.info; got.GetExpectedPasses() != 30 || got.GetFewestPasses() != 4 || len(got.GetClasses()) != 3 ||
		got.GetKind() != ckdv1.Kind_KIND_PROBABILITIES || got.GetLimits().GetOpenInputsPerStream() != 4096 {
		t.Errorf("info %v", got)
	}
	for s := range passes.S {
		for g := range inputs / batch {
			values := rowsOfPass(passes, s, g*batch, (g+1)*batch)
			b := &ckdv1.Block{Group: uint64(g), Passes: 1}
			if s == 0 {
				for i := range batch {
					b.InputIds = append(b.InputIds, fmt.Sprintf("input-%d", g*batch+i))
				}
			}
			if g%2 == 0 {
				b.Values = values
			} else {
				b.ValuesLe = littleEndian(values)
			}
			st.sendBlock(b)
		}
	}
	model := h.server.catalog.models()["ctg"].full.Model
	reference := referenceFor(t, model, decomp.Tensor{Passes: passes.S, Inputs: passes.N, Float32: passes.Float32})
	for g := range inputs / batch {
		reply := st.receive() // one message for the block that finished the group
		if len(reply.GetResults()) != batch || len(reply.GetPolicies()) != 1 || reply.GetPolicies()[0].GetVersion() != "v1" {
			t.Fatalf("reply %d: %d results, policies %v", g, len(reply.GetResults()), reply.GetPolicies())
		}
		for i, r := range reply.GetResults() {
			if r.GetGroup() != uint64(g) || int(r.GetRow()) != i || r.GetInputId() != fmt.Sprintf("input-%d", g*batch+i) {
				t.Fatalf("result %d of group %d is %v, %v, %v", i, g, r.GetGroup(), r.GetRow(), r.GetInputId())
			}
			compare(t, r, model, reference(g*batch+i), false)
		}
	}
	if left := st.rest(); len(left) != 0 {
		t.Errorf("%d results after all were answered", len(left))
	}
	h.eventually(t, inputs, "ckd_decisions_total", "model", "ctg")
	h.eventually(t, inputs*30, "ckd_passes_total", "model", "ctg")
	h.eventually(t, 0, "ckd_inputs_open", "model", "ctg")
	h.eventually(t, 0, "ckd_in_use", "resource", "streams")
	h.eventually(t, 0, "ckd_inputs_rejected_total")
}

// compare compares a result of full detail with the outcome of the engine, which may come early.
func compare(t *testing.T, r *ckdv1.Result, m *engine.Model, o *engine.Outcome, early bool) {
	t.Helper()
	want := &ckdv1.Decomposition{
		Decision: &ckdv1.Decision{
			Action: enum[ckdv1.Action](ckdv1.Action_value, "ACTION_", o.Decision.Action.String()),
			Score:  enum[ckdv1.Score](ckdv1.Score_value, "SCORE_", o.Decision.Score),
			Value:  o.Decision.Value,
			Gate:   enum[ckdv1.GateOutcome](ckdv1.GateOutcome_value, "GATE_OUTCOME_", o.Decision.Gate.String()),
			Reason: enum[ckdv1.DecisionReason](ckdv1.DecisionReason_value, "DECISION_REASON_", o.Decision.Reason.String()),
		},
		Predicted: uint32(o.Predicted), Passes: uint32(o.Passes), Degenerate: o.Degenerate, Saturated: o.Saturated, Settled: early,
		C: o.C, Skewness: o.Skewness, Mean: o.Mean, Variance: o.Variance, ThirdMoment: o.ThirdMoment, M: o.M,
		C3: o.C3(make([]float64, len(o.C))), Mi: o.MI, Entropy: o.Entropy, ExpectedEntropy: o.ExpectedEntropy,
		SumC: o.SumC, SumCTop: o.SumCTop(m.Policy().TopClasses), SumCWeighted: o.SumCWeighted(), Scores: &ckdv1.Scores{},
	}
	if m.Policy().Risk != nil {
		if want.Priority, want.PriorityPercentile = &o.Priority, &o.Percentile; !math.IsNaN(o.Risk) {
			want.Risk = &o.Risk
		}
	}
	if o.Decision.HasThreshold {
		want.Decision.Threshold = &o.Decision.Threshold
	}
	if o.Decision.Class >= 0 {
		want.Decision.DecidingClass = proto.Uint32(uint32(o.Decision.Class))
	}
	if o.Dominant >= 0 {
		want.Dominant = proto.Uint32(uint32(o.Dominant))
	}
	for k, skewness := range o.Skewness {
		if skewness > m.Policy().ReliabilityThreshold {
			want.Unreliable = append(want.Unreliable, uint32(k))
		}
	}
	for i, score := range o.Scores {
		scores := want.Scores.ProtoReflect()
		field := scores.Descriptor().Fields().ByName(protoreflect.Name(decomp.Score(i).String()))
		scores.Set(field, protoreflect.ValueOfFloat64(score))
	}
	for i, pair := range m.Plan().Pairs() {
		want.Pairs = append(want.Pairs, &ckdv1.PairTerm{
			ClassA: uint32(pair.A), ClassB: uint32(pair.B), Confusion: o.PairTerm[i], Correlation: o.Correlation[i],
		})
	}
	// Inputs that are computed together may be summed in another order.
	if diff := cmp.Diff(want, r.GetDecomposition(), protocmp.Transform(), cmpopts.EquateApprox(1e-12, 1e-15), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("%s: outcome (-want, +got), error %v:\n%s", r.GetInputId(), r.GetError(), diff)
	}
}

// expectIDs checks which inputs are answered, in order.
func expectIDs(t *testing.T, results []*ckdv1.Result, want ...string) {
	t.Helper()
	var got []string
	for _, r := range results {
		got = append(got, r.GetInputId())
	}
	if !slices.Equal(got, want) {
		t.Errorf("answers of %q, want %q", got, want)
	}
}

// TestOneBadInputFailsAlone checks that the other inputs of its block and group are answered as if
// it were not there.
func TestOneBadInputFailsAlone(t *testing.T) {
	h := newHarness(t)
	passes := ctg(t)
	const inputs, bad, badPass = 8, 3, 17
	run := func(spoil bool) []*ckdv1.Result {
		st := h.open(t, &ckdv1.StreamHeader{Model: "ctg", Detail: ckdv1.Detail_DETAIL_FULL})
		for s := range passes.S {
			b := &ckdv1.Block{Group: 1, Values: slices.Clone(rowsOfPass(passes, s, 0, inputs))}
			if s == 0 {
				for i := range inputs {
					b.InputIds = append(b.InputIds, fmt.Sprint(i))
				}
			}
			if spoil && s == badPass {
				b.Values[bad*3+1] = float32(math.NaN())
			}
			st.sendBlock(b)
		}
		return st.rest()
	}
	clean, spoilt := run(false), run(true)
	if len(clean) != inputs || len(spoilt) != inputs {
		t.Fatalf("%d and %d results, want %d", len(clean), len(spoilt), inputs)
	}
	if spoilt[0].GetInputId() != fmt.Sprint(bad) {
		t.Errorf("the refused input is not answered at once: first is %q", spoilt[0].GetInputId())
	}
	got := expectError(t, spoilt[0].GetError(), "NOT_FINITE").Metadata
	want := map[string]string{
		"input": "3", "group": "1", "row": "3", "pass": "17", "class": "1", "class_name": "suspect", "value": "NaN", "expected": "a finite number",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata of the error (-want, +got):\n%s", diff)
	}
	for _, r := range spoilt[1:] {
		i := slices.IndexFunc(clean, func(c *ckdv1.Result) bool { return c.GetInputId() == r.GetInputId() })
		if !proto.Equal(r, clean[i]) {
			t.Errorf("input %s is answered differently beside a bad one", r.GetInputId())
		}
	}
	h.eventually(t, 2*inputs-1, "ckd_decisions_total", "model", "ctg")
	h.eventually(t, (2*inputs-1)*30, "ckd_passes_total", "model", "ctg")
	h.eventually(t, 30-badPass-1, "ckd_passes_late_total", "model", "ctg")
}

// TestDirichletStream checks that one row of concentrations finishes an input.
func TestDirichletStream(t *testing.T) {
	h := newHarness(t)
	st := h.open(t, &ckdv1.StreamHeader{Model: "evidential", Kind: ckdv1.Kind_KIND_DIRICHLET, Detail: ckdv1.Detail_DETAIL_VECTORS})
	st.sendBlock(&ckdv1.Block{InputIds: []string{"a", "b"}, Values: []float32{8, 1, 1, 2, 2, 6}})
	results := st.receive().GetResults()
	if len(results) != 2 {
		t.Fatalf("%d results", len(results))
	}
	// C_k = (1-mu)/(2(alpha_0+1)), alpha_0 = 10.
	for i, want := range [][]float64{{0.2 / 22, 0.9 / 22, 0.9 / 22}, {0.8 / 22, 0.8 / 22, 0.4 / 22}} {
		for k, c := range results[i].GetDecomposition().GetC() {
			if math.Abs(c-want[k]) > 1e-15 {
				t.Errorf("input %d: C_%d = %v, want %v", i, k, c, want[k])
			}
		}
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
		"unknown model":  {header(&ckdv1.StreamHeader{Model: "nobody"}), "UNKNOWN_MODEL", `"nobody"`},
		"class order":    {header(&ckdv1.StreamHeader{Model: "ctg", Classes: []string{"suspect", "normal", "pathologic"}}), "WRONG_CLASSES", `classes[0]: got "suspect", the policy of model "ctg" has "normal"`},
		"class count":    {header(&ckdv1.StreamHeader{Model: "ctg", Classes: []string{"normal", "suspect"}}), "WRONG_CLASSES", `"2 classes"`},
		"wrong kind":     {header(&ckdv1.StreamHeader{Model: "ctg", Kind: ckdv1.Kind_KIND_LOGITS}), "WRONG_KIND", "KIND_PROBABILITIES"},
		"unknown kind":   {header(&ckdv1.StreamHeader{Model: "ctg", Kind: 77}), "WRONG_ENUM", "kind: got 77"},
		"unknown detail": {header(&ckdv1.StreamHeader{Model: "ctg", Detail: 78}), "WRONG_ENUM", "detail: got 78"},
		"too few passes": {header(&ckdv1.StreamHeader{Model: "ctg", Passes: 3}), "TOO_FEW_PASSES", "no fewer than 4"},
		"too many":       {header(&ckdv1.StreamHeader{Model: "ctg", Passes: 1 << 31}), "TOO_MANY_PASSES", "over the limit"},
		"posterior":      {header(&ckdv1.StreamHeader{Model: "ctg", Posterior: "mc dropout"}), "WRONG_POSTERIOR", `posterior: got "mc dropout", expected at most 128 letters`},
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
	h.eventually(t, 3, "ckd_inputs_rejected_total", "model", "")
	h.eventually(t, 0, "ckd_in_use", "resource", "streams")
}

// TestLimits exceeds every limit of a stream.
func TestLimits(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Limits.Streams, o.Limits.OpenGroupsPerStream, o.Limits.OpenInputsPerStream, o.Limits.PassesPerInput, o.Limits.InputIDBytes = 2, 2, 4, 30, 8
		o.Limits.MessageBytes = 4096
	})
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})

	st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a", "123456789", "b"}, Values: slices.Concat(safeRow, safeRow, safeRow)})
	expectReasons(t, st.receive(), map[string]string{"123456789": "ID_TOO_LONG"})
	st.sendBlock(&ckdv1.Block{Group: 2, InputIds: []string{"c", "d", "e"}, Values: slices.Concat(safeRow, safeRow, safeRow)})
	expectReasons(t, st.receive(), map[string]string{"e": "TOO_MANY_INPUTS"})
	st.sendBlock(&ckdv1.Block{Group: 3, InputIds: []string{"f"}, Values: safeRow})
	expectReasons(t, st.receive(), map[string]string{"f": "TOO_MANY_GROUPS"})
	st.sendBlock(&ckdv1.Block{Group: 4, InputIds: []string{"1", "2", "3", "4", "5"}, Values: safeRow})
	if faults := st.receive().GetFaults(); len(faults) != 1 {
		t.Errorf("more inputs than may be open: %v", faults)
	} else {
		expectError(t, faults[0], "TOO_MANY_INPUTS")
	}
	// Passes for groups that were refused are late, and cause no further error.
	st.sendBlock(&ckdv1.Block{Group: 3, Values: safeRow})
	st.sendBlock(&ckdv1.Block{Group: 4, Values: safeRow})
	st.sendBlock(&ckdv1.Block{Group: 1, Rows: []uint32{0}, Passes: 30, Values: slices.Repeat(safeRow, 30)})
	expectReasons(t, st.receive(), map[string]string{"a": "TOO_MANY_PASSES"})

	second := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	third, err := h.client.DecomposeStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = third.Recv()
	if got := expectFault(t, err, "TOO_MANY_STREAMS"); got.Retry != retryStream {
		t.Errorf("a stream too many is to be tried again after %v, want %v", got.Retry, retryStream)
	}
	// A message over the limit ends its own stream alone.
	second.sendBlock(&ckdv1.Block{ValuesLe: make([]byte, 5000)})
	if _, err := second.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message too large: %v", err)
	}
	st.sendBlock(&ckdv1.Block{Group: 2, Values: slices.Concat(criticalRow, criticalRow, criticalRow), Final: true})
	expectIDs(t, st.receive().GetResults(), "c", "d")
}

// TestMemoryBudget checks that the bytes of open inputs are bounded over all streams.
func TestMemoryBudget(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Limits.OpenInputBytes = 5400 // for one connection: three inputs of two classes whose passes are not known
	})
	one, two := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	one.sendBlock(&ckdv1.Block{InputIds: []string{"a", "b"}, Values: slices.Concat(safeRow, safeRow)})
	h.eventually(t, 2, "ckd_inputs_open", "model", "open-ended")
	two.sendBlock(&ckdv1.Block{InputIds: []string{"c", "d"}, Values: slices.Concat(safeRow, safeRow)})
	expectReasons(t, two.receive(), map[string]string{"d": "OUT_OF_MEMORY_BUDGET"})
	if left := one.rest(); len(left) != 2 {
		t.Errorf("%d results", len(left))
	}
	// Memory that the first stream gives back can be used again.
	h.eventually(t, 1, "ckd_inputs_open", "model", "open-ended")
	two.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"e"}, Passes: 2, Values: slices.Concat(safeRow, criticalRow), Final: true})
	expectIDs(t, two.receive().GetResults(), "e")
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
	r := l.handle(t, segments(raw))
	runtime.ReadMemStats(&after)
	if got := r.message.(*wire.Outgoing).Results(); got != len(ids)-1 || l.stream.groups.inputs != 1 {
		t.Errorf("%d refused, %d open; want all but one refused", got, l.stream.groups.inputs)
	}
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 100<<20 { // most of it for the refusals
		t.Errorf("%d MB were allocated, with %d bytes of the budget", bytes>>20, l.stream.groups.held)
	}
}

// TestAsManyAsThereIsRoomFor checks that as many results of a group are sent as fit into the
// budget.
func TestAsManyAsThereIsRoomFor(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Limits.OpenInputBytes = 5900 // for one connection: three inputs, and the result of one
	})
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	three := slices.Concat(safeRow, safeRow, criticalRow)
	st.sendBlock(&ckdv1.Block{InputIds: []string{"a", "b", "c"}, Values: three})
	st.sendBlock(&ckdv1.Block{Values: three, Final: true})
	decided := 0
	for _, r := range st.receive().GetResults() {
		if r.GetDecomposition() != nil {
			decided++
		} else {
			expectError(t, r.GetError(), "OUT_OF_MEMORY_BUDGET")
		}
	}
	if decided != 1 {
		t.Errorf("%d decided, want 1", decided)
	}
}
