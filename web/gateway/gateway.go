package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/httperror"
	"github.com/ckd-project/ckd/oip/rest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
	ckdv1gw "github.com/ckd-project/ckd/web/gateway/internal/ckd/v1"
	"github.com/ckd-project/ckd/web/internal/csrf"
)

// Options connects the gateway to the daemon.
type Options struct {
	// MessageBytes returns the server's limit on one message. Bodies may be bodyFactor times as long.
	MessageBytes func() int
	// Holder returns who is charged with the body of the request that a context belongs to. Nil
	// charges nobody.
	Holder func(context.Context) Holder
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
	// Release gives back bytes that were reserved.
	Release(bytes int64)
}

// bodyFactor bounds how much longer JSON may be than its message. A float32 takes 4 bytes; as 9
// digits, point, sign, exponent and comma it takes 15, and up to 24 from languages that know only
// float64.
const bodyFactor = 6

type gateway struct {
	options Options
	v1      *runtime.ServeMux
	v2      http.Handler
}

// New returns the handler of the API over HTTP. Its calls go to conn, which must add to the context
// of each call who the client is.
func New(conn grpc.ClientConnInterface, o Options) http.Handler {
	conn = &connection{conn, o.MessageBytes}
	g := &gateway{options: o, v1: runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &codec{}),
		runtime.WithIncomingHeaderMatcher(incoming),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithErrorHandler(handleError),
		runtime.WithRoutingErrorHandler(handleRoutingError),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)}
	outcomes := conn
	if o.NoLedger != "" {
		outcomes = noLedger{text: o.NoLedger}
	}
	err := errors.Join(
		ckdv1gw.RegisterUncertaintyServiceHandlerClient(context.Background(), g.v1, ckdv1.NewUncertaintyServiceClient(conn)),
		ckdv1gw.RegisterOutcomeServiceHandlerClient(context.Background(), g.v1, ckdv1.NewOutcomeServiceClient(outcomes)))
	if err != nil {
		panic(err) // the generated code never fails
	}
	g.v2 = rest.New(inferencepb.NewGRPCInferenceServiceClient(conn), rest.Options{MessageBytes: o.MessageBytes, Tensor: o.Tensor})
	return o.Access.HTTP(g, auth.HTTPOptions{
		Need: func(r *http.Request) auth.Need {
			if r.URL.Path == livePath || r.URL.Path == readyPath {
				return auth.NeedNothing
			}
			return auth.NeedIdentity
		},
		Refuse: func(w http.ResponseWriter, r *http.Request, st *status.Status) { answerError(w, r, st.Err()) },
	})
}

// incoming returns the metadata key of a header that the server has a use for.
func incoming(header string) (string, bool) {
	switch key := strings.ToLower(header); key {
	case requestIDHeader, "traceparent", "tracestate":
		return key, true
	}
	return "", false
}

// ServeHTTP implements http.Handler.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.options.Stopping != nil {
		if why := g.options.Stopping(); why != nil {
			answerStopping(w, r, why)
			return
		}
	}
	id := requestID(r.Header.Get(requestIDHeader))
	r.Header.Set(requestIDHeader, id)
	for _, header := range []string{"Traceparent", "Tracestate"} {
		if strings.ContainsFunc(r.Header.Get(header), unprintable) {
			r.Header.Del(header) // metadata cannot hold it
		}
	}
	w.Header().Set(requestIDHeader, id)
	called := false
	r = r.WithContext(context.WithValue(r.Context(), calledKey{}, &called))
	answer := &recorder{ResponseWriter: w}
	held := &held{}
	if g.options.Holder != nil {
		held.holder = g.options.Holder(r.Context())
	}
	defer held.release()
	if err := g.answer(answer, r, held); err != nil {
		answerError(answer, r, err)
	}
	if hook := g.options.Refused; hook != nil && answer.code >= http.StatusBadRequest && !called {
		hook(answer.code, id)
	}
}

