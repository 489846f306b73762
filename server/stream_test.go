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
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/wire"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

var (
	safeRow     = []float32{0.75, 0.25}
	criticalRow = []float32{0.25, 0.75}
)

// TestStreamPassByPass streams real passes in groups, one block a pass, in both
// encodings, and compares every number with the two-pass computation.
func TestStreamPassByPass(t *testing.T) {
	h := newHarness(t, DefaultLimits())
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
	model := (*h.server.catalog.Load())["ctg"].full.Model
	reference, outcome := model.NewBatch(), model.NewOutcome()
	if err := reference.Reset(decomp.Tensor{Passes: passes.S, Inputs: passes.N, Float32: passes.Float32}); err != nil {
		t.Fatal(err)
	}
	for g := range inputs / batch {
		reply := st.receive() // one message for the block that finished the group
		if len(reply.GetResults()) != batch || len(reply.GetPolicies()) != 1 || reply.GetPolicies()[0].GetVersion() != "v1" {
			t.Fatalf("reply %d: %d results, policies %v", g, len(reply.GetResults()), reply.GetPolicies())
		}
		for i, r := range reply.GetResults() {
			if r.GetGroup() != uint64(g) || int(r.GetRow()) != i || r.GetInputId() != fmt.Sprintf("input-%d", g*batch+i) {
				t.Fatalf("result %d of group %d is %v, %v, %v", i, g, r.GetGroup(), r.GetRow(), r.GetInputId())
			}
			if err := reference.Outcome(g*batch+i, outcome); err != nil {
				t.Fatal(err)
			}
			compare(t, r, model, outcome)
		}
	}
	if left := st.rest(); len(left) != 0 {
		t.Errorf("%d results after all were answered", len(left))
	}
	h.eventually(t, inputs, "ckd_decisions_total", "model", "ctg")
	h.eventually(t, inputs*30, "ckd_passes_total", "model", "ctg")
	h.eventually(t, 0, "ckd_inputs_open", "model", "ctg")
	h.eventually(t, 0, "ckd_streams_open", "model", "ctg")
	h.eventually(t, 0, "ckd_inputs_rejected_total")
	if n := h.server.openBytes.Load(); n != 0 {
		t.Errorf("%d bytes still counted for open inputs", n)
	}
}

