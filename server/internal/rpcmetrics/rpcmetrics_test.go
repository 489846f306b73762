package rpcmetrics_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/server/internal/rpcmetrics"
)

// TestUnary checks the code and the messages that a unary call is counted with.
func TestUnary(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code string
		sent float64
	}{
		"OK":              {nil, "OK", 1},
		"status":          {status.Error(codes.NotFound, "no such model"), "NotFound", 0},
		"wrapped context": {fmt.Errorf("waiting: %w", context.Canceled), "Canceled", 0},
		"plain error":     {fmt.Errorf("plain"), "Unknown", 0},
	} {
		for _, created := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, created %t", name, created), func(t *testing.T) {
				registry := prometheus.NewRegistry()
				m, err := rpcmetrics.New(registry)
				if err != nil {
					t.Fatal(err)
				}
				series := 1
				if created {
					m.Create("s.S", grpc.ServiceInfo{Methods: []grpc.MethodInfo{{Name: "M"}}})
					series = 17
				}
				handle := func(context.Context, any) (any, error) { return nil, c.err }
				if _, err := m.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/s.S/M"}, handle); err != c.err { //nolint:errorlint // the same one
					t.Errorf("got the error %v, want %v", err, c.err)
				}
				if n, err := testutil.GatherAndCount(registry, "grpc_server_handled_total"); n != series || err != nil {
					t.Errorf("%d series by code (%v), want %d", n, err, series)
				}
				for metric, want := range map[string]float64{"started": 1, "msg_received": 1, "msg_sent": c.sent} {
					metric = "grpc_server_" + metric + "_total"
					if got := servertest.Sum(t, registry, metric, "grpc_method", "M"); got != want {
						t.Errorf("%s: got %v, want %v", metric, got, want)
					}
				}
				if got := servertest.Sum(t, registry, "grpc_server_handled_total", "grpc_code", c.code); got != 1 {
					t.Errorf("%v calls ended with %s, want 1", got, c.code)
				}
			})
		}
	}
}

// TestUnaryAllocates checks that counting a call allocates nothing.
func TestUnaryAllocates(t *testing.T) {
	m, err := rpcmetrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	m.Create("s.S", grpc.ServiceInfo{Methods: []grpc.MethodInfo{{Name: "M"}}})
	info := &grpc.UnaryServerInfo{FullMethod: "/s.S/M"}
	handle := func(context.Context, any) (any, error) { return nil, nil }
	if n := testing.AllocsPerRun(100, func() { _, _ = m.Unary(t.Context(), nil, info, handle) }); n > 0 {
		t.Errorf("counting a call allocates %v times", n)
	}
}
