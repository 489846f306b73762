package wire

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

func FuzzReply(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkReply)) }

func TestReply(t *testing.T) { rapid.Check(t, checkReply) }

// checkReply builds a reply of anything, and holds its bytes against the
// generated encoder's.
func checkReply(t *rapid.T) {
	form := rapid.SampledFrom([]Form{Stream, Unary}).Draw(t, "form")
	o := NewOutgoing(form)
	if rapid.Bool().Draw(t, "begun before") {
		o.Result([]byte("left over"), 1, 2, 3, &Decomposition{Value: 4})
		o.Begin(form)
	}
	var policies []*ckdv1.PolicyRef
	var results []*ckdv1.Result
	var faults []*rpcstatus.Status
	most := 3
	if form == Unary {
		most = 1
	}
	for range rapid.IntRange(0, most).Draw(t, "policies") {
		p := &ckdv1.PolicyRef{Model: rapid.String().Draw(t, "model"), Version: rapid.String().Draw(t, "version"), Hash: strings.Repeat("5", 64)}
		o.Policy(EncodePolicy(p))
		policies = append(policies, p)
	}
	for range rapid.IntRange(0, 6).Draw(t, "results") {
		r := &ckdv1.Result{
			InputId: strings.Repeat(rapid.String().Draw(t, "id"), rapid.SampledFrom([]int{1, 1, 50}).Draw(t, "times")),
			Group:   rapid.Uint64().Draw(t, "group"), Row: rapid.Uint32().Draw(t, "row"), Policy: rapid.Uint32().Draw(t, "policy"),
		}
		if rapid.IntRange(0, 4).Draw(t, "failed") == 0 {
			st := anyStatus(t)
			o.Error([]byte(r.InputId), r.Group, r.Row, r.Policy, st)
			r.Outcome = &ckdv1.Result_Error{Error: st}
		} else {
			d, m := anyDecomposition(t)
			o.Result([]byte(r.InputId), r.Group, r.Row, r.Policy, d)
			r.Outcome = &ckdv1.Result_Decomposition{Decomposition: m}
		}
		results = append(results, r)
	}
	var classes []string
	if form == Unary {
		for _, name := range rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "classes") {
			o.Class(name)
			classes = append(classes, name)
		}
	}
	if form == Stream && rapid.Bool().Draw(t, "fault") {
		faults = append(faults, anyStatus(t))
		o.Fault(faults[0])
	}
	var message proto.Message = &ckdv1.DecomposeStreamResponse{Policies: policies, Results: results, Faults: faults}
	if form == Unary {
		unary := &ckdv1.DecomposeResponse{Results: results, Classes: classes}
		if len(policies) > 0 {
			unary.Policy = policies[0]
		}
		message = unary
	}
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	if o.Len() != len(want) || o.Results() != len(results) {
		t.Fatalf("length %d with %d results, want %d, %d", o.Len(), o.Results(), len(want), len(results))
	}
	if m := o.memory; m != nil && m.pool != nil && cap(m.bytes) != smallest<<(2*classOf(m)) {
		t.Fatalf("more than %d bytes were written into room for %d", len(m.bytes), smallest<<(2*classOf(m)))
	}
	data, err := Codec{}.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	if got := data.Materialize(); !bytes.Equal(got, want) {
		t.Fatalf("got  %x\nwant %x", got, want)
	}
}

// classOf returns which of the pools a memory belongs to.
func classOf(m *memory) int {
	for i := range pools {
		if m.pool == &pools[i] {
			return i
		}
	}
	return -1
}

func anyStatus(t *rapid.T) *rpcstatus.Status {
	detail, err := anypb.New(&errdetails.ErrorInfo{Reason: "R", Metadata: map[string]string{"a": "1", "b": rapid.String().Draw(t, "b")}})
	if err != nil {
		t.Fatal(err)
	}
	return &rpcstatus.Status{Code: rapid.Int32().Draw(t, "code"), Message: rapid.String().Draw(t, "message"), Details: []*anypb.Any{detail}}
}

