package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// registrar registers services at a gRPC server. Their unary calls end at once if tap has refused
// them; beginStream does so for streams.
type registrar struct{ *grpc.Server }

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(of *grpc.ServiceDesc, implementation any) {
	d := *of
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		handler := d.Methods[i].Handler
		d.Methods[i].Handler = func(
			s any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor,
		) (any, error) {
			if err := refusalOf(ctx); err != nil {
				return nil, err
			}
			return handler(s, ctx, read, intercept)
		}
	}
	r.Server.RegisterService(&d, implementation)
}

// compressionOf returns how the messages of a call are compressed; empty for not at all.
func compressionOf(ctx context.Context) string {
	if s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string }); ok {
		return s.RecvCompress()
	}
	return ""
}

// errNoRoom is why a compressed message was not unpacked to its end.
var errNoRoom = statusOf(&fault{
	reason: ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, retry: retryBudget, message: "there is no room to unpack a compressed message",
	value: "a compressed message", expected: "a later attempt, or an uncompressed message",
}, location{}).Err()

// take receives a message of a call with read. A message that is too large, or was not unpacked for lack of
// room, is an error.
func take(ctx context.Context, read func(any) error, into *wire.Incoming) error {
	if err := read(into); err != nil {
		return err
	}
	if c := callOf(ctx); c != nil && c.conn != nil {
		c.conn.line.handed(into.Size())
	}
	if err := into.Oversize(); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error()) // no details, as from gRPC itself: clients look for none
	}
	if into.Cut() {
		return errNoRoom
	}
	return nil
}
