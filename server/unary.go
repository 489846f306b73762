package server

import (
	"context"
	"fmt"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Decompose implements the RPC. Only what makes the tensor as a whole
// unreadable refuses the call; a bad row fails its input.
func (s *Server) Decompose(ctx context.Context, r *ckdv1.DecomposeRequest) (*ckdv1.DecomposeResponse, error) {
	s.calls.Add(1)
	defer s.calls.Add(-1)
	// A refused call counts as many inputs as it states, and as can be.
	inputs := min(max(int(r.GetInputs()), 1), s.limits.InputsPerRequest)
	m, err := s.model(r.GetModel())
	if err != nil {
		s.metrics.RejectedUnknownModel(reasonWord(reasonOf(err)), inputs)
		return nil, statusOf(err, location{}).Err()
	}
	s.retain(m)
	defer s.release(m)
	refuse := func(err error) error {
		m.metrics.Rejected(reasonWord(reasonOf(err)), inputs)
		return statusOf(err, location{}).Err()
	}
	held, err := s.hold(m, r)
	if err != nil {
		return nil, refuse(err)
	}
	defer s.openBytes.Add(-held)
	tensor, err := s.readTensor(m, r)
	if err != nil {
		return nil, refuse(err)
	}
	batch := m.NewBatch()
	if err := batch.Reset(tensor); err != nil {
		return nil, refuse(err)
	}
	differs := m.calibration.differences(tensor.Passes, r.GetPosterior())
	decided := false
	outcome := m.NewOutcome()
	seen := make(map[string]bool, len(r.GetInputIds()))
	response := &ckdv1.DecomposeResponse{Policy: m.ref, Results: make([]*ckdv1.Result, tensor.Inputs)}
	for i := range tensor.Inputs {
		if err := ctx.Err(); err != nil {
			m.metrics.Abandoned(tensor.Inputs - i)
			return nil, err
		}
		result := &ckdv1.Result{Row: uint32(i)}
		var err error
		if len(r.GetInputIds()) > 0 {
			id := r.GetInputIds()[i]
			err = s.checkID(id, i, seen[id])
			seen[id] = true
			result.InputId = s.echo(id)
		}
		if err == nil {
			err = batch.Outcome(i, outcome)
		}
		if err != nil {
			m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
			at := location{input: result.GetInputId(), row: i, hasPosition: true, classes: m.Policy().Classes}
			result.Outcome = &ckdv1.Result_Error{Error: statusOf(err, at).Proto()}
		} else {
			m.metrics.Observe(outcome.Result, outcome.Decision)
			m.countDifferent(differs)
			decided = true
			result.Outcome = &ckdv1.Result_Decomposition{Decomposition: decompositionMessage(m, outcome, r.GetDetail())}
		}
		response.Results[i] = result
	}
	if decided {
		s.logCall(ctx, m, differs, tensor.Passes, r.GetPosterior())
	}
	return response, nil
}

// hold takes what a request occupies out of the budget that it shares with the
// open inputs of streams: its values, as much again to work with, and its reply.
func (s *Server) hold(m *model, r *ckdv1.DecomposeRequest) (int64, error) {
	bytes := 2*int64(4*len(r.GetValues())+len(r.GetValuesLe())) +
		min(int64(r.GetInputs())*resultCost(m, r.GetDetail()), replyCostFactor*int64(s.limits.ReplyBytes))
	if total := s.openBytes.Add(bytes); total > s.limits.OpenInputBytes {
		s.openBytes.Add(-bytes)
		return 0, overLimit(ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET, "values", "bytes of open inputs and requests", total, s.limits.OpenInputBytes)
	}
	return bytes, nil
}

// readTensor checks everything about a request but the rows.
func (s *Server) readTensor(m *model, r *ckdv1.DecomposeRequest) (decomp.Tensor, error) {
	var t decomp.Tensor
	if err := checkTerms(m, r); err != nil {
		return t, err
	}
	switch r.GetLayout() {
	case ckdv1.Layout_LAYOUT_SNK:
		t.Layout = decomp.SNK
	case ckdv1.Layout_LAYOUT_NSK:
		t.Layout = decomp.NSK
	default:
		return t, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_LAYOUT, field: "layout", value: r.GetLayout().String(),
			message: fmt.Sprintf("layout is %v, expected LAYOUT_SNK or LAYOUT_NSK", r.GetLayout()), expected: "LAYOUT_SNK or LAYOUT_NSK",
		}
	}
	if n := r.GetInputs(); int64(n) > int64(s.limits.InputsPerRequest) {
		return t, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "inputs", "inputs", int64(n), int64(s.limits.InputsPerRequest))
	}
	if n := r.GetPasses(); int64(n) > int64(s.limits.PassesPerInput) {
		return t, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", "passes", int64(n), int64(s.limits.PassesPerInput))
	}
	if got, want := len(r.GetInputIds()), int(r.GetInputs()); got > 0 && got != want {
		return t, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_ID_COUNT, field: "input_ids", value: fmt.Sprint(got),
			message: fmt.Sprintf("%d input ids, expected none or %d", got, want), expected: fmt.Sprintf("none or %d", want),
		}
	}
	if err := s.checkReply(m, r.GetDetail(), int(r.GetInputs())); err != nil {
		return t, err
	}
	var scratch []float32
	values, err := readValues(r.GetValues(), r.GetValuesLe(), &scratch)
	if err != nil {
		return t, err
	}
	t.Passes, t.Inputs, t.Float32 = int(r.GetPasses()), int(r.GetInputs()), values
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

// overLimit is the fault of a number that exceeds a limit.
func overLimit(reason ckdv1.ErrorReason, field, what string, got, limit int64) error {
	return &fault{
		reason: reason, field: field, value: fmt.Sprint(got), expected: fmt.Sprintf("at most %d", limit),
		message: fmt.Sprintf("%d %s, over the limit of %d", got, what, limit),
	}
}
