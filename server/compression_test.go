package server

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
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

// TestCompressionOff checks that no method takes compressed messages, and that the others are served.
func TestCompressionOff(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.RefuseCompressed = true })
	zipped := grpc.UseCompressor("gzip")
	probe := healthv1.NewHealthClient(h.conn)
	for name, call := range map[string]func(...grpc.CallOption) error{
		"Decompose": func(o ...grpc.CallOption) error {
			_, err := h.client.Decompose(t.Context(), tensor(ctg(t), 1), o...)
			return err
		},
		"ListModels": func(o ...grpc.CallOption) error {
			_, err := h.client.ListModels(t.Context(), &ckdv1.ListModelsRequest{}, o...)
			return err
		},
		"DecomposeStream": func(o ...grpc.CallOption) error {
			s, err := h.client.DecomposeStream(t.Context(), o...)
			if err != nil {
				return err
			}
			_ = s.Send(header(&ckdv1.StreamHeader{Model: "ctg"})) // Recv says how it went
			_, err = s.Recv()
			return err
		},
		"Check": func(o ...grpc.CallOption) error {
			_, err := probe.Check(t.Context(), &healthv1.HealthCheckRequest{Service: "ctg"}, o...)
			return err
		},
		"Watch": func(o ...grpc.CallOption) error {
			s, err := probe.Watch(t.Context(), &healthv1.HealthCheckRequest{Service: "ctg"}, o...)
			if err != nil {
				return err
			}
			_, err = s.Recv()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := call(zipped); status.Code(err) != codes.Unimplemented {
				t.Errorf("compressed: %v, want UNIMPLEMENTED", err)
			}
			if err := call(); err != nil {
				t.Errorf("not compressed: %v", err)
			}
		})
	}
}
