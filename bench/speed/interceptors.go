package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
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
		grpc.ChainUnaryInterceptor(calls.unary, requestIDUnary, logging.UnaryServerInterceptor(logger, finished),
			recovery.UnaryServerInterceptor()),
		grpc.ChainStreamInterceptor(calls.stream, requestIDStream, logging.StreamServerInterceptor(logger, finished),
			recovery.StreamServerInterceptor()),
	}, nil
}

// callMetrics counts calls, their series found by their labels.
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

func (c *callMetrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	begun := time.Now()
	service, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	c.started.WithLabelValues("unary", service, method).Inc()
	c.received.WithLabelValues("unary", service, method).Inc()
	reply, err := handler(ctx, req)
	c.sent.WithLabelValues("unary", service, method).Inc()
	c.handled.WithLabelValues("unary", service, method, status.Code(err).String()).Inc()
	c.seconds.WithLabelValues("unary", service, method).Observe(time.Since(begun).Seconds())
	return reply, err
}

func (c *callMetrics) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	begun := time.Now()
	service, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	c.started.WithLabelValues("bidi_stream", service, method).Inc()
	err := handler(srv, &countedStream{s, c, service, method})
	c.handled.WithLabelValues("bidi_stream", service, method, status.Code(err).String()).Inc()
	c.seconds.WithLabelValues("bidi_stream", service, method).Observe(time.Since(begun).Seconds())
	return err
}

// countedStream counts its messages.
type countedStream struct {
	grpc.ServerStream
	calls           *callMetrics
	service, method string
}

func (s *countedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.calls.received.WithLabelValues("bidi_stream", s.service, s.method).Inc()
	}
	return err
}

func (s *countedStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.calls.sent.WithLabelValues("bidi_stream", s.service, s.method).Inc()
	}
	return err
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
