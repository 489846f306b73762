package gateway

import (
	"context"
	"log"
	"math"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// NewServer returns an HTTP server for the handler of New, which speaks HTTP/2 without TLS too. A
// request may take the time of body to arrive, and its answer as long as that of answer.
func NewServer(handler http.Handler, errorLog *log.Logger, body, answer time.Duration) *http.Server {
	s := &http.Server{
		Handler:           handler,
		ErrorLog:          errorLog,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       body,
		WriteTimeout:      body + answer, // counts from the end of the headers
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 16,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 250, SendPingTimeout: time.Minute, PingTimeout: 20 * time.Second},
		Protocols:         new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// pipeBytes bounds the bytes that wait in each direction of a connection inside the process.
const pipeBytes = 256 << 10

// Pipe returns a listener inside the process, and the only client that reaches it. outgoing changes
// the context of each call. The client connects with the first call, has no limits on messages, since
// the server has its own, and is for unary calls. The caller closes both.
func Pipe(outgoing func(context.Context) context.Context) (net.Listener, *grpc.ClientConn, error) {
	l := bufconn.Listen(pipeBytes)
	conn, err := grpc.NewClient("passthrough:in-process",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inProcess(l.DialContext(ctx)) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(pipeBytes/2),
		grpc.WithWriteBufferSize(pipeBytes/2),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoker(outgoing(ctx), method, req, reply, cc, options...)
		}))
	return pipe{l}, conn, err
}

type pipe struct{ *bufconn.Listener }

// Accept implements net.Listener.
func (p pipe) Accept() (net.Conn, error) { return inProcess(p.Listener.Accept()) }

// pipeConn is one end of a connection inside the process, which nobody else can read.
type pipeConn struct{ net.Conn }

// InProcess marks the connection as one that can be trusted.
func (pipeConn) InProcess() {}

func inProcess(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return pipeConn{c}, nil
}
