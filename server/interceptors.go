package server

import (
	"context"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/metrics"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/rpcmetrics"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// interceptors returns the unary and the stream chain, outermost first: what is known of the
// call, its metrics, who calls, and innermost the end of the call with its line in the log.
// A panic is recovered there, so that it is logged and counted as the Internal error that the
// client sees. auth reports by itself what it refuses.
func interceptors(rpc *rpcmetrics.Metrics, identities *auth.Store, ends *callEnds, a *admission) (
	[]grpc.UnaryServerInterceptor, []grpc.StreamServerInterceptor,
) {
	unary := []grpc.UnaryServerInterceptor{beginUnary, rpc.Unary}
	stream := []grpc.StreamServerInterceptor{a.beginStream, rpc.Stream}
	if identities != nil {
		unary, stream = append(unary, identities.Unary), append(stream, identities.Stream)
	}
	return append(unary, ends.unary), append(stream, ends.stream)
}

// beginUnary puts the callInfo of a unary call into its context. For a call that was counted in a
// slot, the slot holds it already. It is the first interceptor, and so runs once the request is whole.
func beginUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if s, ok := ctx.Value(slotKey{}).(*slot); ok {
		s.requestIsWhole()
	}
	c := callOf(ctx)
	if c == nil { // a probe
		c = &callInfo{}
		ctx = context.WithValue(ctx, callKey{}, c)
	}
	c.begin(ctx, info.FullMethod, rpcmetrics.Kind(false, false))
	return handler(ctx, req)
}

// beginStream makes what is known of a stream part of its context. It ends a stream that was refused.
func (a *admission) beginStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := refusalOf(stream.Context()); err != nil {
		return err
	}
	account, err := a.accountOf(stream.Context(), auth.FromContext(stream.Context()))
	if err != nil {
		return err
	}
	c := &callInfo{streams: true, account: account, conn: connectionOf(stream.Context())}
	ctx := context.WithValue(stream.Context(), callKey{}, c)
	c.begin(ctx, info.FullMethod, rpcmetrics.Kind(info.IsClientStream, info.IsServerStream))
	account.line.begin()
	defer account.line.end()
	watch, _ := ctx.Value(arrivalKey{}).(*arrival)
	return handler(srv, &streamOfCall{stream, ctx, c, watch})
}

// streamOfCall is a stream with the context of its call, whose account is charged with what was not
// sent yet.
type streamOfCall struct {
	grpc.ServerStream
	ctx   context.Context
	call  *callInfo
	watch *arrival // nil unless a watch of the health
}

func (s *streamOfCall) Context() context.Context { return s.ctx }

// RecvMsg receives a message. A watch, whose request is its only message, then takes its place.
func (s *streamOfCall) RecvMsg(to any) error {
	err := s.ServerStream.RecvMsg(to)
	if err == nil && s.watch != nil {
		s.watch.late.Stop()
		return s.watch.admission.openWatch(s.ctx, s.watch.who)
	}
	return err
}

func (s *streamOfCall) SendMsg(m any) error {
	if _, charged := m.(*wire.Outgoing); !charged {
		m = wire.Track(m, s.call.account)
	}
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.call.conn.moved()
	}
	return err
}

// callEnds deals with the ends of calls: it recovers from panics, and logs each end.
type callEnds struct {
	log      *zap.Logger
	refusals *Refusals
	metrics  *metrics.Metrics
}

// unary turns a panic of the handler into an error, and logs the end of the call. The error of a context
// becomes the status that gRPC makes of it later: metrics and log would call it unknown.
func (e *callEnds) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
	defer func() {
		if p := recover(); p != nil {
			reply, err = nil, e.recovered(ctx, p)
		}
		callOf(ctx).finished(ctx, e.log, e.refusals, err)
	}()
	reply, err = handler(ctx, req)
	if _, said := status.FromError(err); !said {
		err = status.FromContextError(err).Err()
	}
	return reply, err
}

// stream turns a panic of the handler into an error, and logs the end of the stream.
func (e *callEnds) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	defer func() {
		if p := recover(); p != nil {
			err = e.recovered(ctx, p)
		}
		callOf(ctx).finished(ctx, e.log, e.refusals, err)
	}()
	return handler(srv, stream)
}

// recovered counts and logs a panic, and returns the Internal error that the call ends with.
func (e *callEnds) recovered(ctx context.Context, p any) error {
	e.metrics.Panicked()
	e.log.Error("panic in a call", append(callFields(ctx), zap.Any("panic", p), zap.Stack("stack"))...)
	return statusOf(&fault{reason: ckdv1.ErrorReason_ERROR_REASON_INTERNAL}, location{}).Err()
}

// errorReason returns the reason in the details of an error, in lower case, or "". Unlike the
// error's text it has no word of the client.
func errorReason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return strings.ToLower(info.GetReason())
		}
	}
	return ""
}

// faultDetails returns the fields that say what a client did wrong. They have no word of the
// client: ids may be personal data.
func faultDetails(ctx context.Context, at location, err error) []zap.Field {
	fields := requestFields(ctx)
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

// levelOf returns the level of the line of a call that ended with a code: a warning for what is
// refused, an error for what the daemon did wrong.
func levelOf(code codes.Code) zapcore.Level {
	switch code {
	case codes.OK, codes.Canceled:
		return zap.DebugLevel
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return zap.ErrorLevel
	case codes.Unavailable: // the daemon stops, or the stream is old
		return zap.InfoLevel
	}
	return zap.WarnLevel
}