// anyDecomposition draws a decomposition in both its forms.
func anyDecomposition(t *rapid.T) (*Decomposition, *ckdv1.Decomposition) {
	double := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), 5e-324}))
	times := rapid.SampledFrom([]int{1, 1, 7, 100})
	doubles := rapid.Custom(func(t *rapid.T) []float64 {
		return slices.Repeat(rapid.SliceOfN(double, 0, 5).Draw(t, "doubles"), times.Draw(t, "times"))
	})
	enum := rapid.OneOf(rapid.Int32Range(0, 11), rapid.Int32())
	number := rapid.OneOf(rapid.Uint32Range(0, 3), rapid.Uint32())
	class := rapid.OneOf(rapid.IntRange(-1, 3), rapid.IntRange(-1, math.MaxInt32))
	numbers := rapid.Custom(func(t *rapid.T) []uint32 {
		return slices.Repeat(rapid.SliceOfN(number, 0, 5).Draw(t, "numbers"), times.Draw(t, "times"))
	})
	d := &Decomposition{
		Action: ckdv1.Action(enum.Draw(t, "action")), Score: ckdv1.Score(enum.Draw(t, "score")), Value: double.Draw(t, "value"),
		Threshold: double.Draw(t, "threshold"), HasThreshold: rapid.Bool().Draw(t, "has threshold"),
		Gate: ckdv1.GateOutcome(enum.Draw(t, "gate")), DecidingClass: class.Draw(t, "deciding class"),
		Reason: ckdv1.DecisionReason(enum.Draw(t, "reason")), Unreliable: numbers.Draw(t, "unreliable"),
		Predicted: number.Draw(t, "predicted"), Passes: number.Draw(t, "passes"),
		Degenerate: rapid.Bool().Draw(t, "degenerate"), Saturated: rapid.Bool().Draw(t, "saturated"), Settled: rapid.Bool().Draw(t, "settled"),
		Assessed: rapid.Bool().Draw(t, "assessed"), Risk: double.Draw(t, "risk"), Priority: double.Draw(t, "priority"), PriorityPercentile: double.Draw(t, "percentile"),
		Review: rapid.Bool().Draw(t, "review"), Receipt: bytes.Repeat([]byte{7}, rapid.SampledFrom([]int{0, 1, 100, 184, 300}).Draw(t, "receipt")),
		Vectors: rapid.Bool().Draw(t, "vectors"),
		C:       doubles.Draw(t, "c"), Skewness: doubles.Draw(t, "skewness"), Mean: doubles.Draw(t, "mean"),
		MI: double.Draw(t, "mi"), Entropy: double.Draw(t, "entropy"), SumC: double.Draw(t, "sum_c"), Dominant: class.Draw(t, "dominant"),
		Variance: doubles.Draw(t, "variance"), ThirdMoment: doubles.Draw(t, "third_moment"), M: doubles.Draw(t, "m"), C3: doubles.Draw(t, "c3"),
		ExpectedEntropy: double.Draw(t, "expected_entropy"), SumCTop: double.Draw(t, "sum_c_top"), SumCWeighted: double.Draw(t, "sum_c_weighted"),
	}
	m := &ckdv1.Decomposition{
		Decision:   &ckdv1.Decision{Action: d.Action, Score: d.Score, Value: d.Value, Gate: d.Gate, Reason: d.Reason},
		Unreliable: d.Unreliable, Predicted: d.Predicted, Passes: d.Passes, Degenerate: d.Degenerate, Saturated: d.Saturated, Settled: d.Settled,
		Review: d.Review, Receipt: d.Receipt,
	}
	if d.Assessed {
		if m.Priority, m.PriorityPercentile = &d.Priority, &d.PriorityPercentile; !math.IsNaN(d.Risk) {
			m.Risk = &d.Risk
		}
	}
	if d.HasThreshold {
		m.Decision.Threshold = &d.Threshold
	}
	if d.DecidingClass >= 0 {
		m.Decision.DecidingClass = proto.Uint32(uint32(d.DecidingClass))
	}
	if rapid.Bool().Draw(t, "scores") {
		d.Scores = new([decomp.NumScores]float64)
		for i := range d.Scores {
			d.Scores[i] = double.Draw(t, "a score")
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "pairs") {
		d.PairA, d.PairB = append(d.PairA, number.Draw(t, "a")), append(d.PairB, number.Draw(t, "b"))
		d.Confusion, d.Correlation = append(d.Confusion, double.Draw(t, "confusion")), append(d.Correlation, double.Draw(t, "correlation"))
	}
	n := times.Draw(t, "times the pairs")
	d.PairA, d.PairB = slices.Repeat(d.PairA, n), slices.Repeat(d.PairB, n)
	d.Confusion, d.Correlation = slices.Repeat(d.Confusion, n), slices.Repeat(d.Correlation, n)
	if !d.Vectors {
		return d, m
	}
	m.C, m.Skewness, m.Mean, m.Mi, m.Entropy, m.SumC = d.C, d.Skewness, d.Mean, d.MI, d.Entropy, d.SumC
	if d.Dominant >= 0 {
		m.Dominant = proto.Uint32(uint32(d.Dominant))
	}
	m.Variance, m.ThirdMoment, m.M, m.C3 = d.Variance, d.ThirdMoment, d.M, d.C3
	m.ExpectedEntropy, m.SumCTop, m.SumCWeighted = d.ExpectedEntropy, d.SumCTop, d.SumCWeighted
	if d.Scores != nil {
		m.Scores = &ckdv1.Scores{}
		for i, p := range []**float64{
			&m.Scores.Entropy, &m.Scores.Mi, &m.Scores.Maxprob, &m.Scores.EuVar, &m.Scores.VarCrit, &m.Scores.EuVarCrit,
			&m.Scores.OvaMi, &m.Scores.CCritSum, &m.Scores.CCritMax, &m.Scores.Cbec, &m.Scores.PCritical,
		} {
			if v := d.Scores[i]; !math.IsNaN(v) {
				*p = &v
			}
		}
	}
	for i := range d.PairA {
		m.Pairs = append(m.Pairs, &ckdv1.PairTerm{ClassA: d.PairA[i], ClassB: d.PairB[i], Confusion: d.Confusion[i], Correlation: d.Correlation[i]})
	}
	return d, m
}

