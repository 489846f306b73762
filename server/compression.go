package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// registrar registers services at a gRPC server. Their unary calls end at once if tap has refused
// them and, with refuse, if they announce compressed messages; beginStream and refuseCompressedStream
// do so for streams.
type registrar struct {
	*grpc.Server
	refuse bool
}

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
			if r.refuse {
				if err := refuseCompressed(ctx); err != nil {
					read = func(any) error { return err }
				}
			}
			return handler(s, ctx, read, intercept)
		}
	}
	r.Server.RegisterService(&d, implementation)
}

// refuseCompressedStream is the interceptor that refuses streams with compressed messages.
func refuseCompressedStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := refuseCompressed(stream.Context()); err != nil {
		return err
	}
	return handler(srv, stream)
}

// refuseCompressed returns the status of a call whose client announces compressed messages, and nil
// for any other.
func refuseCompressed(ctx context.Context) error {
	switch name := compressionOf(ctx); name {
	case "", encoding.Identity:
		return nil
	default:
		return status.Errorf(codes.Unimplemented,
			"messages compressed with %s are not accepted: the daemon's setting compression is off; send them uncompressed", clip(name))
	}
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

// take receives a message with read. A message that is too large, or was not unpacked for lack of
// room, is an error.
func take(read func(any) error, into *wire.Incoming) error {
	if err := read(into); err != nil {
		return err
	}
	if err := into.Oversize(); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error()) // no details, as from gRPC itself: clients look for none
	}
	if into.Cut() {
		return errNoRoom
	}
	return nil
}
