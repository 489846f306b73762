package server

import (
	"context"
	"strings"
	"sync/atomic"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// The interceptors look after calls, and after every message of a stream too:
// each takes the time twice, and looks two series up. That is more than most
// messages cost otherwise. So the messages of passes pass them by, on the bare
// stream, and are counted here.

// bareKey is the context's key of the bare stream.
type bareKey struct{}

// bareStream is the outermost interceptor: it makes the stream known as it is.
func bareStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, &streamWithBare{stream, context.WithValue(stream.Context(), bareKey{}, stream)})
}

type streamWithBare struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *streamWithBare) Context() context.Context { return s.ctx }

// messages is a stream's messages, on its way round the interceptors. Its
// context is that of the call, which they have added to.
type messages struct {
	grpc.ServerStream
	bare    grpc.ServerStream
	metrics *rpcMetrics
	conn    *connection // nil: unknown
}

func (s *Server) messages(stream grpc.ServerStream) *messages {
	bare, ok := stream.Context().Value(bareKey{}).(grpc.ServerStream)
	if !ok {
		bare = stream
	}
	return &messages{stream, bare, s.rpc, connectionOf(stream.Context())}
}

func (m *messages) RecvMsg(to any) error {
	err := m.bare.RecvMsg(to)
	if err == nil {
		m.metrics.received.Add(1)
	}
	return err
}

func (m *messages) SendMsg(from any) error {
	err := m.bare.SendMsg(from)
	if err == nil {
		m.metrics.sent.Add(1)
		m.conn.moved()
	}
	return err
}

// rpcMetrics is the middleware's metrics of calls, with the messages counted here.
type rpcMetrics struct {
	*grpcprom.ServerMetrics
	received, sent atomic.Int64
}

// own lists the methods of ckd.v1 alone. Their series exist from the start; those of
// other services appear with their first call, as there are too many to begin with.
type own struct{ *grpc.Server }

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (o own) GetServiceInfo() map[string]grpc.ServiceInfo {
	name := ckdv1.UncertaintyService_ServiceDesc.ServiceName
	return map[string]grpc.ServiceInfo{name: o.Server.GetServiceInfo()[name]}
}

// Collect implements prometheus.Collector.
func (m *rpcMetrics) Collect(to chan<- prometheus.Metric) {
	all := make(chan prometheus.Metric)
	go func() {
		m.ServerMetrics.Collect(all)
		close(all)
	}()
	for metric := range all {
		switch of := metric.Desc().String(); {
		case strings.Contains(of, `"grpc_server_msg_received_total"`):
			metric = withMessages{metric, float64(m.received.Load())}
		case strings.Contains(of, `"grpc_server_msg_sent_total"`):
			metric = withMessages{metric, float64(m.sent.Load())}
		}
		to <- metric
	}
}

// withMessages is a counter to which, if it is the stream's, messages are added.
type withMessages struct {
	prometheus.Metric
	messages float64
}

// Write implements prometheus.Metric.
func (m withMessages) Write(to *dto.Metric) error {
	if err := m.Metric.Write(to); err != nil {
		return err
	}
	for _, label := range to.GetLabel() {
		if label.GetName() == "grpc_method" && label.GetValue() == streamName {
			*to.Counter.Value += m.messages
		}
	}
	return nil
}
