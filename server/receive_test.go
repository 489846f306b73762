package server

import (
	"testing"

	"google.golang.org/grpc"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestNoRoomToUnpack checks that a compressed message is refused while clients hold the whole budget
// or memory is short, with a delay before another attempt, and is taken when they have let go.
func TestNoRoomToUnpack(t *testing.T) {
	h := newHarness(t)
	request := tensor(ctg(t), 10)
	release := h.server.fillBudget(t)
	_, err := h.client.Decompose(t.Context(), request, grpc.UseCompressor("gzip"))
	if f := expectFault(t, err, "OVERLOADED"); f.Retry != retryBudget {
		t.Errorf("to be tried again after %v, want %v", f.Retry, retryBudget)
	}
	stream, err := h.client.DecomposeStream(t.Context(), grpc.UseCompressor("gzip"))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(header(&ckdv1.StreamHeader{Model: "ctg"})) // Recv says how it went
	_, err = stream.Recv()
	expectFault(t, err, "OVERLOADED")
	release()
	h.decompose(t, request, grpc.UseCompressor("gzip"))
}

// fillBudget holds the whole budget until the returned function is called.
func (s *Server) fillBudget(t *testing.T) func() {
	t.Helper()
	s.budget.shared.Add(s.budget.limit)
	return func() { s.budget.shared.release(s.budget.limit) }
}