// compare holds a result of full detail against the engine's own outcome.
func compare(t *testing.T, r *ckdv1.Result, m *engine.Model, want *engine.Outcome) {
	t.Helper()
	d := r.GetDecomposition()
	if d == nil {
		t.Fatalf("%s: %v", r.GetInputId(), r.GetError())
	}
	near := func(name string, got, want float64) {
		if diff := math.Abs(got - want); !(diff <= 1e-12*math.Abs(want) || diff <= 1e-15) {
			t.Errorf("%s: %s: got %v, want %v", r.GetInputId(), name, got, want)
		}
	}
	vector := func(name string, got, want []float64) {
		if len(got) != len(want) {
			t.Fatalf("%s: %d values, want %d", name, len(got), len(want))
		}
		for k := range want {
			near(fmt.Sprintf("%s[%d]", name, k), got[k], want[k])
		}
	}
	vector("c", d.GetC(), want.C)
	vector("skewness", d.GetSkewness(), want.Skewness)
	vector("mean", d.GetMean(), want.Mean)
	vector("variance", d.GetVariance(), want.Variance)
	vector("third_moment", d.GetThirdMoment(), want.ThirdMoment)
	vector("m", d.GetM(), want.M)
	vector("c3", d.GetC3(), want.C3(make([]float64, 3)))
	near("mi", d.GetMi(), want.MI)
	near("entropy", d.GetEntropy(), want.Entropy)
	near("expected entropy", d.GetExpectedEntropy(), want.ExpectedEntropy)
	near("sum_c", d.GetSumC(), want.SumC)
	near("sum_c_top", d.GetSumCTop(), want.SumCTop(m.Policy().TopClasses))
	near("sum_c_weighted", d.GetSumCWeighted(), want.SumCWeighted())
	s := d.GetScores()
	for i, got := range []*float64{s.Entropy, s.Mi, s.Maxprob, s.EuVar, s.VarCrit, s.EuVarCrit, s.OvaMi, s.CCritSum, s.CCritMax, s.Cbec} {
		near(decomp.Score(i).String(), *got, want.Scores[i])
	}
	for i, pair := range m.Plan().Pairs() {
		got := d.GetPairs()[i]
		if int(got.GetClassA()) != pair.A || int(got.GetClassB()) != pair.B {
			t.Errorf("pair %d is %v, want %v", i, got, pair)
		}
		near("pair", got.GetConfusion(), want.PairTerm[i])
		near("correlation", got.GetCorrelation(), want.Correlation[i])
	}
	if int(d.GetPredicted()) != want.Predicted || int(d.GetPasses()) != want.Passes || d.GetDegenerate() != want.Degenerate {
		t.Errorf("%s: predicted %d, passes %d, degenerate %v", r.GetInputId(), d.GetPredicted(), d.GetPasses(), d.GetDegenerate())
	}
	unreliable := []uint32{}
	for k, skewness := range want.Skewness {
		if skewness > 0.3 {
			unreliable = append(unreliable, uint32(k))
		}
	}
	if !slices.Equal(d.GetUnreliable(), unreliable) {
		t.Errorf("%s: unreliable %v, want %v", r.GetInputId(), d.GetUnreliable(), unreliable)
	}
	got := d.GetDecision()
	near("value", got.GetValue(), want.Decision.Value)
	if actionWord(got) != want.Decision.Action.String() || wordOf(got.GetReason(), "DECISION_REASON_") != want.Decision.Reason.String() ||
		wordOf(got.GetScore(), "SCORE_") != string(want.Decision.Score) || wordOf(got.GetGate(), "GATE_OUTCOME_") != want.Decision.Gate.String() ||
		got.GetThreshold() != want.Decision.Threshold || (got.Threshold != nil) != want.Decision.HasThreshold ||
		(got.DecidingClass != nil) != (want.Decision.Class >= 0) || got.DecidingClass != nil && int(got.GetDecidingClass()) != want.Decision.Class {
		t.Errorf("%s: decision %v, want %+v", r.GetInputId(), got, want.Decision)
	}
}

func actionWord(d *ckdv1.Decision) string { return wordOf(d.GetAction(), "ACTION_") }

// wordOf is an enum value in the words of policies.
func wordOf(v fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(v.String(), prefix))
}

// TestDetail: each detail carries what it says and no more.
func TestDetail(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	for detail, c := range map[ckdv1.Detail]struct{ vectors, full bool }{
		ckdv1.Detail_DETAIL_UNSPECIFIED: {false, false},
		ckdv1.Detail_DETAIL_DECISION:    {false, false},
		ckdv1.Detail_DETAIL_VECTORS:     {true, false},
		ckdv1.Detail_DETAIL_FULL:        {true, true},
	} {
		st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended", Detail: detail})
		st.sendBlock(&ckdv1.Block{InputIds: []string{"x"}, Passes: 2, Values: slices.Concat(safeRow, criticalRow), Final: true})
		d := st.receive().GetResults()[0].GetDecomposition()
		if d.GetDecision().GetAction() != ckdv1.Action_ACTION_OBSERVE || d.GetDecision().GetReason() != ckdv1.DecisionReason_DECISION_REASON_OBSERVING {
			t.Errorf("%v: decision %v", detail, d.GetDecision())
		}
		if d.GetDecision().Threshold != nil || d.GetDecision().DecidingClass != nil {
			t.Errorf("%v: observing with a threshold or class: %v", detail, d.GetDecision())
		}
		if got := len(d.GetC()) > 0 && len(d.GetMean()) > 0 && len(d.GetSkewness()) > 0; got != c.vectors {
			t.Errorf("%v: vectors %v", detail, got)
		}
		if got := len(d.GetVariance()) > 0 && len(d.GetM()) > 0 && d.GetScores() != nil && len(d.GetPairs()) > 0; got != c.full {
			t.Errorf("%v: full %v", detail, got)
		}
	}
}