// TestErrorThatDoesNotEncode checks that an error is answered even if its text is not valid UTF-8.
func TestErrorThatDoesNotEncode(t *testing.T) {
	o := NewOutgoing(Stream)
	o.Error([]byte("id"), 1, 0, 0, &rpcstatus.Status{Code: 3, Message: "cut \xc3"})
	var got ckdv1.DecomposeStreamResponse
	if err := proto.Unmarshal(o.memory.bytes, &got); err != nil {
		t.Fatal(err)
	}
	if st := got.GetResults()[0].GetError(); st.GetCode() != 3 || st.GetMessage() != "cut \uFFFD" {
		t.Errorf("got %v", st)
	}
}

// TestReplyInAnyOrder checks that the fields of a reply may be built in any order: a client sees
// the same.
func TestReplyInAnyOrder(t *testing.T) {
	o := NewOutgoing(Stream)
	fault := &rpcstatus.Status{Code: 9}
	a, b := &ckdv1.PolicyRef{Model: "a"}, &ckdv1.PolicyRef{Model: "b"}
	o.Fault(fault)
	o.Policy(EncodePolicy(a))
	o.Result(nil, 7, 0, 0, &Decomposition{DecidingClass: -1})
	o.Policy(EncodePolicy(b))
	var got ckdv1.DecomposeStreamResponse
	if err := proto.Unmarshal(o.memory.bytes, &got); err != nil {
		t.Fatal(err)
	}
	want := &ckdv1.DecomposeStreamResponse{
		Policies: []*ckdv1.PolicyRef{a, b}, Faults: []*rpcstatus.Status{fault},
		Results: []*ckdv1.Result{{Group: 7, Outcome: &ckdv1.Result_Decomposition{
			Decomposition: &ckdv1.Decomposition{Decision: &ckdv1.Decision{}},
		}}},
	}
	if !proto.Equal(&got, want) {
		t.Errorf("got %v, want %v", &got, want)
	}
}

