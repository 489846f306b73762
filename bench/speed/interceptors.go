package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// commonInterceptors returns what ckd's interceptors do, as one would first write it: counters and
// a histogram of calls, a request id, a log line at the end of each call, which is written at the
// level debug and so left out, and recovery from panics.
func commonInterceptors() ([]grpc.ServerOption, error) {
	log, err := zap.NewProduction()
	if err != nil {
		return nil, err
	}
	calls := newCallMetrics()
	logger := logging.LoggerFunc(func(_ context.Context, _ logging.Level, message string, fields ...any) {
		if entry := log.Check(zap.DebugLevel, message); entry != nil {
			entry.Write(zap.Any("fields", fields))
		}
	})
	finished := logging.WithLogOnEvents(logging.FinishCall)
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(interceptors.UnaryServerInterceptor(calls), requestIDUnary, logging.UnaryServerInterceptor(logger, finished),
			recovery.UnaryServerInterceptor()),
		grpc.ChainStreamInterceptor(interceptors.StreamServerInterceptor(calls), requestIDStream, logging.StreamServerInterceptor(logger, finished),
			recovery.StreamServerInterceptor()),
	}, nil
}

// callMetrics counts calls and their messages, their series found by their labels.
type callMetrics struct {
	started, handled, received, sent *prometheus.CounterVec
	seconds                          *prometheus.HistogramVec
}

func newCallMetrics() *callMetrics {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name}, labels)
	}
	c := &callMetrics{
		started: counter("started", labels...), received: counter("received", labels...), sent: counter("sent", labels...),
		handled: counter("handled", append(labels, "grpc_code")...),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "seconds"}, labels),
	}
	prometheus.NewRegistry().MustRegister(c.started, c.handled, c.received, c.sent, c.seconds)
	return c
}

// ServerReporter counts the start of a call.
func (c *callMetrics) ServerReporter(ctx context.Context, meta interceptors.CallMeta) (interceptors.Reporter, context.Context) {
	labels := []string{string(meta.Typ), meta.Service, meta.Method}
	c.started.WithLabelValues(labels...).Inc()
	return &callReporter{c, labels}, ctx
}

// callReporter counts the messages and the end of a call.
type callReporter struct {
	calls  *callMetrics
	labels []string
}

func (r *callReporter) PostCall(err error, took time.Duration) {
	r.calls.handled.WithLabelValues(append(r.labels, status.Code(err).String())...).Inc()
	r.calls.seconds.WithLabelValues(r.labels...).Observe(took.Seconds())
}

func (r *callReporter) PostMsgSend(any, error, time.Duration) {
	r.calls.sent.WithLabelValues(r.labels...).Inc()
}

func (r *callReporter) PostMsgReceive(any, error, time.Duration) {
	r.calls.received.WithLabelValues(r.labels...).Inc()
}

// withRequestID gives log lines the client's request id, or a new one.
func withRequestID(ctx context.Context) (context.Context, metadata.MD) {
	id := ""
	if sent := metadata.ValueFromIncomingContext(ctx, "x-request-id"); len(sent) > 0 {
		id = sent[0]
	} else {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails: crypto/rand
		id = hex.EncodeToString(random[:])
	}
	return logging.InjectFields(ctx, logging.Fields{"request_id", id}), metadata.Pairs("x-request-id", id)
}

func requestIDUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, answer := withRequestID(ctx)
	if err := grpc.SetHeader(ctx, answer); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func requestIDStream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, answer := withRequestID(s.Context())
	if err := s.SetHeader(answer); err != nil {
		return err
	}
	return handler(srv, &middleware.WrappedServerStream{ServerStream: s, WrappedContext: ctx})
}
