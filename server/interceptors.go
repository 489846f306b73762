package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/access"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// interceptor is the two forms of one interceptor, or one of them.
type interceptor struct {
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor
}

// interceptors wrap every call, the first one outermost: what lets messages pass
// them by, metrics, then the request id and who calls, which logging reads, and
// recovery innermost, so that a panic is logged and counted as the Internal error
// that the client sees. What access refuses it tells itself.
func (s *Server) interceptors() []interceptor {
	logger := callLogger(s.log)
	options := []logging.Option{
		logging.WithLogOnEvents(logging.FinishCall),
		logging.WithDisableLoggingFields(logging.ComponentFieldKey, logging.SystemTag[0]),
		logging.WithErrorFields(faultFields),
	}
	recovered := recovery.WithRecoveryHandlerContext(s.recovered)
	return []interceptor{
		{nil, bareStream},
		{nil, arriveStream},
		{s.rpc.UnaryServerInterceptor(), s.rpc.StreamServerInterceptor()},
		{requestIDUnary, requestIDStream},
		{s.access.Unary, s.access.Stream},
		{identifiedUnary, identifiedStream},
		{s.tellUnary, nil},
		{
			logging.UnaryServerInterceptor(logger, append(options, logging.WithLevels(levelOfUnary))...),
			logging.StreamServerInterceptor(logger, append(options, logging.WithLevels(levelOf))...),
		},
		{recovery.UnaryServerInterceptor(recovered), recovery.StreamServerInterceptor(recovered)},
	}
}

// chains splits a list of interceptors into the two that grpc takes.
func chains(list []interceptor) (unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) {
	for _, i := range list {
		if i.unary != nil {
			unary = append(unary, i.unary)
		}
		if i.stream != nil {
			stream = append(stream, i.stream)
		}
	}
	return unary, stream
}

// requestIDKey is the metadata key of request ids, in requests and answers.
const requestIDKey = "x-request-id"

// maxRequestIDBytes of a client's own id are kept.
const maxRequestIDBytes = 128

// withRequestID adds the client's request id, or a new one, to what logging
// will say of the call.
func withRequestID(ctx context.Context) (context.Context, string) {
	id := ""
	if sent := metadata.ValueFromIncomingContext(ctx, requestIDKey); len(sent) > 0 {
		id = sent[0][:min(len(sent[0]), maxRequestIDBytes)]
	}
	if id == "" {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails: crypto/rand
		id = hex.EncodeToString(random[:])
	}
	fields := logging.Fields{"request_id", id}
	if span := traceOf(ctx); span.IsValid() {
		fields = append(fields, "trace_id", span.TraceID().String())
	}
	return logging.InjectFields(ctx, fields), id
}

// traceOf is the trace that the call is part of: the span that tracing made for
// it, or else what the client says by the W3C's traceparent.
func traceOf(ctx context.Context) trace.SpanContext {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		return span
	}
	sent := propagation.MapCarrier{}
	if parent := metadata.ValueFromIncomingContext(ctx, traceparentKey); len(parent) > 0 {
		sent.Set(traceparentKey, parent[0])
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, sent))
}

// traceparentKey is the metadata key of the W3C's trace context.
const traceparentKey = "traceparent"

// sampledTrace is the id of the call's trace if it is sampled, else empty.
func sampledTrace(ctx context.Context) string {
	if span := traceOf(ctx); span.IsSampled() {
		return span.TraceID().String()
	}
	return ""
}

func requestIDUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, id := withRequestID(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs(requestIDKey, id)) // an answer without it is still an answer
	return handler(ctx, req)
}

func requestIDStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, id := withRequestID(stream.Context())
	_ = stream.SetHeader(metadata.Pairs(requestIDKey, id)) // as above
	return handler(srv, &middleware.WrappedServerStream{ServerStream: stream, WrappedContext: ctx})
}

// identityKey is the field of who calls.
const identityKey = "identity"