// TestGroups walks through the rules of groups and rows on one stream.
func TestGroups(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	header := &ckdv1.StreamHeader{Model: "open-ended", Passes: 3}
	st := h.open(t, header)

	// Rows that go on alone; the others finish later.
	st.sendBlock(&ckdv1.Block{Group: 5, InputIds: []string{"a", "b", "c"}, Values: slices.Concat(safeRow, safeRow, criticalRow)})
	st.sendBlock(&ckdv1.Block{Group: 5, Rows: []uint32{2, 0}, Passes: 2, Values: slices.Concat(safeRow, criticalRow, criticalRow, safeRow)})
	reply := st.receive()
	if got := rowsIn(reply.GetResults()); !slices.Equal(got, []string{"c", "a"}) {
		t.Errorf("finished %v, want c and a", got)
	}
	for _, r := range reply.GetResults() {
		if r.GetDecomposition().GetPasses() != 3 {
			t.Errorf("%s: %d passes", r.GetInputId(), r.GetDecomposition().GetPasses())
		}
	}
	// A whole-group block: the passes of a and c are late, b takes its own; the
	// block has two passes and b needs both.
	st.sendBlock(&ckdv1.Block{Group: 5, Passes: 2, Values: slices.Concat(safeRow, safeRow, safeRow, criticalRow, criticalRow, criticalRow)})
	if got := rowsIn(st.receive().GetResults()); !slices.Equal(got, []string{"b"}) {
		t.Errorf("finished %v, want b", got)
	}
	h.eventually(t, 4, "ckd_passes_late_total", "model", "open-ended")
	// The group is closed now: more passes are late, without an answer. So is a
	// number below the highest that was never opened.
	st.sendBlock(&ckdv1.Block{Group: 5, Values: slices.Concat(safeRow, safeRow, safeRow)})
	st.sendBlock(&ckdv1.Block{Group: 4, Values: safeRow})
	h.eventually(t, 8, "ckd_passes_late_total", "model", "open-ended")
	// The header again, the same group again and the same ids again, as load
	// generators do; more passes than are needed are late.
	st.sendHeader(header)
	st.sendBlock(&ckdv1.Block{Group: 5, InputIds: []string{"a"}, Passes: 4, Values: slices.Concat(safeRow, criticalRow, safeRow, safeRow)})
	if got := rowsIn(st.receive().GetResults()); !slices.Equal(got, []string{"a"}) {
		t.Errorf("finished %v, want a", got)
	}
	h.eventually(t, 9, "ckd_passes_late_total", "model", "open-ended")
	// Final, with and without passes; empty ids need not be unique.
	st.sendBlock(&ckdv1.Block{Group: 6, InputIds: []string{"", ""}, Passes: 2, Values: slices.Concat(safeRow, safeRow, criticalRow, criticalRow)})
	st.sendBlock(&ckdv1.Block{Group: 6, Rows: []uint32{1}, Final: true})
	if results := st.receive().GetResults(); len(results) != 1 || results[0].GetRow() != 1 || results[0].GetDecomposition().GetPasses() != 2 {
		t.Errorf("final: %v", results)
	}
	// Half-close finishes what is open, in order of groups and rows, and says of
	// what had too few passes that it had.
	st.sendBlock(&ckdv1.Block{Group: 9, InputIds: []string{"late"}, Values: safeRow})
	st.sendBlock(&ckdv1.Block{Group: 8, InputIds: []string{"y", "z"}, Passes: 2, Values: slices.Concat(safeRow, safeRow, criticalRow, criticalRow)})
	left := st.rest()
	if got := rowsIn(left); !slices.Equal(got, []string{"", "y", "z", "late"}) {
		t.Fatalf("half-close answered %q", got)
	}
	if reason, meta := reasonIn(t, left[3].GetError()); reason != ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES || meta["input"] != "late" || meta["value"] != "1" {
		t.Errorf("too few passes: %v %v", reason, meta)
	}
	h.eventually(t, 0, "ckd_inputs_open")
	h.eventually(t, 0, "ckd_inputs_abandoned_total")
	h.eventually(t, 1, "ckd_inputs_rejected_total", "model", "open-ended", "reason", "too_few_passes")
}