func TestFaultInUnaryReplyPanics(t *testing.T) {
	defer func() {
		if p := recover(); p != "wire: a fault in a unary reply" {
			t.Errorf("recovered %v", p)
		}
	}()
	NewOutgoing(Unary).Fault(nil)
}

// TestReplyIsTheTransportsUntilFreed checks that no reply is built in memory that the transport has
// not freed, however many others are built.
func TestReplyIsTheTransportsUntilFreed(t *testing.T) {
	o := NewOutgoing(Stream)
	build := func(id byte) mem.BufferSlice {
		o.Begin(Stream)
		for range 40 {
			o.Result(bytes.Repeat([]byte{id}, 20), 1, 2, 3, &Decomposition{})
		}
		data, err := Codec{}.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	held := build('a')
	held.Ref()
	held.Free() // as SendMsg does; the transport has its own
	want := held.Materialize()
	for range 100 {
		build('b').Free()
	}
	if got := held.Materialize(); !bytes.Equal(got, want) {
		t.Error("a reply has changed that the transport still holds")
	}
	held.Free()
}

func TestReplyIsSentOnce(t *testing.T) {
	o := NewOutgoing(Stream)
	if data, err := (Codec{}).Marshal(o); err != nil || data.Len() != 0 {
		t.Fatalf("an empty reply: %v, %v", data, err)
	}
	if _, err := (Codec{}).Marshal(o); err == nil || !strings.Contains(err.Error(), "sent before; Begin") {
		t.Errorf("got error %v", err)
	}
}

// TestReplyHoldsLittleMemory checks that replies held for a client that does not read take little
// more memory than their size.
func TestReplyHoldsLittleMemory(t *testing.T) {
	o := NewOutgoing(Stream)
	for _, results := range []int{1 << 15, 1, 100, 1 << 12, 1, 50} {
		o.Begin(Stream)
		for range results {
			o.Result(nil, 1, 2, 3, &Decomposition{Value: 1})
		}
		if n, limit := cap(o.memory.bytes), max(smallest, 5*o.Len()); n > limit {
			t.Errorf("a reply of %d bytes holds %d, more than %d", o.Len(), n, limit)
		}
		data, err := Codec{}.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		data.Free()
	}
}

// race is whether the race detector is on.
var race bool

func TestReplyAllocatesNothing(t *testing.T) {
	if race {
		t.Skip("under the race detector, pools forget at random")
	}
	policy, id := EncodePolicy(&ckdv1.PolicyRef{Model: "m"}), []byte("input-1")
	vectors := make([]float64, 10)
	d := &Decomposition{
		Value: 1, HasThreshold: true, Unreliable: []uint32{1, 300}, Passes: 30, Vectors: true, C: vectors, Mean: vectors, M: vectors,
		Scores: new([decomp.NumScores]float64), PairA: []uint32{1}, PairB: []uint32{2}, Confusion: vectors[:1], Correlation: vectors[:1],
	}
	o := NewOutgoing(Stream)
	for _, results := range []int{1, 64, 1000} {
		allocs := testing.AllocsPerRun(100, func() {
			o.Begin(Stream)
			o.Policy(policy)
			for row := range results {
				o.Result(id, 1<<40, uint32(row), 0, d)
			}
			data, err := Codec{}.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			data.Ref()
			data.Free()
			data.Free()
		})
		if allocs != 0 {
			t.Errorf("%d results: %v allocations", results, allocs)
		}
	}
}
