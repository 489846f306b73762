package server

import (
	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/server/internal/rpcmetrics"
)

// messages carries a stream's messages past the interceptors, on the bare stream. Interceptors
// would take the time twice and look up two series for each message, which is more than most
// messages cost otherwise. The context is that of the call, which interceptors have added to.
type messages struct {
	grpc.ServerStream
	bare   grpc.ServerStream
	method *rpcmetrics.Method
	conn   *connection // nil: unknown
}

// newMessages returns the messages of a stream of a method.
func newMessages(stream grpc.ServerStream, method *rpcmetrics.Method) *messages {
	bare := stream
	if c := callOf(stream.Context()); c != nil {
		bare = c.bare
	}
	return &messages{stream, bare, method, connectionOf(stream.Context())}
}

func (m *messages) RecvMsg(to any) error {
	err := m.bare.RecvMsg(to)
	if err == nil {
		m.method.Received()
	}
	return err
}

func (m *messages) SendMsg(from any) error {
	err := m.bare.SendMsg(from)
	if err == nil {
		m.method.Sent()
		m.conn.moved()
	}
	return err
}
