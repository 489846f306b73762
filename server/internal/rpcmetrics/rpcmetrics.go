package rpcmetrics

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Metrics counts the calls of a server.
type Metrics struct {
	started, handled, received, sent *prometheus.CounterVec
	seconds                          *prometheus.HistogramVec
}

// New registers the metrics, without any series. An error says what else has their names.
func New(reg prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		labels := append([]string{"grpc_type", "grpc_service", "grpc_method"}, more...)
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		started:  counter("grpc_server_started_total", "RPCs started."),
		handled:  counter("grpc_server_handled_total", "RPCs ended, by status code.", "grpc_code"),
		received: counter("grpc_server_msg_received_total", "Messages received."),
		sent:     counter("grpc_server_msg_sent_total", "Messages sent."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_server_handling_seconds", Help: "Time from the start of an RPC to its end, in seconds.",
			Buckets: []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10},
		}, []string{"grpc_type", "grpc_service", "grpc_method"}),
	}
	for _, c := range []prometheus.Collector{m.started, m.handled, m.received, m.sent, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Create creates the series of every method of a service at zero, with every status code. The
// series of other services appear with their first call.
func (m *Metrics) Create(service string, info grpc.ServiceInfo) {
	for _, method := range info.Methods {
		c := m.call("/"+service+"/"+method.Name, Kind(method.IsClientStream, method.IsServerStream))
		for code := range codes.Unauthenticated + 1 {
			c.handled(code)
		}
	}
}

// Kind returns the kind of a method, as metrics and logs have it.
func Kind(clientStreams, serverStreams bool) string {
	switch {
	case clientStreams && serverStreams:
		return "bidi_stream"
	case clientStreams:
		return "client_stream"
	case serverStreams:
		return "server_stream"
	}
	return "unary"
}

// call holds the series of a call's method.
type call struct {
	metrics                 *Metrics
	kind, service, method   string
	started, received, sent prometheus.Counter
	seconds                 prometheus.Observer
}

// call returns the series of a method, given its full name as in /package.Service/Method.
func (m *Metrics) call(name, kind string) call {
	service, method, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	return call{
		m, kind, service, method, m.started.WithLabelValues(kind, service, method), m.received.WithLabelValues(kind, service, method),
		m.sent.WithLabelValues(kind, service, method), m.seconds.WithLabelValues(kind, service, method),
	}
}

// handled returns the counter of calls that ended with a status code.
func (c *call) handled(code codes.Code) prometheus.Counter {
	return c.metrics.handled.WithLabelValues(c.kind, c.service, c.method, code.String())
}

// ended counts the end of a call that started at a time.
func (c *call) ended(err error, start time.Time) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err) // gRPC itself converts it in the same way
	}
	c.handled(st.Code()).Inc()
	c.seconds.Observe(time.Since(start).Seconds())
}

// Unary implements grpc.UnaryServerInterceptor.
func (m *Metrics) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	start, c := time.Now(), m.call(info.FullMethod, Kind(false, false))
	c.started.Inc()
	c.received.Inc()
	reply, err := handle(ctx, req)
	if err == nil {
		c.sent.Inc()
	}
	c.ended(err, start)
	return reply, err
}

// Stream implements grpc.StreamServerInterceptor.
func (m *Metrics) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	start, c := time.Now(), m.call(info.FullMethod, Kind(info.IsClientStream, info.IsServerStream))
	c.started.Inc()
	err := handle(srv, &countedStream{stream, &c})
	c.ended(err, start)
	return err
}

// countedStream counts the messages of a stream.
type countedStream struct {
	grpc.ServerStream
	call *call
}

func (s *countedStream) RecvMsg(to any) error {
	err := s.ServerStream.RecvMsg(to)
	if err == nil {
		s.call.received.Inc()
	}
	return err
}

func (s *countedStream) SendMsg(from any) error {
	err := s.ServerStream.SendMsg(from)
	if err == nil {
		s.call.sent.Inc()
	}
	return err
}
