package daemon_test

import (
	"context"
	"net"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/internal/config"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// spans is a collector that passes on the names of the spans it receives.
type spans struct {
	collector.UnimplementedTraceServiceServer
	names chan string
}

func (s spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.names <- span.GetName()
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// TestTracing checks that the spans of calls reach the collector, at the latest when the daemon
// stops.
func TestTracing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := spans{names: make(chan string, 100)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, got)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	a := start(t, func(c *config.Config) { c.TraceEndpoint, c.TraceSample = "http://"+l.Addr().String(), 1 })
	client := ckdv1.NewUncertaintyServiceClient(dial(t, a.Targets()[0]))
	if _, err := client.ListModels(t.Context(), &ckdv1.ListModelsRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	select {
	case name := <-got.names:
		if want := "ckd.v1.UncertaintyService/ListModels"; name != want {
			t.Errorf("the span %q, want %q", name, want)
		}
	default:
		t.Error("no span came")
	}
}
