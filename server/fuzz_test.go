package server

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// scriptedStream is a stream that receives given messages and keeps the answers.
type scriptedStream struct {
	grpc.ServerStream
	ctx     context.Context
	in      [][]byte
	breakup bool // the stream ends with an error, not with a half-close
	out     []*ckdv1.DecomposeStreamResponse
}

func (s *scriptedStream) Context() context.Context     { return s.ctx }
func (s *scriptedStream) SetHeader(metadata.MD) error  { return nil }
func (s *scriptedStream) SendHeader(metadata.MD) error { return nil }
func (s *scriptedStream) SetTrailer(metadata.MD)       {}

func (s *scriptedStream) RecvMsg(m any) error {
	if len(s.in) == 0 {
		if s.breakup {
			return context.Canceled
		}
		return io.EOF
	}
	raw := s.in[0]
	s.in = s.in[1:]
	return (wire.Codec{}).Unmarshal(segments(raw, len(raw)/2), m)
}

func (s *scriptedStream) SendMsg(m any) error {
	reply := &ckdv1.DecomposeStreamResponse{}
	if err := sendBytes(m, reply); err != nil {
		return err
	}
	s.out = append(s.out, reply)
	return nil
}

// FuzzStream gives the handler any sequence of messages. The handler must not panic, answer an
// input twice or leave one open. An answer is an outcome with sane numbers or an error with a
// reason.
func FuzzStream(f *testing.F) {
	frame := func(messages ...*ckdv1.DecomposeStreamRequest) []byte {
		var data []byte
		for _, m := range messages {
			raw, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			data = binary.AppendUvarint(data, uint64(len(raw)))
			data = append(data, raw...)
		}
		return data
	}
	full := func(model string, passes uint32) *ckdv1.DecomposeStreamRequest {
		return header(&ckdv1.StreamHeader{Model: model, Passes: passes, Detail: ckdv1.Detail_DETAIL_FULL})
	}
	two := slices.Concat(safeRow, criticalRow)
	f.Add(frame(full("open-ended", 0), block(&ckdv1.Block{Group: 1, InputIds: []string{"a", "b"}, Values: two}),
		block(&ckdv1.Block{Group: 1, Rows: []uint32{1}, Values: safeRow}), block(&ckdv1.Block{Group: 1, ValuesLe: littleEndian(two), Final: true})), false)
	f.Add(frame(full("ctg", 4), block(&ckdv1.Block{Group: 9, InputIds: []string{"x"}, Passes: 4, Values: slices.Repeat([]float32{0.5, 0.25, 0.25}, 4)})), false)
	f.Add(frame(full("logits", 2), block(&ckdv1.Block{InputIds: []string{""}, Passes: 2, Values: []float32{1, 2, 3, 300, 200, 100}})), true)
	f.Add(frame(full("evidential", 0), block(&ckdv1.Block{InputIds: []string{"e"}, Values: []float32{1, 2, 3}})), false)
	f.Add(frame(block(&ckdv1.Block{Group: 1})), false)
	f.Add(frame(full("open-ended", 2), &ckdv1.DecomposeStreamRequest{}, full("ctg", 0)), false)

	contexts := []*ckdv1.InputContext{{Group: "g", Slices: map[string]string{"site": "north", "other": "x"}}, {}}
	f.Add(frame(header(&ckdv1.StreamHeader{Model: "open-ended", Receipts: ckdv1.Receipts_RECEIPTS_ALL, ModelVersion: "v7"}),
		block(&ckdv1.Block{InputIds: []string{"a", "a"}, Values: two, Contexts: contexts}), block(&ckdv1.Block{Values: two, Final: true})), false)

	s, _, _ := newServer(f, func(o *Options) {
		o.Limits.OpenInputsPerStream, o.Limits.OpenGroupsPerStream, o.Limits.PassesPerInput = 50, 10, 100
	})
	stopping := stoppingPolicy(f, 0, -1, 1, "name: ctg", "name: stopping", "expected: 30", "expected: 7")
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(testPolicies)}, policy.File{Name: "stopping.yaml", Data: stopping.Marshal()})
	if err != nil {
		f.Fatal(err)
	}
	if err := s.SetPolicies(set); err != nil {
		f.Fatal(err)
	}
	s.SetReceiptKeys(receiptKeys(f, 1))
	s.catalog.models()["stopping"].lean.Stopper().Sampler = fullpass.Sampler{Share: 0.3}
	accepts := header(&ckdv1.StreamHeader{Model: "stopping", AcceptSettled: true, Receipts: ckdv1.Receipts_RECEIPTS_ALL})
	three := []float32{0.98, 0.01, 0.01, 0.4, 0.1, 0.5, 0.9, 0.05, 0.05}
	f.Add(frame(accepts, block(&ckdv1.Block{Group: 1, InputIds: []string{"a", "b", "c"}, Values: three}), block(&ckdv1.Block{Group: 1, Passes: 4, Values: slices.Repeat(three, 4)}),
		block(&ckdv1.Block{Group: 1, Rows: []uint32{2, 0}, Values: three[:6]}), block(&ckdv1.Block{Group: 1, Values: three})), false)
	f.Add(frame(accepts, block(&ckdv1.Block{InputIds: []string{"a"}, Passes: 6, Values: slices.Repeat([]float32{0.5, 0.25, 0.25, 0.8, 0.1, 0.1}, 3)}), block(&ckdv1.Block{Final: true})), true)
	f.Fuzz(func(t *testing.T, data []byte, breakup bool) {
		st := &scriptedStream{ctx: t.Context(), breakup: breakup}
		opened := map[string]int{} // how often, by id
		for len(data) > 0 {
			n, width := binary.Uvarint(data)
			if width <= 0 || n > uint64(len(data)-width) {
				break
			}
			m := &ckdv1.DecomposeStreamRequest{}
			if proto.Unmarshal(data[width:width+int(n)], m) == nil {
				for _, id := range m.GetBlock().GetInputIds() {
					opened[id]++
				}
			}
			st.in = append(st.in, data[width:width+int(n)])
			data = data[width+int(n):]
		}
		_ = s.streams.decompose(st) // any error is an answer
		for _, reply := range st.out {
			for _, r := range reply.GetResults() {
				checkAnswer(t, r, len(reply.GetPolicies()))
				if d := r.GetDecomposition(); d.GetSettled() && (d.GetPasses() < 4 || d.GetPasses() >= 7 ||
					d.GetDegenerate() && d.GetDecision().GetAction() == ckdv1.Action_ACTION_RETAIN) {
					t.Errorf("early decision %v", d)
				}
				if r.GetInputId() != "" || r.GetDecomposition() != nil {
					opened[r.GetInputId()]--
				}
				if opened[r.GetInputId()] < 0 {
					t.Errorf("input %q was answered more often than it was opened", r.GetInputId())
				}
			}
		}
		if n := s.budget.total(); n != 0 {
			t.Errorf("%d bytes of open inputs are left", n)
		}
		if n := s.admission.streams.Load(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// FuzzUnary gives the unary handler any request.
func FuzzUnary(f *testing.F) {
	for _, r := range []*ckdv1.DecomposeRequest{
		{Model: "open-ended", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 2, Inputs: 1, Values: []float32{0.5, 0.5, 0.25, 0.75}, Detail: ckdv1.Detail_DETAIL_FULL},
		{Model: "ctg", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 4, Inputs: 1, InputIds: []string{"a"}, ValuesLe: littleEndian(slices.Repeat([]float32{0.5, 0.25, 0.25}, 4))},
		{Model: "logits", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 2, Inputs: 1, Values: []float32{1, 2, 3, 300, 200, 100}},
		{Model: "evidential", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 1, Inputs: 1, Values: []float32{1, 2, 3}, Detail: ckdv1.Detail_DETAIL_FULL},
		{
			Model: "ctg", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 4, Inputs: 1, InputIds: []string{"a"}, Values: slices.Repeat([]float32{0.5, 0.25, 0.25}, 4),
			Receipts: ckdv1.Receipts_RECEIPTS_ALL, ModelVersion: "v7", Contexts: []*ckdv1.InputContext{{Group: "g", Slices: map[string]string{"site": "south"}}},
		},
	} {
		raw, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	s, _, _ := newServer(f)
	s.SetReceiptKeys(receiptKeys(f, 1))
	if err := s.SetPolicies(parsePolicies(f, strings.Replace(testPolicies, "threshold: 0.003}", "threshold: 0.003}\n    audit: {rate: 0.3, slices: [{name: site, values: [south]}]}", 1))); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in wire.Incoming
		if err := (wire.Codec{}).Unmarshal(segments(data, len(data)/2), &in); err != nil {
			t.Fatal(err)
		}
		defer in.Free()
		out, err := s.decider.decompose(t.Context(), &in)
		if err != nil {
			return // any error is an answer
		}
		r, response := &ckdv1.DecomposeRequest{}, &ckdv1.DecomposeResponse{}
		if err := proto.Unmarshal(data, r); err != nil {
			t.Errorf("answered a request that does not decode: %v", err)
		}
		if err := sendBytes(out, response); err != nil {
			t.Fatal(err)
		}
		if len(response.GetResults()) != int(r.GetInputs()) {
			t.Errorf("%d results for %d inputs", len(response.GetResults()), r.GetInputs())
		}
		for _, result := range response.GetResults() {
			checkAnswer(t, result, 1)
		}
	})
}

// checkAnswer checks what must hold for every result.
func checkAnswer(t *testing.T, r *ckdv1.Result, policies int) {
	t.Helper()
	if st := r.GetError(); st != nil {
		if reason := servertest.FaultOf(status.ErrorProto(st)).Reason; reason == "" || reason == "INTERNAL" {
			t.Errorf("error %v", st)
		}
		return
	}
	d := r.GetDecomposition()
	if d == nil {
		t.Fatalf("neither outcome nor error: %v", r)
	}
	if int(r.GetPolicy()) >= policies {
		t.Errorf("policy %d of %d", r.GetPolicy(), policies)
	}
	if d.GetDecision().GetAction() == 0 || d.GetDecision().GetReason() == 0 || d.GetDecision().GetScore() == 0 || d.GetDecision().GetGate() == 0 {
		t.Errorf("decision %v", d.GetDecision())
	}
	if sealed := d.GetReceipt(); len(sealed) > 0 {
		content, _, err := receiptKeys(t, 1).Open(sealed)
		if err != nil || content.Review != d.GetReview() || content.Passes != d.GetPasses() || content.Settled != d.GetSettled() {
			t.Errorf("%v: the receipt of %v holds %+v", err, d, content)
		}
	}
	for _, v := range [][]float64{d.GetC(), d.GetMean(), d.GetVariance(), d.GetM(), d.GetSkewness(), {d.GetMi(), d.GetSumC(), d.GetDecision().GetValue()}} {
		for _, x := range v {
			if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
				t.Errorf("a number that cannot be: %v in %v", x, v)
			}
		}
	}
}
