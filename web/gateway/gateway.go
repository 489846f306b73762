package gateway

import (
	"cmp"
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
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/httperror"
	"github.com/ckd-project/ckd/oip/rest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server/auth"
	handlers "github.com/ckd-project/ckd/web/gateway/internal/ckd/v1"
)

// Options bounds what clients can make the gateway hold, and connects it to the daemon. A zero
// field takes its default.
type Options struct {
	// MessageBytes returns the server's limit on one message, 512 KiB by default. It is asked for every
	// message. Bodies, and lines of streams, may be BodyFactor times as long.
	MessageBytes func() int
	// BodyBytes bounds what the bodies of all requests hold at one time, 128 MiB by default. The
	// messages decoded from them take about as much again.
	BodyBytes int64
	// Holder returns who is charged with the body of the request that a context belongs to. Nil
	// charges all bodies to BodyBytes.
	Holder func(context.Context) Holder
	// ReadTimeout bounds how long 64 KiB of a body, or what is left of it, may take to arrive: 30 s
	// by default. Streams may pause for longer between lines.
	ReadTimeout time.Duration
	// BodyTimeout bounds how long a whole body may take to arrive: 15 s by default. The bodies of
	// streams may take as long as they like.
	BodyTimeout time.Duration
	// WriteTimeout bounds how long a client may leave an answer unread: 30 s by default.
	WriteTimeout time.Duration
	// Access admits requests; nil admits all.
	Access *auth.Store
	// Stopping returns why the server takes no more calls, or nil. The gateway then answers
	// requests with that error, except for probes. It may be nil.
	Stopping func() error
	// Tensor is passed on to rest.Options.
	Tensor func(model string) string
	// NoLedger answers calls about outcomes where the daemon keeps no ledger; empty where it does.
	NoLedger string
	// Refused is called with the HTTP status and the id of every request that is answered with an
	// error before any call: the server's metrics and log do not have these. It may be nil.
	Refused func(code int, requestID string)
}

// Holder is charged with bodies of requests.
type Holder interface {
	// Reserve charges bytes, or returns the status that refuses them.
	Reserve(bytes int64) error
	// Add charges bytes even if there is no room for them.
	Add(bytes int64)
	// Release gives back bytes that were reserved or added.
	Release(bytes int64)
}

// sharedHolder is charged with all bodies.
type sharedHolder struct {
	limit int64
	held  atomic.Int64
}

// Reserve implements Holder.
func (h *sharedHolder) Reserve(bytes int64) error {
	if h.held.Add(bytes) <= h.limit {
		return nil
	}
	h.held.Add(-bytes)
	return httperror.New(http.StatusTooManyRequests, codes.ResourceExhausted,
		fmt.Sprintf("the bodies of all requests are over the budget of %d bytes", h.limit)).WithRetry()
}

// Add implements Holder.
func (h *sharedHolder) Add(bytes int64) { h.held.Add(bytes) }

// Release implements Holder.
func (h *sharedHolder) Release(bytes int64) { h.held.Add(-bytes) }

// BodyFactor bounds how much longer JSON may be than its message. A float32 takes 4 bytes; as 9
// digits, point, sign, exponent and comma it takes 15, and up to 24 from languages that know only
// float64.
const BodyFactor = 6

// bodyLimit returns how long a body, or a line of a stream, may be.
func (o *Options) bodyLimit() int64 { return int64(o.MessageBytes()) * BodyFactor }

// New returns the handler of the API over HTTP. Its calls go to conn, which must add to the context
// of each call who the client is.
func New(conn grpc.ClientConnInterface, o Options) http.Handler {
	if o.MessageBytes == nil {
		o.MessageBytes = func() int { return 512 << 10 }
	}
	o.BodyBytes = cmp.Or(o.BodyBytes, 128<<20)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 30*time.Second)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 15*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	g := &gateway{options: o, bodies: sharedHolder{limit: o.BodyBytes}}
	if o.Holder == nil {
		g.options.Holder = func(context.Context) Holder { return &g.bodies }
	}
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
		runtime.WithDisableChunkedEncoding(), // net/http decides that
	)
	if err := handlers.RegisterUncertaintyServiceHandlerClient(context.Background(), g.v1, client{ckdv1.NewUncertaintyServiceClient(conn)}); err != nil {
		panic(err) // the generated code never fails
	}
	outcomes := conn
	if o.NoLedger != "" {
		outcomes = noLedger(o.NoLedger)
	}
	if err := handlers.RegisterOutcomeServiceHandlerClient(context.Background(), g.v1, ckdv1.NewOutcomeServiceClient(outcomes)); err != nil {
		panic(err) // as above
	}
	g.v2 = rest.New(inferencepb.NewGRPCInferenceServiceClient(conn), rest.Options{MessageBytes: o.MessageBytes, BodyLimit: o.bodyLimit, Tensor: o.Tensor})
	return o.Access.HTTP(o.untilStopping(g), auth.HTTPOptions{Need: need, Refuse: refuse})
}

