package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/status"

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
func (s *Server) decompose(ctx context.Context, in *wire.Incoming) (out *wire.Outgoing, err error) {
	r := calls.Get().(*call)
	defer r.release()
	if err := r.Decode(in); err != nil {
		return nil, undecodable(err)
	}
	inputs := int(r.Inputs)
	err = s.serve(ctx, r.Model, &inputs, func(m *model) (err error) {
		out, err = s.answer(ctx, m, r)
		return err
	})
	return out, err
}

func (r *call) release() {
	if cap(r.values) <= keptValues {
		calls.Put(r)
	}
}

// serve finds the model of a request, and lets answer deal with it. Where the
// request is refused it counts as many inputs as it states, and as can be, unless
// the error of answer is a status: then they were counted. answer may correct their
// number.
func (s *Server) serve(ctx context.Context, name string, inputs *int, answer func(m *model) error) error {
	m, err := s.model(ctx, name)
	if err != nil {
		s.metrics.RejectedUnknownModel(reasonWord(reasonOf(err)), s.countable(*inputs))
		s.refuseCall(ctx, nil, err)
		return statusOf(err, location{}).Err()
	}
	s.retain(m)
	defer s.release(m)
	err = answer(m)
	if _, said := status.FromError(err); said || errors.Is(err, ctx.Err()) {
		return err
	}
	m.metrics.Rejected(reasonWord(reasonOf(err)), s.countable(*inputs))
	s.refuseCall(ctx, m, err)
	return statusOf(err, location{}).Err()
}

// countable returns how many inputs a refused request counts that states so many.
func (s *Server) countable(inputs int) int { return min(max(inputs, 1), s.limits.InputsPerRequest) }

// answer is the reply to a request, or what is wrong with it.
func (s *Server) answer(ctx context.Context, m *model, r *call) (*wire.Outgoing, error) {
	if err := s.checkCall(m, r); err != nil {
		return nil, err
	}
	held, err := s.hold(m, size{
		inputs: int(r.Inputs), passes: int(r.Passes),
		values: int64(4*r.Values.Floats() + r.Values.Bytes()), result: resultBytes(m, r.Detail),
	})
	if err != nil {
		return nil, err
	}
	defer s.openBytes.Add(-held)
	w := m.workshop(r.Detail).take()
	defer w.release()
	tensor := r.tensor()
	if err := w.batch.Reset(tensor); err != nil {
		if shape := (*decomp.ShapeError)(nil); errors.As(err, &shape) {
			if f := wrongLength(m, shape.Got, shape.Passes, shape.Inputs); f.classes {
				err = f
			}
		}
		return nil, err
	}
	out := wire.NewOutgoing(wire.Unary)
	out.Policy(m.encodedRef)
	r.seen.begin(r.IDs.Len())
	var id []byte // of the input at hand, as it is repeated
	err = s.decideEach(ctx, m, w, tensor, r.Posterior, func(i int) (_ []byte, err error) {
		if r.IDs.Len() == 0 {
			return nil, nil
		}
		id = r.IDs.At(i)
		if twice := len(id) > 0 && r.seen.add(&r.IDs, i) == nil; twice || len(id) > s.limits.InputIDBytes {
			err = s.checkID(string(id), i, twice)
			id = []byte(s.echo(string(id)))
		}
		return id, err
	}, func(i int, err error) {
		if err != nil {
			at := location{input: string(id), row: i, hasPosition: true, classes: m.Policy().Classes}
			out.Error(id, 0, uint32(i), 0, statusOf(err, at).Proto())
			return
		}
		out.Result(id, 0, uint32(i), 0, w.tell(r.Detail))
	})
	if err != nil {
		return nil, err
	}
	if r.ClassNames {
		for _, name := range m.Policy().Classes {
			out.Class(name)
		}
	}
	return out, nil
}

