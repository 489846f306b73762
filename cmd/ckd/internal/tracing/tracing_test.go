package tracing_test

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/ckd-project/ckd/cmd/ckd/internal/tracing"
)

// spans is a collector that keeps the trace ids and names of the spans it receives.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu   sync.Mutex
	seen map[string][]string // by name
	// Of the last export.
	attributes map[string]string
	headers    metadata.MD
}

func (s *spans) Export(ctx context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headers, _ = metadata.FromIncomingContext(ctx)
	s.attributes = map[string]string{}
	for _, resource := range r.GetResourceSpans() {
		for _, a := range resource.GetResource().GetAttributes() {
			s.attributes[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.seen[span.GetName()] = append(s.seen[span.GetName()], string(span.GetTraceId()))
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// serve runs a gRPC server on loopback and returns its address.
func serve(t *testing.T, register func(*grpc.Server), opts ...grpc.ServerOption) (at string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(opts...)
	register(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return l.Addr().String(), func() {
		s.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

const (
	sampledTrace   = "4bf92f3577b34da6a3ce929d0e0e4736"
	unsampledTrace = "0af7651916cd43dd8448eb211c80319c"
	method         = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
)

// TestSpans checks that the collector receives the spans of calls in sampled traces, a share of the
// others, and none of health checks.
func TestSpans(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for name, c := range map[string]struct {
		sample float64
		want   []int // calls that are seen: of the sampled trace, the unsampled, of none
	}{
		"all":  {1, []int{1, 0, 1}},
		"none": {0, []int{1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got := &spans{seen: map[string][]string{}}
			at, stop := serve(t, func(s *grpc.Server) { collector.RegisterTraceServiceServer(s, got) })
			defer stop()
			tracer := trace(t, tracing.Options{Endpoint: "http://" + at, Sample: c.sample, Version: "1", Logger: zap.NewNop()})
			if err := tracer.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			spansOfMethod := got.seen[method]
			count := func(trace string) (n int) {
				for _, id := range spansOfMethod {
					if hex.EncodeToString([]byte(id)) == trace {
						n++
					}
				}
				return n
			}
			sampled, unsampled := count(sampledTrace), count(unsampledTrace)
			if seen := []int{sampled, unsampled, len(spansOfMethod) - sampled - unsampled}; !slices.Equal(seen, c.want) || len(got.seen) > 1 {
				t.Errorf("calls seen of the three traces: %v, want %v; %v", seen, c.want, got.seen)
			}
		})
	}
}

// TestEnvironment checks that the standard variables say who sends spans, and with which headers.
func TestEnvironment(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "retina")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,team=eye")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1") // the option wins
	got := &spans{seen: map[string][]string{}}
	at, stop := serve(t, func(s *grpc.Server) { collector.RegisterTraceServiceServer(s, got) })
	defer stop()
	tracer := trace(t, tracing.Options{Endpoint: "http://" + at, Sample: 1, Version: "1", Logger: zap.NewNop()})
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"service.name": "retina", "service.version": "1", "team": "eye"}
	if diff := cmp.Diff(want, got.attributes); diff != "" {
		t.Errorf("attributes, want - and got +:\n%s", diff)
	}
	if sent := got.headers.Get("authorization"); !slices.Equal(sent, []string{"secret"}) {
		t.Errorf("authorization %q", sent)
	}
}

// trace calls a server that makes spans, and returns their tracer.
func trace(t *testing.T, o tracing.Options) *tracing.Tracer {
	t.Helper()
	tracer, err := tracing.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server, stop := serve(t, func(s *grpc.Server) {
		healthv1.RegisterHealthServer(s, health.NewServer())
		reflection.Register(s)
	}, grpc.StatsHandler(tracer.Handler()))
	defer stop()
	call(t, server)
	return tracer
}

// call makes a call in a sampled trace, one in another, one in none, and one of health.
func call(t *testing.T, server string) {
	t.Helper()
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	for _, parent := range []string{
		"00-" + sampledTrace + "-00f067aa0ba902b7-01", "00-" + unsampledTrace + "-00f067aa0ba902b7-00", "",
	} {
		ctx := t.Context()
		if parent != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", parent)
		}
		stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = stream.Recv()
		}
	}
}

// TestNoCollector checks that a collector which does not answer delays nothing and is logged, and
// that no attempt to reach it goes on after Close.
func TestNoCollector(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	core, lines := observer.New(zapcore.WarnLevel)
	tracer := trace(t, tracing.Options{Endpoint: "http://127.0.0.1:1", Sample: 1, Logger: zap.New(core)})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := tracer.Close(ctx); err == nil && lines.Len() == 0 {
		t.Error("spans were lost without a word")
	}
}
