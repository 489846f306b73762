package server

import (
	"math"
	"testing"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/pressure"
)

// TestShortMemoryRefuses checks that while memory is short new calls and streams are refused, with a
// delay before another attempt, and that probes and open streams go on. A connection that takes next
// to nothing is spared, until the memory limit is reached.
func TestShortMemoryRefuses(t *testing.T) {
	h := newHarness(t)
	open := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	for range fewCalls {
		h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	}
	little := ckdv1.NewUncertaintyServiceClient(h.dial(t))
	for _, level := range []pressure.Level{pressure.Refuse, pressure.End} {
		t.Run(level.String(), func(t *testing.T) {
			h.server.admission.overload.level.Store(int32(level))
			defer h.server.admission.overload.level.Store(int32(pressure.Calm))
			_, err := h.client.Decompose(t.Context(), tensor(ctg(t), 1))
			if f := expectFault(t, err, "OVERLOADED"); f.Retry != retryMemory {
				t.Errorf("to be tried again after %v, want %v", f.Retry, retryMemory)
			}
			s, err := h.client.DecomposeStream(t.Context())
			if err == nil {
				_, err = s.Recv()
			}
			expectFault(t, err, "OVERLOADED")
			if _, err := little.Decompose(t.Context(), tensor(ctg(t), 1)); err != nil {
				t.Errorf("a call of one that takes next to nothing: %v", err)
			}
			h.server.admission.overload.pressure.Store(math.Float64bits(1))
			defer h.server.admission.overload.pressure.Store(0)
			_, err = little.Decompose(t.Context(), tensor(ctg(t), 1))
			expectFault(t, err, "OVERLOADED")
			probe := healthv1.NewHealthClient(h.conn)
			if _, err := probe.Check(t.Context(), &healthv1.HealthCheckRequest{}); status.Code(err) != codes.OK {
				t.Errorf("a probe: %v", err)
			}
			watch, err := probe.Watch(t.Context(), &healthv1.HealthCheckRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			if err != nil {
				t.Errorf("a watch: %v", err)
			}
		})
	}
	if got := h.metric(t, "ckd_refused_total", "resource", "memory"); got != 6 {
		t.Errorf("%v refusals were counted, want 6", got)
	}
	open.sendPasses(segment{group: 1, n: 3}, 0, 30)
	if results := open.rest(); len(results) != 3 {
		t.Errorf("%d results of the open stream, want 3", len(results))
	}
	h.decompose(t, tensor(ctg(t), 1))
}