// answer reads and checks a request and passes it on, or returns what is wrong with it.
func (g *gateway) answer(w http.ResponseWriter, r *http.Request, held *held) error {
	query, err := url.QueryUnescape(r.URL.RawQuery)
	switch {
	case !utf8.ValidString(r.URL.Path):
		return httperror.Invalid("the path is not UTF-8, expected the percent-encoded bytes of UTF-8")
	case err != nil || !utf8.ValidString(query):
		return httperror.Invalid("the query is not UTF-8, expected the percent-encoded bytes of UTF-8")
	case query != "" && !isV2(r):
		return httperror.Invalid("the URL has a query, expected none: everything is said in the body")
	}
	if err := csrf.Check(r); err != nil {
		return httperror.New(http.StatusForbidden, codes.PermissionDenied, err.Error())
	}
	data, err := g.read(w, r, held)
	if err != nil {
		return err
	}
	r.Body = &body{bytes.NewReader(data), r.URL.Path}
	if !isV2(r) {
		// Even the shortest element, 0 and a comma, becomes four bytes of a message.
		if most := g.options.MessageBytes() / 4; bytes.Count(data, []byte(",")) > most {
			return tooLarge("the body has over %d elements, more than a message of %d bytes can have", most, g.options.MessageBytes())
		}
		r.Header.Set("Content-Type", "application/json") // grpc-gateway logs what it cannot parse
		g.v1.ServeHTTP(w, r)
		return nil
	}
	ctx, err := runtime.AnnotateContext(r.Context(), g.v1, r, "/inference.GRPCInferenceService")
	if err != nil {
		return err
	}
	g.v2.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// read returns the body of a request. The HTTP server limits how long it may take to arrive.
func (g *gateway) read(w http.ResponseWriter, r *http.Request, held *held) ([]byte, error) {
	limit := int64(g.options.MessageBytes()) * bodyFactor
	held.from = http.MaxBytesReader(w, r.Body, limit)
	data, err := io.ReadAll(held)
	var long *http.MaxBytesError
	switch {
	case err == nil:
		// net/http reads on, to notice a client that goes away: the answer has a time of its own.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the recorder of tests has none
		return data, nil
	case errors.As(err, &long):
		return nil, tooLarge("the body is over the limit of %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, httperror.New(http.StatusRequestTimeout, codes.DeadlineExceeded, "the body is too slow")
	case status.Code(err) != codes.Unknown:
		return nil, err // of the holder
	}
	return nil, httperror.Invalid("the body breaks off: " + httperror.Clip(err.Error()))
}

func tooLarge(format string, values ...any) *httperror.Error {
	return httperror.New(http.StatusRequestEntityTooLarge, codes.ResourceExhausted, fmt.Sprintf(format, values...))
}

// held reads a body and charges its bytes as they arrive, until release.
type held struct {
	from   io.Reader
	holder Holder // nil charges nobody
	bytes  int64
}

// Read implements io.Reader.
func (h *held) Read(p []byte) (int, error) {
	n, err := h.from.Read(p)
	if h.holder == nil || n == 0 {
		return n, err
	}
	if refusal := h.holder.Reserve(int64(n)); refusal != nil {
		return 0, refusal
	}
	h.bytes += int64(n)
	return n, err
}

func (h *held) release() {
	if h.bytes > 0 {
		h.holder.Release(h.bytes)
	}
}

// body is the body of a request that has been read, with the path it was sent to.
type body struct {
	*bytes.Reader
	path string
}

// Close implements io.Closer.
func (*body) Close() error { return nil }

// recorder notes the status code of an answer.
type recorder struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter. grpc-gateway would log that a client went away.
func (r *recorder) Write(p []byte) (int, error) {
	_, _ = r.ResponseWriter.Write(p)
	return len(p), nil
}

// Unwrap gives http.ResponseController the writer beneath.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func isV2(r *http.Request) bool { return r.URL.Path == "/v2" || strings.HasPrefix(r.URL.Path, "/v2/") }

// The paths of probes, which are for everybody and are answered while the server stops.
const (
	livePath  = "/v2/health/live"
	readyPath = "/v2/health/ready"
)

// answerStopping answers once the server takes no more calls: the daemon is alive, and wants no
// traffic.
func answerStopping(w http.ResponseWriter, r *http.Request, why error) {
	switch r.URL.Path {
	case livePath:
		answerJSON(w, http.StatusOK, `{"live":true}`)
	case readyPath:
		answerJSON(w, http.StatusServiceUnavailable, `{"ready":false}`)
	default:
		answerError(w, r, why)
	}
}

// answerJSON answers with a line of JSON.
func answerJSON(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n")) // a client that went away needs no answer
}

// answerError answers with an error in the form of the path.
func answerError(w http.ResponseWriter, r *http.Request, err error) {
	if isV2(r) {
		rest.WriteError(w, err)
		return
	}
	st, code := httperror.Of(err)
	httperror.SetHeaders(w.Header(), st)
	text, err := marshal(st.Proto())
	if err != nil { // a text is not UTF-8, or a detail has an unknown type
		text = []byte(`{"code":13,"message":"the error cannot be written as JSON"}`)
	}
	answerJSON(w, code, string(text))
}

func handleError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	answerError(w, r, err)
}

// handleRoutingError answers requests for unknown paths and methods.
func handleRoutingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	reason := codes.NotFound
	if code == http.StatusMethodNotAllowed {
		reason = codes.Unimplemented
	}
	answerError(w, r, httperror.New(code, reason, fmt.Sprintf("nothing answers %s %q, expected one of %s",
		httperror.Clip(r.Method), httperror.Clip(r.URL.Path), paths)))
}

// paths lists what is served here, for messages.
const paths = "GET /v1/models, GET /v1/models/{model}, POST /v1/models/{model}:decompose, POST /v1/outcomes, " +
	"GET /v1/promises, POST /v1/promises:clear, /v2"

// connection carries all calls to the server.
type connection struct {
	grpc.ClientConnInterface
	messageBytes func() int
}

// calledKey is the context key of whether a request has become a call.
type calledKey struct{}

// Invoke implements grpc.ClientConnInterface. It refuses a message that is too large for the server:
// gRPC would say RESOURCE_EXHAUSTED, as for a limit that others have used up.
func (c *connection) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	limit := c.messageBytes()
	if m, ok := args.(proto.Message); ok && proto.Size(m) > limit {
		return tooLarge("the request is a message of %d bytes, over max-message-bytes, %d: send fewer inputs at once", proto.Size(m), limit)
	}
	*ctx.Value(calledKey{}).(*bool) = true
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
}

// noLedger answers every call with the text: the server does not know the service.
type noLedger struct {
	grpc.ClientConnInterface
	text string
}

// Invoke implements grpc.ClientConnInterface.
func (n noLedger) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return status.Error(codes.Unimplemented, n.text)
}

// requestIDHeader names request ids in requests, answers and metadata.
const requestIDHeader = "x-request-id"

// requestID returns the client's own id if a header may hold it, or else a new one.
func requestID(sent string) string {
	if sent != "" && len(sent) <= 128 && !strings.ContainsFunc(sent, unprintable) {
		return sent
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand
	return hex.EncodeToString(random[:])
}

// unprintable reports whether gRPC metadata may not hold a character.
func unprintable(c rune) bool { return c < ' ' || c > '~' }