// decideEach decides on the inputs of the tensor that w was given, in order, and
// counts what becomes of them. check gives the id of an input, and may refuse it; tell is
// called when w.outcome is that of the input, or with what is wrong with it. The
// error is that of ctx, which ends it.
func (s *Server) decideEach(
	ctx context.Context, m *model, w *worker, t decomp.Tensor, posterior string,
	check func(i int) (id []byte, err error), tell func(i int, err error),
) error {
	differs := m.calibration.differences(t.Passes, posterior)
	decided := false
	var refused refusedOfCall
	defer func() { s.tellRefused(ctx, m, refused) }()
	counted := counter{model: m, hint: s.hints.Add(1), trace: sampledTrace(ctx)}
	defer counted.done()
	for i := range t.Inputs {
		if err := ctx.Err(); err != nil {
			m.metrics.Abandoned(t.Inputs - i)
			return err
		}
		id, err := check(i)
		if err == nil {
			err = w.batch.Outcome(i, w.outcome)
		}
		if err != nil {
			m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
			refused.add(i, err)
		} else {
			s.tellDeferred(&counted, id, w.outcome)
			counted.count(w.outcome, true)
			m.countDifferent(differs)
			decided = true
		}
		tell(i, err)
	}
	if decided {
		s.logCall(ctx, m, differs, t.Passes, posterior)
	}
	return nil
}

// size is what a request states of itself.
type size struct {
	inputs, passes int
	values         int64 // bytes, as they came
	result         int64 // bytes of one input's, about
}

// hold takes what a request occupies out of the budget that it shares with the
// open inputs of streams: its values, as much again to work with (of logits, which
// become float64, twice that), some bytes for every pass, and its reply.
func (s *Server) hold(m *model, z size) (int64, error) {
	times := int64(2)
	if m.Policy().Kind == policy.Logits {
		times = 4
	}
	bytes := times*z.values + passBytes*int64(z.passes) + replyCostFactor*int64(z.inputs)*z.result
	if total := s.openBytes.Add(bytes); total > s.limits.OpenInputBytes {
		s.openBytes.Add(-bytes)
		return 0, overBudget("values", "bytes of open inputs and requests", bytes, total, s.limits.OpenInputBytes)
	}
	return bytes, nil
}

// passBytes is what computing takes for a pass of whatever inputs.
const passBytes = 128

// checkCall checks everything about a request but its values.
func (s *Server) checkCall(m *model, r *call) error {
	if err := checkTerms(m, terms{r.Classes, r.Kind, r.Detail, r.Posterior}); err != nil {
		return err
	}
	if r.Layout != ckdv1.Layout_LAYOUT_SNK && r.Layout != ckdv1.Layout_LAYOUT_NSK {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_LAYOUT, field: "layout", value: r.Layout.String(),
			message: fmt.Sprintf("layout is %v, expected LAYOUT_SNK or LAYOUT_NSK", r.Layout), expected: "LAYOUT_SNK or LAYOUT_NSK",
		}
	}
	if err := s.checkCounts(int64(r.Inputs), int64(r.Passes)); err != nil {
		return err
	}
	if got, want := r.IDs.Len(), int(r.Inputs); got > 0 && got != want {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_ID_COUNT, field: "input_ids", value: fmt.Sprint(got),
			message: fmt.Sprintf("%d input ids, expected none or %d", got, want), expected: fmt.Sprintf("none or %d", want),
		}
	}
	if err := s.checkReply(m, r.Detail, int(r.Inputs)); err != nil {
		return err
	}
	return checkValues(&r.Values)
}

// checkCounts holds the inputs and passes of a request against the limits.
func (s *Server) checkCounts(inputs, passes int64) error {
	if limit := int64(s.limits.InputsPerRequest); inputs > limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "inputs", "inputs", inputs, limit)
	}
	if limit := int64(s.limits.PassesPerInput); passes > limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", "passes", passes, limit)
	}
	return nil
}

// tensor reads the values.
func (r *call) tensor() decomp.Tensor {
	n := r.Values.Len()
	r.values = slices.Grow(r.values[:0], n)[:n]
	r.Values.Next(r.values)
	t := decomp.Tensor{Passes: int(r.Passes), Inputs: int(r.Inputs), Float32: r.values}
	if r.Layout == ckdv1.Layout_LAYOUT_NSK {
		t.Layout = decomp.NSK
	}
	return t
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
