package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/wire"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// call is a request, and what dealing with it needs; used again for others.
type call struct {
	wire.UnaryRequest
	values []float32
	seen   idSet
}

var calls = sync.Pool{New: func() any { return new(call) }}

// decompose implements the RPC. Only what makes the tensor as a whole
// unreadable refuses the call; a bad row fails its input.
func (s *Server) decompose(ctx context.Context, in *wire.Incoming) (*wire.Outgoing, error) {
	r := calls.Get().(*call)
	defer r.release()
	if err := r.Decode(in); err != nil {
		return nil, undecodable(err)
	}
	// A refused call counts as many inputs as it states, and as can be.
	inputs := min(max(int(r.Inputs), 1), s.limits.InputsPerRequest)
	m, err := s.model(r.Model)
	if err != nil {
		s.metrics.RejectedUnknownModel(reasonWord(reasonOf(err)), inputs)
		return nil, statusOf(err, location{}).Err()
	}
	s.retain(m)
	defer s.release(m)
	out, err := s.answer(ctx, m, r)
	if err != nil && !errors.Is(err, ctx.Err()) {
		m.metrics.Rejected(reasonWord(reasonOf(err)), inputs)
		return nil, statusOf(err, location{}).Err()
	}
	return out, err
}

func (r *call) release() {
	if cap(r.values) <= keptValues {
		calls.Put(r)
	}
}

// answer is the reply to a request, or what is wrong with it.
func (s *Server) answer(ctx context.Context, m *model, r *call) (*wire.Outgoing, error) {
	held, err := s.hold(m, r)
	if err != nil {
		return nil, err
	}
	defer s.openBytes.Add(-held)
	tensor, err := s.readTensor(m, r)
	if err != nil {
		return nil, err
	}
	w := m.workshop(r.Detail).take()
	defer w.release()
	if err := w.batch.Reset(tensor); err != nil {
		return nil, err
	}
	differs := m.calibration.differences(tensor.Passes, r.Posterior)
	decided := false
	out := wire.NewOutgoing(wire.Unary)
	out.Policy(m.encodedRef)
	counted := counter{model: m, hint: s.hints.Add(1), trace: sampledTrace(ctx)}
	defer counted.done()
	r.seen.begin(r.IDs.Len())
	for i := range tensor.Inputs {
		if err := ctx.Err(); err != nil {
			m.metrics.Abandoned(tensor.Inputs - i)
			return nil, err
		}
		var id []byte
		var err error
		if r.IDs.Len() > 0 {
			id = r.IDs.At(i)
			if twice := len(id) > 0 && r.seen.add(&r.IDs, i) == nil; twice || len(id) > s.limits.InputIDBytes {
				err = s.checkID(string(id), i, twice)
				id = []byte(s.echo(string(id)))
			}
		}
		if err == nil {
			err = w.batch.Outcome(i, w.outcome)
		}
		if err != nil {
			m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
			at := location{input: string(id), row: i, hasPosition: true, classes: m.Policy().Classes}
			out.Error(id, 0, uint32(i), 0, statusOf(err, at).Proto())
			continue
		}
		counted.count(w.outcome)
		m.countDifferent(differs)
		decided = true
		out.Result(id, 0, uint32(i), 0, w.tell(r.Detail))
	}
	if decided {
		s.logCall(ctx, m, differs, tensor.Passes, r.Posterior)
	}
	return out, nil
}

// hold takes what a request occupies out of the budget that it shares with the
// open inputs of streams: its values, as much again to work with (of logits, which
// become float64, twice that), some bytes for every pass, and its reply.
func (s *Server) hold(m *model, r *call) (int64, error) {
	times := int64(2)
	if m.Policy().Kind == policy.Logits {
		times = 4
	}
	bytes := times*int64(4*r.Values.Floats()+r.Values.Bytes()) + passBytes*min(int64(r.Passes), int64(s.limits.PassesPerInput)) +
		min(int64(r.Inputs)*resultCost(m, r.Detail), replyCostFactor*int64(s.limits.ReplyBytes))
	if total := s.openBytes.Add(bytes); total > s.limits.OpenInputBytes {
		s.openBytes.Add(-bytes)
		return 0, overBudget("values", "bytes of open inputs and requests", bytes, total, s.limits.OpenInputBytes)
	}
	return bytes, nil
}

// passBytes is what computing takes for a pass of whatever inputs.
const passBytes = 128

// readTensor checks everything about a request but the rows.
func (s *Server) readTensor(m *model, r *call) (decomp.Tensor, error) {
	var t decomp.Tensor
	if err := checkTerms(m, terms{r.Classes, r.Kind, r.Detail, r.Posterior}); err != nil {
		return t, err
	}
	switch r.Layout {
	case ckdv1.Layout_LAYOUT_SNK:
		t.Layout = decomp.SNK
	case ckdv1.Layout_LAYOUT_NSK:
		t.Layout = decomp.NSK
	default:
		return t, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_LAYOUT, field: "layout", value: r.Layout.String(),
			message: fmt.Sprintf("layout is %v, expected LAYOUT_SNK or LAYOUT_NSK", r.Layout), expected: "LAYOUT_SNK or LAYOUT_NSK",
		}
	}
	if n := r.Inputs; int64(n) > int64(s.limits.InputsPerRequest) {
		return t, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "inputs", "inputs", int64(n), int64(s.limits.InputsPerRequest))
	}
	if n := r.Passes; int64(n) > int64(s.limits.PassesPerInput) {
		return t, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", "passes", int64(n), int64(s.limits.PassesPerInput))
	}
	if got, want := r.IDs.Len(), int(r.Inputs); got > 0 && got != want {
		return t, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_ID_COUNT, field: "input_ids", value: fmt.Sprint(got),
			message: fmt.Sprintf("%d input ids, expected none or %d", got, want), expected: fmt.Sprintf("none or %d", want),
		}
	}
	if err := s.checkReply(m, r.Detail, int(r.Inputs)); err != nil {
		return t, err
	}
	if err := checkValues(&r.Values); err != nil {
		return t, err
	}
	n := r.Values.Len()
	r.values = slices.Grow(r.values[:0], n)[:n]
	r.Values.Next(r.values)
	t.Passes, t.Inputs, t.Float32 = int(r.Passes), int(r.Inputs), r.values
	return t, nil
}

// checkID refuses an id that is too long or in use.
func (s *Server) checkID(id string, position int, inUse bool) error {
	if len(id) > s.limits.InputIDBytes {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_ID_TOO_LONG, fmt.Sprintf("input_ids[%d]", position), "bytes of an id", int64(len(id)), int64(s.limits.InputIDBytes))
	}
	if inUse && id != "" {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ID, field: fmt.Sprintf("input_ids[%d]", position),
			message: "the id is in use", value: id, expected: "an id that is not open",
		}
	}
	return nil
}

// echo is an id as results repeat it: one that is too long, only in part.
func (s *Server) echo(id string) string {
	if len(id) > s.limits.InputIDBytes {
		return clip(id)
	}
	return id
}