func rowsIn(results []*ckdv1.Result) []string {
	var ids []string
	for _, r := range results {
		ids = append(ids, r.GetInputId())
	}
	return ids
}

// TestCancelAbandons: what a cancelled stream leaves is given up and counted.
func TestCancelAbandons(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	st := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	passes := ctg(t)
	st.sendBlock(&ckdv1.Block{InputIds: []string{"a", "b", "c"}, Values: rowsOfPass(passes, 0, 0, 3)})
	h.eventually(t, 3, "ckd_inputs_open", "model", "ctg")
	h.eventually(t, 1, "ckd_streams_open", "model", "ctg")
	st.cancel()
	h.eventually(t, 3, "ckd_inputs_abandoned_total", "model", "ctg")
	h.eventually(t, 0, "ckd_inputs_open", "model", "ctg")
	h.eventually(t, 0, "ckd_streams_open", "model", "ctg")
	h.eventually(t, 0, "ckd_decisions_total", "model", "ctg")
	h.eventually(t, 0, "ckd_passes_total", "model", "ctg")
}

// TestOneBadInputFailsAlone: the others of its block and group are answered as
// if it were not there.
func TestOneBadInputFailsAlone(t *testing.T) {
	h := newHarness(t, DefaultLimits())
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
	reason, meta := reasonIn(t, spoilt[0].GetError())
	want := map[string]string{"input": "3", "group": "1", "row": "3", "pass": "17", "class": "1", "class_name": "suspect", "value": "NaN", "expected": "a finite number"}
	if reason != ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE || !mapsEqual(meta, want) {
		t.Errorf("%v %v, want %v", reason, meta, want)
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

func mapsEqual(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// TestDirichletStream: one row of concentrations finishes an input.
func TestDirichletStream(t *testing.T) {
	h := newHarness(t, DefaultLimits())
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

// TestManyOpenInputs answers a half-close of many inputs in several messages.
func TestManyOpenInputs(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended", Detail: ckdv1.Detail_DETAIL_FULL})
	const groups, inputs = 40, 100
	ids := make([]string, inputs)
	for g := range groups {
		var values []float32
		for range inputs {
			values = append(values, safeRow...)
		}
		for range inputs {
			values = append(values, criticalRow...)
		}
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

// TestHeaderFaults: only a bad first message ends the stream, with its reason.
func TestHeaderFaults(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	block := &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{InputIds: []string{"a"}}}}
	header := func(h *ckdv1.StreamHeader) *ckdv1.DecomposeStreamRequest {
		return &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: h}}
	}
	for name, c := range map[string]struct {
		first  *ckdv1.DecomposeStreamRequest
		code   codes.Code
		reason ckdv1.ErrorReason
		text   string
	}{
		"block first":    {block, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_HEADER_MISSING, "no header"},
		"nothing":        {&ckdv1.DecomposeStreamRequest{}, codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_HEADER_MISSING, "no header"},
		"unknown model":  {header(&ckdv1.StreamHeader{Model: "nobody"}), codes.NotFound, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, `"nobody"`},
		"class order":    {header(&ckdv1.StreamHeader{Model: "ctg", Classes: []string{"suspect", "normal", "pathologic"}}), codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_CLASSES, `classes[0]: got "suspect", the policy of model "ctg" has "normal"`},
		"class count":    {header(&ckdv1.StreamHeader{Model: "ctg", Classes: []string{"normal", "suspect"}}), codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_CLASSES, `"2 classes"`},
		"wrong kind":     {header(&ckdv1.StreamHeader{Model: "ctg", Kind: ckdv1.Kind_KIND_LOGITS}), codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_KIND, "KIND_PROBABILITIES"},
		"unknown kind":   {header(&ckdv1.StreamHeader{Model: "ctg", Kind: 77}), codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_ENUM, "kind: 77"},
		"unknown detail": {header(&ckdv1.StreamHeader{Model: "ctg", Detail: 78}), codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_ENUM, "detail: 78"},
		"too few passes": {header(&ckdv1.StreamHeader{Model: "ctg", Passes: 3}), codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES, "no fewer than 4"},
		"too many":       {header(&ckdv1.StreamHeader{Model: "ctg", Passes: 1 << 31}), codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "over the limit"},
		"posterior":      {header(&ckdv1.StreamHeader{Model: "ctg", Posterior: "mc dropout"}), codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_POSTERIOR, `posterior: got "mc dropout", expected at most 128 letters`},
		"two rows":       {header(&ckdv1.StreamHeader{Model: "evidential", Passes: 2}), codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "expected 1"},
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
			st := status.Convert(err)
			if st.Code() != c.code {
				t.Errorf("code %v, want %v: %v", st.Code(), c.code, err)
			}
			if reason, _ := reasonIn(t, st.Proto()); reason != c.reason || !contains(st.Message(), c.text) {
				t.Errorf("%v %q, want %v with %q", reason, st.Message(), c.reason, c.text)
			}
		})
	}
	h.eventually(t, 3, "ckd_inputs_rejected_total", "model", "")
	h.eventually(t, 0, "ckd_streams_open")
}

