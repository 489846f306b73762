package rpcmetrics

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Metrics counts the calls of a server. It may be shared.
type Metrics struct {
	started, handled, received, sent *prometheus.CounterVec
	seconds                          *prometheus.HistogramVec

	adding  sync.Mutex
	methods atomic.Pointer[map[string]*Method] // by full name; replaced under adding
}

// Method holds the series of one method.
type Method struct {
	labels                  []string // values: type, service, method
	started, received, sent prometheus.Counter
	seconds                 prometheus.Observer
	handled                 *prometheus.CounterVec
	byCode                  []prometheus.Counter // counters of handled calls; empty if not created at the start
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
	m.methods.Store(&map[string]*Method{})
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
	for _, of := range info.Methods {
		m.add("/"+service+"/"+of.Name, of.IsClientStream, of.IsServerStream, codes.Unauthenticated+1)
	}
}

// Method returns the series of a method, given its full name as in /package.Service/Method; nil
// if it had no call and Create has not created them.
func (m *Metrics) Method(name string) *Method { return (*m.methods.Load())[name] }

// add returns the series of a method, and creates them if need be; those of status codes from 0 up
// to a number, which is not among them.
func (m *Metrics) add(name string, clientStreams, serverStreams bool, upTo codes.Code) *Method {
	m.adding.Lock()
	defer m.adding.Unlock()
	if found := m.Method(name); found != nil {
		return found
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	labels := []string{Kind(clientStreams, serverStreams), service, method}
	created := &Method{
		labels:   labels,
		started:  m.started.WithLabelValues(labels...),
		received: m.received.WithLabelValues(labels...),
		sent:     m.sent.WithLabelValues(labels...),
		seconds:  m.seconds.WithLabelValues(labels...),
		handled:  m.handled,
	}
	for code := range upTo {
		created.byCode = append(created.byCode, created.withCode(code))
	}
	after := maps.Clone(*m.methods.Load())
	after[name] = created
	m.methods.Store(&after)
	return created
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

// withCode returns the counter of calls that ended with a status code.
func (m *Method) withCode(code codes.Code) prometheus.Counter {
	if int(code) < len(m.byCode) {
		return m.byCode[code]
	}
	return m.handled.WithLabelValues(m.labels[0], m.labels[1], m.labels[2], code.String())
}

// Received counts a message received.
func (m *Method) Received() { m.received.Inc() }

// Sent counts a message sent.
func (m *Method) Sent() { m.sent.Inc() }

// ended counts the end of a call that started at a time.
func (m *Method) ended(err error, start time.Time) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err) // gRPC itself converts it in the same way
	}
	m.withCode(st.Code()).Inc()
	m.seconds.Observe(time.Since(start).Seconds())
}

// Unary implements grpc.UnaryServerInterceptor.
func (m *Metrics) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	start, method := time.Now(), m.Method(info.FullMethod)
	if method == nil {
		method = m.add(info.FullMethod, false, false, 0)
	}
	method.started.Inc()
	method.received.Inc()
	reply, err := handle(ctx, req)
	if err == nil {
		method.sent.Inc()
	}
	method.ended(err, start)
	return reply, err
}

// Stream implements grpc.StreamServerInterceptor.
func (m *Metrics) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	start, method := time.Now(), m.Method(info.FullMethod)
	if method == nil {
		method = m.add(info.FullMethod, info.IsClientStream, info.IsServerStream, 0)
	}
	method.started.Inc()
	err := handle(srv, &countedStream{stream, method})
	method.ended(err, start)
	return err
}

// countedStream counts the messages of a stream.
type countedStream struct {
	grpc.ServerStream
	method *Method
}

func (s *countedStream) RecvMsg(to any) error {
	err := s.ServerStream.RecvMsg(to)
	if err == nil {
		s.method.Received()
	}
	return err
}

func (s *countedStream) SendMsg(from any) error {
	err := s.ServerStream.SendMsg(from)
	if err == nil {
		s.method.Sent()
	}
	return err
}