// noLedger answers every call with the text: the server does not know the service.
type noLedger string

func (n noLedger) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return status.Error(codes.Unimplemented, string(n))
}

func (n noLedger) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, string(n))
}

// NewServer returns an HTTP server for the handler of New. It has no limits on whole requests and
// answers, since streams last, and it speaks HTTP/2 without TLS too.
func NewServer(handler http.Handler, errorLog *log.Logger) *http.Server {
	return newServer(handler, errorLog, unreadTimeout)
}

// unreadTimeout bounds how long a body may take to arrive that the handler does not read.
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

// limitUnread sets a deadline for bodies that the handler leaves unread. net/http reads such a body
// before it sends the answer, and would wait for a client that withholds it. Handlers that read the
// body set their own deadlines.
func limitUnread(handler http.Handler, unread time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// net/http notices by a read that the client went away; without a body a deadline would end that read.
		if r.ContentLength != 0 {
			c := http.NewResponseController(w)
			_ = c.SetReadDeadline(time.Now().Add(unread)) // every writer of the server supports it
			if r.ProtoMajor == 2 {
				// The timer of a stream that the client has reset already would keep the stream until then.
				defer func() { _ = c.SetReadDeadline(time.Time{}) }()
			}
		}
		handler.ServeHTTP(w, r)
	})
}

type gateway struct {
	options Options
	v1      *runtime.ServeMux
	v2      http.Handler
	bodies  sharedHolder // of requests without a Holder of their own
}

// ServeHTTP implements http.Handler.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall(g, w, r)
	defer c.end()
	refusal := c.prepare(r)
	if refusal == nil && !isV2(r) {
		refusal = checkV1(c.writer, r)
	}
	if refusal != nil {
		answerError(c.writer, r, refusal)
		return
	}
	if isV2(r) {
		r = r.WithContext(c.context)
		r.Body = c.body
		g.v2.ServeHTTP(c.writer, r)
		return
	}
	// The generated handlers would pass on the peer as if the client had named itself.
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
		if refusal := c.openStream(r); refusal != nil {
			answerError(c.writer, r, refusal)
			return
		}
	}
	g.v1.ServeHTTP(c.writer, inner)
}

// answerError answers a request with an error in the form of its path.
func answerError(w http.ResponseWriter, r *http.Request, err error) {
	if isV2(r) {
		rest.WriteError(w, err)
		return
	}
	writeError(w, err)
}

func isV2(r *http.Request) bool { return r.URL.Path == "/v2" || strings.HasPrefix(r.URL.Path, "/v2/") }

// The paths of POST requests in rest.yaml.
const (
	streamPath    = "/v1/stream"
	decomposeVerb = ":decompose"
	outcomesPath  = "/v1/outcomes"
	clearPath     = "/v1/promises:clear"
)

// isPost reports whether a path is for POST requests alone.
func isPost(path string) bool {
	return path == streamPath || strings.HasSuffix(path, decomposeVerb) || path == outcomesPath || path == clearPath
}

// checkV1 refuses requests that the generated handlers would misread.
func checkV1(w http.ResponseWriter, r *http.Request) *httperror.Error {
	if r.Method != http.MethodPost && strings.HasSuffix(r.URL.Path, decomposeVerb) {
		return wrongMethod(w, r) // they would read the verb as part of the model's name
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

// connection carries all calls to the server.
type connection struct {
	grpc.ClientConnInterface
	messageBytes func() int
}

// callOptions lift the limits of the gRPC client: the server has its own.
var callOptions = []grpc.CallOption{grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)}

// Invoke implements grpc.ClientConnInterface.
func (c *connection) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	if m, ok := args.(proto.Message); ok {
		if refusal := checkSize("the request", m, c.messageBytes()); refusal != nil {
			return refusal
		}
	}
	return called(ctx, c.ClientConnInterface.Invoke(ctx, method, args, reply, append(options, callOptions...)...))
}

// NewStream implements grpc.ClientConnInterface.
func (c *connection) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, d, method, append(options, callOptions...)...)
	return s, called(ctx, err)
}

// checkSize refuses a message that is too large for the server. gRPC would say RESOURCE_EXHAUSTED,
// as for a limit that others have used up.
func checkSize(what string, m proto.Message, limit int) *httperror.Error {
	if size := proto.Size(m); size > limit {
		return httperror.New(http.StatusRequestEntityTooLarge, codes.ResourceExhausted,
			fmt.Sprintf("%s is a message of %d bytes, over max-message-bytes, %d: send fewer inputs at once", what, size, limit))
	}
	return nil
}

// called notes that the call has reached the server, and returns what went wrong with it.
func called(ctx context.Context, err error) error {
	call := callOf(ctx)
	call.called.Store(true)
	if refusal := call.withdrawn(err); refusal != nil {
		return refusal
	}
	return err
}

func noHeader(string) (string, bool) { return "", false }
