package gateway

import (
	"context"
	"fmt"
	"log"
	"math"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/inference/rest"
	handlers "github.com/ckd-project/ckd/internal/gateway/ckd/v1"
	"github.com/ckd-project/ckd/internal/httperror"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// Options bound what clients can make the gateway hold. What is zero takes its default.
type Options struct {
	// MessageBytes is the server's limit on one message: 16 MiB by default. Bodies, and lines of streams, may be
	// BodyFactor times as long.
	MessageBytes int
	// BodyBytes is what the bodies of all requests may hold at one time, 256 MiB by default. What they decode to takes
	// about as much again.
	BodyBytes int64
	// ReadTimeout is how long 64 KiB of a body, or what is left of it, may take to arrive: 30 s by default. Streams may
	// pause for longer between lines.
	ReadTimeout time.Duration
	// WriteTimeout is how long a client may leave an answer unread: 30 s by default.
	WriteTimeout time.Duration
	// Tensor is that of rest.Options.
	Tensor func(model string) string
	// Refused, if given, is told the HTTP status and the id of every request that is answered with an error before any
	// call, of which the server's metrics and log know nothing.
	Refused func(code int, requestID string)
}

// BodyFactor is how much longer JSON may be than the message that it says: a float32 has 4 bytes, and 9 digits, point,
// sign, exponent and comma make 15; languages that know float64 alone write up to 24.
const BodyFactor = 6

// bodyLimit is how long a body, or a line of a stream, may be.
func (o *Options) bodyLimit() int64 { return int64(o.MessageBytes) * BodyFactor }

// New is the handler of all that the daemon answers over HTTP. The calls go to conn, which adds to the context of each
// who the client is.
func New(conn grpc.ClientConnInterface, o Options) http.Handler {
	o.MessageBytes = orDefault(o.MessageBytes, 16<<20)
	o.BodyBytes = orDefault(o.BodyBytes, 256<<20)
	o.ReadTimeout = orDefault(o.ReadTimeout, 30*time.Second)
	o.WriteTimeout = orDefault(o.WriteTimeout, 30*time.Second)
	g := &gateway{options: o}
	conn = &connection{conn, o.MessageBytes}
	g.v1 = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, codec{}),
		runtime.WithIncomingHeaderMatcher(noHeader),
		runtime.WithOutgoingHeaderMatcher(noHeader),
		runtime.WithOutgoingTrailerMatcher(noHeader),
		runtime.WithErrorHandler(handleError),
		runtime.WithStreamErrorHandler(handleStreamError),
		runtime.WithRoutingErrorHandler(handleRoutingError),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisableChunkedEncoding(), // net/http knows when
	)
	if err := handlers.RegisterUncertaintyServiceHandlerClient(context.Background(), g.v1, client{ckdv1.NewUncertaintyServiceClient(conn)}); err != nil {
		panic(err) // the generated code never fails
	}
	g.v2 = rest.New(inferencepb.NewGRPCInferenceServiceClient(conn), rest.Options{MessageBytes: o.MessageBytes, BodyLimit: o.bodyLimit(), Tensor: o.Tensor})
	return g
}

// NewServer is an HTTP server for a handler of New, or one around it: without limits on whole requests and answers,
// since streams last, and with HTTP/2 also where there is no TLS.
func NewServer(handler http.Handler, errorLog *log.Logger) *http.Server {
	return newServer(handler, errorLog, unreadTimeout)
}

// unreadTimeout is how long a body may take to arrive that the handler does not read.
const unreadTimeout = 30 * time.Second

func newServer(handler http.Handler, errorLog *log.Logger, unread time.Duration) *http.Server {
	s := &http.Server{
		Handler:           limitUnread(handler, unread),
		ErrorLog:          errorLog,
		ReadHeaderTimeout: 5 * time.Second,
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

// limitUnread sets the deadline of bodies that the handler leaves unread: net/http reads them before it sends the answer,
// and would wait for a client that withholds one. Whoever reads a body sets deadlines of their own.
func limitUnread(handler http.Handler, unread time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Where no body comes, a deadline would end the read by which net/http notices that the client went away.
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unread)) // the server's writers all have it
		}
		handler.ServeHTTP(w, r)
	})
}

type gateway struct {
	options Options
	v1      *runtime.ServeMux
	v2      http.Handler
	held    atomic.Int64 // bytes of bodies
}

