package server

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// DecomposeStream implements the RPC: it receives, lets the session deal with
// each block, and sends what the block finished.
func (s *Server) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	if n := s.streams.Add(1); n > int64(s.limits.Streams) {
		s.streams.Add(-1)
		return statusOf(overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS, "streams", n, int64(s.limits.Streams)), location{}).Err()
	}
	defer s.streams.Add(-1)

	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	header := first.GetHeader()
	m, err := s.readHeader(header)
	if err != nil {
		if m == nil {
			s.metrics.RejectedUnknownModel(reasonWord(reasonOf(err)))
		} else {
			m.metrics.Rejected(reasonWord(reasonOf(err)))
		}
		return statusOf(err, location{}).Err()
	}
	m.metrics.StreamsOpen(1)
	defer m.metrics.StreamsOpen(-1)

	session := newSession(s, m, header)
	defer session.abandon()
	if err := stream.Send(&ckdv1.DecomposeStreamResponse{Info: session.info()}); err != nil {
		return err
	}
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return session.finishAll(stream.Send)
		}
		if err != nil {
			return err
		}
		var reply *ckdv1.DecomposeStreamResponse
		switch {
		case message.GetBlock() != nil:
			if err := session.block(message.GetBlock()); err != nil {
				return statusOf(err, location{}).Err()
			}
			reply = session.reply()
		case message.GetHeader() == nil:
			reply = refusal(&fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_EMPTY_MESSAGE, message: "a message without header or block",
				value: "neither", expected: "a block",
			})
		case !proto.Equal(message.GetHeader(), header):
			reply = refusal(&fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_HEADER_CHANGED, field: "header",
				message: "a later header differs from the first, which stays in force",
				value:   "another header", expected: "the first header again, or none",
			})
		}
		if reply == nil {
			continue
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

// readHeader finds the model of a stream and checks the rest of its header. The
// model is returned also where its header is refused.
func (s *Server) readHeader(h *ckdv1.StreamHeader) (*model, error) {
	if h == nil {
		return nil, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_HEADER_MISSING, field: "header",
			message: "the first message has no header", value: "no header", expected: "a header that names the model",
		}
	}
	m, err := s.model(h.GetModel())
	if err != nil {
		return nil, err
	}
	if err := checkTerms(m, h.GetClasses(), h.GetKind(), h.GetDetail()); err != nil {
		return m, err
	}
	if n := int64(h.GetPasses()); n > int64(s.limits.PassesPerInput) {
		return m, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", n, int64(s.limits.PassesPerInput))
	}
	p := m.Policy()
	if n := int(h.GetPasses()); n != 0 && n < p.FewestPasses {
		return m, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES, field: "passes", value: fmt.Sprint(n),
			message:  fmt.Sprintf("passes: %d, the policy of model %q accepts no fewer than %d", n, p.Name, p.FewestPasses),
			expected: fmt.Sprintf("0, or at least %d", p.FewestPasses),
		}
	}
	if n := int(h.GetPasses()); n > 1 && kindMessage(p.Kind) == ckdv1.Kind_KIND_DIRICHLET {
		return m, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, field: "passes", value: fmt.Sprint(n),
			message:  fmt.Sprintf("passes: %d, expected 1: an input of model %q is one row of concentrations", n, p.Name),
			expected: "1",
		}
	}
	return m, nil
}

// refusal is a reply to a message that names no input.
func refusal(err error) *ckdv1.DecomposeStreamResponse {
	return &ckdv1.DecomposeStreamResponse{Results: []*ckdv1.Result{{
		Outcome: &ckdv1.Result_Error{Error: statusOf(err, location{}).Proto()},
	}}}
}