// TestLimits exceeds every limit of a stream.
func TestLimits(t *testing.T) {
	limits := DefaultLimits()
	limits.Streams, limits.OpenGroupsPerStream, limits.OpenInputsPerStream, limits.PassesPerInput, limits.InputIDBytes = 2, 2, 4, 30, 8
	limits.MessageBytes = 4096
	h := newHarness(t, limits)
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})

	st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a", "123456789", "b"}, Values: slices.Concat(safeRow, safeRow, safeRow)})
	expectReasons(t, st.receive(), map[string]ckdv1.ErrorReason{"123456789": ckdv1.ErrorReason_ERROR_REASON_ID_TOO_LONG})
	st.sendBlock(&ckdv1.Block{Group: 2, InputIds: []string{"c", "d", "e"}, Values: slices.Concat(safeRow, safeRow, safeRow)})
	expectReasons(t, st.receive(), map[string]ckdv1.ErrorReason{"e": ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS})
	st.sendBlock(&ckdv1.Block{Group: 3, InputIds: []string{"f"}, Values: safeRow})
	expectReasons(t, st.receive(), map[string]ckdv1.ErrorReason{"f": ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_GROUPS})
	st.sendBlock(&ckdv1.Block{Group: 4, InputIds: []string{"1", "2", "3", "4", "5"}, Values: safeRow})
	if faults := st.receive().GetFaults(); len(faults) != 1 {
		t.Errorf("more inputs than may be open: %v", faults)
	} else if reason, _ := reasonIn(t, faults[0]); reason != ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS {
		t.Errorf("more inputs than may be open: %v", reason)
	}
	// What follows for groups that were refused is late, and no further error.
	st.sendBlock(&ckdv1.Block{Group: 3, Values: safeRow})
	st.sendBlock(&ckdv1.Block{Group: 4, Values: safeRow})
	st.sendBlock(&ckdv1.Block{Group: 1, Rows: []uint32{0}, Passes: 30, Values: slices.Repeat(safeRow, 30)})
	expectReasons(t, st.receive(), map[string]ckdv1.ErrorReason{"a": ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES})

	second := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	third, err := h.client.DecomposeStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = third.Recv()
	if reason, _ := reasonIn(t, status.Convert(err).Proto()); status.Code(err) != codes.ResourceExhausted || reason != ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS {
		t.Errorf("a stream too many: %v", err)
	} else if got := retryDelay(err); got != retryStream {
		t.Errorf("a stream too many is to be tried again after %v, want %v", got, retryStream)
	}
	// A message over the limit ends its stream, and no other.
	big := &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{ValuesLe: make([]byte, 5000)}}}
	if err := second.Send(big); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message too large: %v", err)
	}
	st.sendBlock(&ckdv1.Block{Group: 2, Values: slices.Concat(criticalRow, criticalRow, criticalRow), Final: true})
	if got := rowsIn(st.receive().GetResults()); !slices.Equal(got, []string{"c", "d"}) {
		t.Errorf("after all that: %v", got)
	}
}

