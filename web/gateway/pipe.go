package gateway

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// pipeBytes bounds the bytes that wait in each direction of a connection.
const pipeBytes = 256 << 10

// Listener accepts the connections of its own Client, and no others.
type Listener struct{ *bufconn.Listener }

// Pipe returns a listener inside the process.
func Pipe() *Listener { return &Listener{bufconn.Listen(pipeBytes)} }

// Accept implements net.Listener. Every connection is a *Conn.
func (l *Listener) Accept() (net.Conn, error) { return inProcess(l.Listener.Accept()) }

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return address{} }

// Client returns a client of whatever serves the listener. The functions change the context of each
// call, one after the other, after everybody else. It connects with the first call. The caller closes
// it.
func (l *Listener) Client(outgoing ...func(context.Context) context.Context) (*grpc.ClientConn, error) {
	change := func(ctx context.Context) context.Context {
		for _, f := range outgoing {
			ctx = f(ctx)
		}
		return ctx
	}
	return grpc.NewClient("passthrough:in-process",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inProcess(l.DialContext(ctx)) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(pipeBytes/2),
		grpc.WithWriteBufferSize(pipeBytes/2),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoker(change(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamer(change(ctx), desc, cc, method, opts...)
		}))
}

// Conn is one end of a connection inside the process. Nobody else can read it, and its peer is the
// process itself.
type Conn struct{ net.Conn }

// InProcess marks the connection as one that can be trusted.
func (*Conn) InProcess() {}

// LocalAddr implements net.Conn.
func (*Conn) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (*Conn) RemoteAddr() net.Addr { return address{} }

func inProcess(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &Conn{c}, nil
}

type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return "in-process" }
