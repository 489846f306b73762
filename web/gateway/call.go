package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/httperror"
	"github.com/ckd-project/ckd/web/internal/csrf"
)

// call is one request, from its headers to the end of its answer.
type call struct {
	gateway *gateway
	control *http.ResponseController
	context context.Context
	cancel  context.CancelFunc
	body    *body
	writer  *writer

	unlimited bool        // the body is that of a stream
	model     string      // named by the body; the path names one too
	stream    *stream     // nil unless the call is DecomposeStream
	called    atomic.Bool // the call has reached the server
}

type callKey struct{}

// callOf returns the call that a context belongs to, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func newCall(g *gateway, w http.ResponseWriter, r *http.Request) *call {
	c := &call{gateway: g, control: http.NewResponseController(w)}
	c.context, c.cancel = context.WithCancel(context.WithValue(r.Context(), callKey{}, c))
	c.body = &body{call: c, from: r.Body, holder: g.options.Holder(r.Context())}
	c.writer = &writer{ResponseWriter: w, call: c}
	return c
}

// prepare checks the headers that matter for every call and puts them into its context.
func (c *call) prepare(r *http.Request) *httperror.Error {
	pairs := []string{requestIDHeader, requestID(r.Header.Get(requestIDHeader))}
	c.writer.Header().Set(requestIDHeader, pairs[1])
	for _, header := range []string{"traceparent", "tracestate"} {
		if value := r.Header.Get(header); value != "" && isPrintable(value) {
			pairs = append(pairs, header, value)
		}
	}
	c.context = metadata.NewOutgoingContext(c.context, metadata.Pairs(pairs...))
	if !utf8.ValidString(r.URL.Path) {
		return httperror.Invalid("the path is not UTF-8, expected the percent-encoded bytes of UTF-8")
	}
	if query, err := url.QueryUnescape(r.URL.RawQuery); err != nil || !utf8.ValidString(query) {
		return httperror.Invalid("the query is not UTF-8, expected the percent-encoded bytes of UTF-8")
	}
	if err := csrf.Check(r); err != nil {
		return httperror.New(http.StatusForbidden, codes.PermissionDenied, err.Error())
	}
	if text := r.Header.Get("Grpc-Timeout"); text != "" {
		timeout, ok := parseTimeout(text)
		if !ok {
			return httperror.New(http.StatusBadRequest, codes.InvalidArgument,
				"grpc-timeout is "+strconv.Quote(httperror.Clip(text))+", expected up to 8 digits and one of H M S m u n")
		}
		inner, cancel := context.WithTimeout(c.context, timeout)
		outer := c.cancel
		c.context, c.cancel = inner, func() { cancel(); outer() }
	}
	return nil
}

// withdrawn returns the status of a gRPC call that ended because access was withdrawn, or nil if it
// ended otherwise.
func (c *call) withdrawn(err error) *httperror.Error {
	if status.Code(err) != codes.Canceled {
		return nil
	}
	cause := context.Cause(c.context)
	switch status.Code(cause) {
	case codes.Unauthenticated, codes.PermissionDenied:
		st, code := httperror.Of(cause)
		return &httperror.Error{HTTP: code, Status: st}
	}
	return nil
}

// end waits for what the request started, and releases what it holds.
func (c *call) end() {
	if c.stream != nil {
		c.stream.end()
	}
	c.cancel()
	c.body.release(c.body.held.Load())
	if hook := c.gateway.options.Refused; hook != nil && c.writer.code >= http.StatusBadRequest && !c.called.Load() {
		hook(c.writer.code, c.writer.Header().Get(requestIDHeader))
	}
}

// requestIDHeader names request ids in requests, answers and metadata.
const requestIDHeader = "x-request-id"

// requestID returns the client's own id if a header may hold it, or else a new one.
func requestID(sent string) string {
	if sent != "" && len(sent) <= 128 && isPrintable(sent) {
		return sent
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand
	return hex.EncodeToString(random[:])
}

// isPrintable reports whether gRPC metadata may hold a text.
func isPrintable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// timeoutUnits maps the last letter of grpc-timeout to its unit.
var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// parseTimeout parses gRPC's form of a timeout.
func parseTimeout(text string) (time.Duration, bool) {
	if len(text) < 2 || len(text) > 9 {
		return 0, false
	}
	unit, ok := timeoutUnits[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 63)
	if !ok || err != nil {
		return 0, false
	}
	if int64(n) > math.MaxInt64/int64(unit) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * unit, true
}

// writer writes an answer that its client must read in time. If the client does not, the call ends
// and further writes are dropped.
type writer struct {
	http.ResponseWriter
	call   *call
	code   int // status code of the answer
	broken bool
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(code int) {
	if s := w.call.stream; s != nil && s.endedBy() != nil {
		code = s.endedBy().HTTP // the generated handler only knows the gRPC status
	}
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	w.do(func() error {
		_, err := w.ResponseWriter.Write(p)
		return err
	})
	return len(p), nil
}

// FlushError flushes for http.ResponseController.
func (w *writer) FlushError() error {
	w.do(w.call.control.Flush)
	return nil
}

// Unwrap gives http.ResponseController the writer beneath.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// do calls write with a deadline, and ends the call if it fails.
func (w *writer) do(write func() error) {
	if w.broken {
		return
	}
	// The recorder of tests has no deadlines.
	_ = w.call.control.SetWriteDeadline(time.Now().Add(w.call.gateway.options.WriteTimeout))
	if err := write(); err != nil {
		w.broken = true
		w.call.cancel()
	}
}