// TestMemoryBudget: the bytes of open inputs are bounded over all streams.
func TestMemoryBudget(t *testing.T) {
	limits := DefaultLimits()
	limits.OpenInputBytes = 4000 // three inputs of two classes whose passes are not known
	h := newHarness(t, limits)
	one, two := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	one.sendBlock(&ckdv1.Block{InputIds: []string{"a", "b"}, Values: slices.Concat(safeRow, safeRow)})
	h.eventually(t, 2, "ckd_inputs_open", "model", "open-ended")
	two.sendBlock(&ckdv1.Block{InputIds: []string{"c", "d"}, Values: slices.Concat(safeRow, safeRow)})
	expectReasons(t, two.receive(), map[string]ckdv1.ErrorReason{"d": ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET})
	if left := one.rest(); len(left) != 2 {
		t.Errorf("%d results", len(left))
	}
	// What the first stream gave back can be used again.
	h.eventually(t, 1, "ckd_inputs_open", "model", "open-ended")
	two.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"e"}, Passes: 2, Values: slices.Concat(safeRow, criticalRow), Final: true})
	if got := rowsIn(two.receive().GetResults()); !slices.Equal(got, []string{"e"}) {
		t.Errorf("after the budget was free again: %v", got)
	}
}

// expectReasons holds a reply against the errors it must have, and no others.
func expectReasons(t *testing.T, reply *ckdv1.DecomposeStreamResponse, want map[string]ckdv1.ErrorReason) {
	t.Helper()
	if len(reply.GetResults()) != len(want) {
		t.Fatalf("%d results, want %d: %v", len(reply.GetResults()), len(want), reply)
	}
	for _, r := range reply.GetResults() {
		if r.GetError() == nil {
			t.Errorf("%q: no error", r.GetInputId())
			continue
		}
		if reason, _ := reasonIn(t, r.GetError()); reason != want[r.GetInputId()] {
			t.Errorf("%q: %v, want %v", r.GetInputId(), reason, want[r.GetInputId()])
		}
		if codes.Code(r.GetError().GetCode()) == codes.OK {
			t.Errorf("%q: an error with code OK", r.GetInputId())
		}
	}
}

// TestStreamsDoNotShare: ids and groups belong to their stream.
func TestStreamsDoNotShare(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	one, two := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	for _, st := range []*stream{one, two} {
		st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"same"}, Values: safeRow})
	}
	for _, st := range []*stream{one, two} {
		st.sendBlock(&ckdv1.Block{Group: 1, Values: criticalRow, Final: true})
		if results := st.receive().GetResults(); len(results) != 1 || results[0].GetDecomposition() == nil {
			t.Errorf("got %v", results)
		}
	}
}

// TestQuietStreamStaysOpen: nothing is said on a stream for a while, and it
// goes on.
func TestQuietStreamStaysOpen(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	time.Sleep(200 * time.Millisecond)
	st.sendBlock(&ckdv1.Block{InputIds: []string{"a"}, Passes: 2, Values: slices.Concat(safeRow, criticalRow), Final: true})
	if results := st.receive().GetResults(); len(results) != 1 {
		t.Errorf("got %v", results)
	}
}

