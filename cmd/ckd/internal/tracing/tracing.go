package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc/stats"
)

// Options says where spans go, and how many.
type Options struct {
	// Endpoint is the URL of a collector that takes OTLP over gRPC: http://HOST:PORT for plaintext,
	// or https://HOST:PORT.
	Endpoint string
	// Sample is the share of calls that are sampled among those without a trace of their own.
	Sample float64
	// Version names the build of the daemon in the spans.
	Version string
	Logger  *zap.Logger
}

// Tracer makes spans of calls and sends them to a collector.
type Tracer struct {
	exporter sdktrace.SpanExporter
	provider *sdktrace.TracerProvider
}

// New starts a tracer. The environment's OTEL_EXPORTER_OTLP_* say more about the exporter, such as
// headers, and OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES about the daemon. Values that cannot be
// used must have been removed: see [config.CleanEnvironment]. If the collector cannot be reached, the
// tracer drops spans and logs a line.
func New(o Options) (*Tracer, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Logger.Warn("spans were not sent", zap.Error(err))
	}))
	exporter, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithEndpointURL(o.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("tracing to %s: %w", o.Endpoint, err)
	}
	daemon, err := resource.Merge(resource.NewSchemaless(
		attribute.String("service.name", "ckd"), attribute.String("service.version", o.Version),
	), resource.Environment())
	if err != nil {
		return nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return &Tracer{exporter, sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(daemon),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Sample))),
	)}, nil
}

// Handler returns a handler that makes a span of every call, except the frequent health checks.
func (t *Tracer) Handler() stats.Handler {
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
	)
}

// Close sends the spans that are left, until ctx ends. Then it ends all attempts to reach the
// collector, which the provider would continue in the background.
func (t *Tracer) Close(ctx context.Context) error {
	err := t.provider.Shutdown(ctx)
	if err != nil {
		_ = t.exporter.Shutdown(ctx) // err says that spans are lost
	}
	return err
}