// identified adds who calls to what logging will say of the call.
func identified(ctx context.Context) context.Context {
	name := access.FromContext(ctx).Name()
	if name == "" {
		return ctx
	}
	return logging.InjectFields(ctx, logging.Fields{identityKey, name})
}

func identifiedUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(identified(ctx), req)
}

func identifiedStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, &middleware.WrappedServerStream{ServerStream: stream, WrappedContext: identified(stream.Context())})
}

// callLogger is what the logging interceptor writes to.
func callLogger(log *zap.Logger) logging.Logger {
	return logging.LoggerFunc(func(_ context.Context, level logging.Level, message string, fields ...any) {
		zapLevel := zap.DebugLevel
		switch level {
		case logging.LevelInfo:
			zapLevel = zap.InfoLevel
		case logging.LevelWarn:
			zapLevel = zap.WarnLevel
		case logging.LevelError:
			zapLevel = zap.ErrorLevel
		}
		if entry := log.Check(zapLevel, message); entry != nil {
			entry.Write(zapFields(fields)...)
		}
	})
}

// faultFields say why a call was refused without any word or value of the client's,
// which the error has.
func faultFields(err error) logging.Fields {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return logging.Fields{"reason", strings.ToLower(info.GetReason())}
		}
	}
	return nil
}

// errorKey is the middleware's own field of the whole error.
const errorKey = "grpc.error"

// zapFields turns key, value, key, value, ... into zap's fields.
func zapFields(pairs []any) []zap.Field {
	fields := make([]zap.Field, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if key, ok := pairs[i].(string); ok && key != errorKey {
			fields = append(fields, zap.Any(key, pairs[i+1]))
		}
	}
	return fields
}

// logPanic writes the line of a panic, with its stack.
func logPanic(ctx context.Context, log *zap.Logger, p any) {
	log.Error("panic in a call", append(zapFields(logging.ExtractFields(ctx)), zap.Any("panic", p), zap.Stack("stack"))...)
}

// logFault writes the line of something that a client did wrong on a stream.
func logFault(ctx context.Context, log *zap.Logger, model string, reason ckdv1.ErrorReason, at location, err error) {
	fields := append(faultDetails(ctx, at, err), zap.String("model", model), zap.String("reason", reasonWord(reason)))
	log.Warn("an input was refused; further ones for this reason on this stream are only counted", fields...)
}

// faultDetails are the fields of something that a client did wrong. They have no words
// of the client's: ids may be personal data.
func faultDetails(ctx context.Context, at location, err error) []zap.Field {
	fields := zapFields(logging.ExtractFields(ctx))
	fields = slices.DeleteFunc(fields, func(f zap.Field) bool { return f.Key == identityKey }) // a line says it once
	if at.hasGroup {
		fields = append(fields, zap.Uint64("group", at.group))
	}
	if at.hasPosition {
		fields = append(fields, zap.Int("row", at.row))
	}
	switch e := err.(type) { //nolint:errorlint // only what is known not to repeat the client's words
	case *decomp.RowError, *decomp.PassesError, *decomp.ShapeError:
		fields = append(fields, zap.String("cause", e.Error()))
	case *fault:
		if e.numbers {
			fields = append(fields, zap.String("cause", e.message))
		}
	}
	return fields
}

// levelOf keeps calls that went well, which come by the thousand, out of the
// log. What is refused is a warning, what is the daemon's own doing an error.
func levelOf(code codes.Code) logging.Level {
	switch code {
	case codes.OK, codes.Canceled:
		return logging.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return logging.LevelError
	case codes.Unavailable: // the daemon is stopping, or the stream is old
		return logging.LevelInfo
	}
	return logging.LevelWarn
}

// levelOfUnary is levelOf of unary calls: Refusals has a line for those that are refused.
func levelOfUnary(code codes.Code) logging.Level {
	if level := levelOf(code); level != logging.LevelWarn {
		return level
	}
	return logging.LevelDebug
}
