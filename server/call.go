package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/auth"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// callInfo describes a call in flight, for its lines in the log. It is one value of the call's
// context, so that a call needs one context and not one for each thing known of it.
type callInfo struct {
	method    string // full name, as in /package.Service/Method
	kind      string // grpc.method_type: unary, or which side streams
	streams   bool   // it is a stream
	begun     time.Time
	requestID string
	trace     trace.SpanContext
	traced    *traced     // nil unless a span of the call is recorded
	account   *account    // nil for probes
	conn      *connection // nil for probes, and if unknown
	opened    atomic.Bool // a stream whose first message was accepted

	refusalLogged bool // the handler of a unary call has logged why it refuses the call
}

// callKey is the context key of the callInfo.
type callKey struct{}

// callOf returns what is known of the call that ctx belongs to, or nil.
func callOf(ctx context.Context) *callInfo {
	c, _ := ctx.Value(callKey{}).(*callInfo)
	return c
}

// begin fills in what the headers of a call say, and answers with its request id.
func (c *callInfo) begin(ctx context.Context, method, kind string) {
	c.method, c.kind, c.begun = method, kind, time.Now()
	span := trace.SpanFromContext(ctx)
	c.requestID, c.trace = requestID(ctx), traceOf(ctx, span)
	if span.IsRecording() {
		c.traced = &traced{span: span}
	}
	_ = grpc.SetHeader(ctx, metadata.MD{requestIDKey: {c.requestID}}) // an answer without it is still an answer
}

// requestIDKey is the metadata key of request ids, in requests and answers.
const requestIDKey = "x-request-id"

// maxRequestIDBytes bounds how much of a client's own id is kept.
const maxRequestIDBytes = 128

// requestID returns the id that the client gave its call, or makes one.
func requestID(ctx context.Context) string {
	if sent := metadata.ValueFromIncomingContext(ctx, requestIDKey); len(sent) > 0 && sent[0] != "" {
		return sent[0][:min(len(sent[0]), maxRequestIDBytes)]
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand
	return hex.EncodeToString(random[:])
}

// traceparentKey is the metadata key of the W3C's trace context.
const traceparentKey = "traceparent"

// traceOf returns the trace that a call is part of: the span that tracing made for it, or else
// what the client says in traceparent.
func traceOf(ctx context.Context, span trace.Span) trace.SpanContext {
	if made := span.SpanContext(); made.IsValid() {
		return made
	}
	parent := metadata.ValueFromIncomingContext(ctx, traceparentKey)
	if len(parent) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparentKey: parent[0]}))
}

// requestFields returns the fields that every line about a call has, except its identity.
func requestFields(ctx context.Context) []zap.Field {
	c := callOf(ctx)
	if c == nil {
		return nil
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(c.method, "/"), "/")
	fields := []zap.Field{
		zap.String("grpc.service", service), zap.String("grpc.method", method), zap.String("grpc.method_type", c.kind),
		zap.String("request_id", c.requestID),
	}
	if c.trace.IsValid() {
		fields = append(fields, zap.String("trace_id", c.trace.TraceID().String()))
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		fields = append(fields, zap.String("peer.address", p.Addr.String()))
	}
	return fields
}

// callFields returns requestFields and who calls.
func callFields(ctx context.Context) []zap.Field {
	fields := requestFields(ctx)
	if name := auth.FromContext(ctx).Name(); name != "" {
		fields = append(fields, zap.String("identity", name))
	}
	return fields
}

// traced is what the span of a call is to say of it, of one message or many. It is safe for concurrent
// use: an exchange may outlive its stream.
type traced struct {
	span             trace.Span
	policy           atomic.Pointer[ckdv1.PolicyRef] // that decided last; nil if none was found
	inputs, deferred atomic.Int64
}

// tracedOf returns what the span of the call that ctx belongs to says, or nil if none is recorded.
func tracedOf(ctx context.Context) *traced {
	if c := callOf(ctx); c != nil {
		return c.traced
	}
	return nil
}

// add adds inputs that the policy of a model decided on.
func (t *traced) add(m *model, inputs, deferred int) {
	if t == nil {
		return
	}
	t.policy.Store(m.ref)
	t.inputs.Add(int64(inputs))
	t.deferred.Add(int64(deferred))
}

// end gives the span of a call that found a model its attributes. They have no word of the client.
func (t *traced) end() {
	if t == nil {
		return
	}
	if p := t.policy.Load(); p != nil {
		t.span.SetAttributes(
			attribute.String("ckd.model", p.GetModel()), attribute.String("ckd.policy_hash", p.GetHash()),
			attribute.Int64("ckd.inputs", t.inputs.Load()), attribute.Int64("ckd.deferred", t.deferred.Load()))
	}
}

// limited reports whether Refusals logs the call's refusal, which bounds the number of log lines.
// These are unary calls, health watches, and streams that never were more than an attempt: clients may
// make large numbers of them.
func (c *callInfo) limited() bool {
	return !c.opened.Load() || c.method == healthv1.Health_Watch_FullMethodName
}

// open notes that the first message of a stream was accepted.
func (c *callInfo) open() {
	if c != nil {
		c.opened.Store(true)
	}
}

// finished completes the span of a call that has ended, and writes its line. The fields are made only if the line is
// written: calls that went well come by the thousand, and are logged at the level debug.
func (c *callInfo) finished(ctx context.Context, log *zap.Logger, refusals *Refusals, err error) {
	c.traced.end()
	code := status.Code(err)
	level := levelOf(code)
	if level == zap.WarnLevel && c.limited() {
		refusals.finished(ctx, c, err)
		level = zap.DebugLevel
	}
	entry := log.Check(level, "finished call")
	if entry == nil {
		return
	}
	fields := append(callFields(ctx), zap.String("grpc.start_time", c.begun.Format(time.RFC3339)))
	if deadline, ok := ctx.Deadline(); ok {
		fields = append(fields, zap.String("grpc.request.deadline", deadline.Format(time.RFC3339)))
	}
	fields = append(fields, zap.String("grpc.code", code.String()))
	if reason := errorReason(err); reason != "" {
		fields = append(fields, zap.String("reason", reason))
	}
	milliseconds := float64(time.Since(c.begun).Microseconds()) / 1000
	entry.Write(append(fields, zap.String("grpc.time_ms", strconv.FormatFloat(milliseconds, 'f', -1, 64)))...)
}