// tensor gathers some inputs of a recording for the unary call.
func tensor(p *record.Passes, inputs int) *ckdv1.DecomposeRequest {
	r := &ckdv1.DecomposeRequest{Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: uint32(p.S), Inputs: uint32(inputs)}
	for s := range p.S {
		r.Values = append(r.Values, rowsOfPass(p, s, 0, inputs)...)
	}
	return r
}

// TestRowsOfTheirOwnPace: rows that were fed by name before go on from where they
// are when blocks are of the whole group again.
func TestRowsOfTheirOwnPace(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended", Detail: ckdv1.Detail_DETAIL_FULL})
	rows := [][]float32{{0.9, 0.1}, {0.6, 0.4}, {0.3, 0.7}, {0.2, 0.8}, {0.5, 0.5}}
	st.sendBlock(&ckdv1.Block{InputIds: []string{"a", "b"}})
	st.sendBlock(&ckdv1.Block{Rows: []uint32{0}, Values: rows[0]})
	st.sendBlock(&ckdv1.Block{Values: slices.Concat(rows[1], rows[2])})
	st.sendBlock(&ckdv1.Block{Values: slices.Concat(rows[3], rows[4]), Final: true})
	model := (*h.server.catalog.Load())["open-ended"].full.Model
	batch, outcome := model.NewBatch(), model.NewOutcome()
	results := st.receive().GetResults()
	for i, passes := range [][]float32{slices.Concat(rows[0], rows[1], rows[3]), slices.Concat(rows[2], rows[4])} {
		if err := batch.Reset(decomp.Tensor{Passes: len(passes) / 2, Inputs: 1, Float32: passes}); err != nil {
			t.Fatal(err)
		}
		if err := batch.Outcome(0, outcome); err != nil {
			t.Fatal(err)
		}
		if got := results[i].GetDecomposition(); !slices.Equal(got.GetC(), outcome.C) || int(got.GetPasses()) != outcome.Passes {
			t.Errorf("input %d: C %v of %d passes, want %v of %d", i, got.GetC(), got.GetPasses(), outcome.C, outcome.Passes)
		}
	}
}

// TestRefusedInputsTakeNoMemory: room is made for what was opened and paid for.
func TestRefusedInputsTakeNoMemory(t *testing.T) {
	l := newLoad(t, 30, 1, 1000, 1, true, ckdv1.Detail_DETAIL_DECISION)
	ids := slices.Repeat([]string{"a"}, 4096)
	raw, err := proto.Marshal(block(&ckdv1.Block{Group: 1, InputIds: ids}))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := (wire.Codec{}).Unmarshal(segments(raw), &l.in); err != nil {
		t.Fatal(err)
	}
	if err := l.request.Decode(&l.in); err != nil {
		t.Fatal(err)
	}
	r := l.session.receive(&l.request)
	runtime.ReadMemStats(&after)
	if got := r.message.(*wire.Outgoing).Results(); got != len(ids)-1 || l.session.inputs != 1 {
		t.Errorf("%d refused, %d open; want all but one refused", got, l.session.inputs)
	}
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 100<<20 { // most of it for the refusals
		t.Errorf("%d MB were allocated, with %d bytes of the budget", bytes>>20, l.session.held)
	}
}

// TestAsManyAsThereIsRoomFor: where the results of a group do not fit into the
// budget together, some do.
func TestAsManyAsThereIsRoomFor(t *testing.T) {
	limits := DefaultLimits()
	limits.OpenInputBytes = 4400 // three inputs, and the result of one
	h := newHarness(t, limits)
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	three := slices.Concat(safeRow, safeRow, criticalRow)
	st.sendBlock(&ckdv1.Block{InputIds: []string{"a", "b", "c"}, Values: three})
	st.sendBlock(&ckdv1.Block{Values: three, Final: true})
	decided := 0
	for _, r := range st.receive().GetResults() {
		if r.GetDecomposition() != nil {
			decided++
		} else if reason, _ := reasonIn(t, r.GetError()); reason != ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET {
			t.Errorf("%v", r)
		}
	}
	if decided != 1 {
		t.Errorf("%d decided, want 1", decided)
	}
}