// ServeHTTP implements http.Handler.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall(g, w, r)
	defer c.end()
	fault := c.prepare(r)
	if fault == nil && !isV2(r) {
		fault = checkV1(c.writer, r)
	}
	if fault != nil {
		WriteError(c.writer, r, fault)
		return
	}
	if isV2(r) {
		r = r.WithContext(c.context)
		r.Body = c.body
		g.v2.ServeHTTP(c.writer, r)
		return
	}
	// The generated handlers would pass on who connected, as what the client says it is.
	inner := r.WithContext(c.context)
	inner.Header = http.Header{}
	inner.Host, inner.RemoteAddr = "", ""
	escaped := *r.URL
	escaped.RawPath = r.URL.EscapedPath() // without it they would unescape the path a second time
	inner.URL = &escaped
	inner.Body = http.NoBody
	if r.Method == http.MethodPost {
		inner.Body = c.body
	}
	c.unlimited = r.Method == http.MethodPost && r.URL.Path == streamPath
	if c.unlimited {
		if fault := c.openStream(r); fault != nil {
			WriteError(c.writer, r, fault)
			return
		}
	}
	g.v1.ServeHTTP(c.writer, inner)
}

// WriteError answers a request with an error in the form of its path, for handlers in front of this one.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	if isV2(r) {
		rest.WriteError(w, err)
		return
	}
	writeError(w, err)
}

func isV2(r *http.Request) bool { return r.URL.Path == "/v2" || strings.HasPrefix(r.URL.Path, "/v2/") }

// What rest.yaml says of the paths that are posted to.
const (
	streamPath    = "/v1/stream"
	decomposeVerb = ":decompose"
)

// checkV1 refuses what the generated handlers would pass over.
func checkV1(w http.ResponseWriter, r *http.Request) *fault {
	if r.Method != http.MethodPost && strings.HasSuffix(r.URL.Path, decomposeVerb) {
		return wrongMethod(w, r) // they would take the verb for a part of the model's name
	}
	if r.URL.RawQuery != "" {
		return httperror.New(http.StatusBadRequest, codes.InvalidArgument, "the URL has a query, expected none: everything is said in the body")
	}
	if r.Method != http.MethodPost {
		return nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return httperror.New(http.StatusUnsupportedMediaType, codes.InvalidArgument,
			fmt.Sprintf("Content-Encoding is %q, expected none", httperror.Clip(encoding)))
	}
	sent := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(sent)
	switch {
	case sent == "", err == nil && media == "application/json":
	case err == nil && media == lineMedia && r.URL.Path == streamPath:
	default:
		return httperror.New(http.StatusUnsupportedMediaType, codes.InvalidArgument,
			fmt.Sprintf("Content-Type is %q, expected application/json, as curl --json sends it", httperror.Clip(sent)))
	}
	return nil
}

// connection is the way of all calls to the server.
type connection struct {
	grpc.ClientConnInterface
	messageBytes int
}

// callOptions leave the bounds to the server.
var callOptions = []grpc.CallOption{grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)}

// Invoke implements grpc.ClientConnInterface.
func (c *connection) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	if m, ok := args.(proto.Message); ok {
		if fault := checkSize("the request", m, c.messageBytes); fault != nil {
			return fault
		}
	}
	return called(ctx, c.ClientConnInterface.Invoke(ctx, method, args, reply, append(options, callOptions...)...))
}

// NewStream implements grpc.ClientConnInterface.
func (c *connection) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, d, method, append(options, callOptions...)...)
	return s, called(ctx, err)
}

// checkSize returns the fault of a message that the server would refuse for its size: gRPC would say RESOURCE_EXHAUSTED,
// as of a limit that others have used up.
func checkSize(what string, m proto.Message, limit int) *fault {
	if size := proto.Size(m); size > limit {
		return httperror.New(http.StatusRequestEntityTooLarge, codes.ResourceExhausted,
			fmt.Sprintf("%s is a message of %d bytes, over the limit of %d: send fewer inputs at once", what, size, limit))
	}
	return nil
}

// called notes that the server was asked, and is what went wrong.
func called(ctx context.Context, err error) error {
	call := callOf(ctx)
	call.called.Store(true)
	if fault := call.withdrawn(err); fault != nil {
		return fault
	}
	return err
}

func noHeader(string) (string, bool) { return "", false }

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
