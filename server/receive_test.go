package server

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestGzip checks that clients may compress, and that the limit on messages is on their unpacked
// size.
func TestGzip(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.MessageBytes = 1 << 16 })
	request := tensor(ctg(t), 10)
	response, err := h.client.Decompose(t.Context(), request, grpc.UseCompressor("gzip"))
	if err != nil || len(response.GetResults()) != 10 {
		t.Errorf("compressed: %v", err)
	}
	bomb := &ckdv1.DecomposeRequest{Model: "ctg", ValuesLe: make([]byte, 1<<24)}
	if _, err := h.client.Decompose(t.Context(), bomb, grpc.UseCompressor("gzip")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message that unpacks to 16 MiB: %v", err)
	}
}

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
