package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// Names of the hot RPCs.
const (
	unaryName  = "Decompose"
	streamName = "DecomposeStream"
)

// service is the generated service with handlers of its own for the two hot RPCs, whose messages
// package wire reads and writes.
var service = func() grpc.ServiceDesc {
	d := ckdv1.UncertaintyService_ServiceDesc
	d.Methods, d.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i := range d.Methods {
		if d.Methods[i].MethodName == unaryName {
			d.Methods[i].Handler = handleDecompose
		}
	}
	for i := range d.Streams {
		if d.Streams[i].StreamName == streamName {
			d.Streams[i].Handler = handleDecomposeStream
		}
	}
	return d
}()

func handleDecomposeStream(s any, stream grpc.ServerStream) error {
	return s.(*Server).streams.decompose(stream)
}

// uncharged is the size up to which the message of a unary call is not charged. It is half a window.
const uncharged = streamWindow / 2

//nolint:revive // the order is gRPC's
func handleDecompose(s any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	in := new(wire.Incoming)
	defer in.Free()
	if err := take(ctx, read, in); err != nil {
		return nil, err
	}
	// A larger message is charged until it is answered.
	if bytes := int64(in.Size()); bytes > uncharged {
		account := s.(*Server).budget.accountOf(ctx)
		if err := account.claim("values", bytes); err != nil {
			return nil, statusOf(err, location{}).Err()
		}
		defer account.release(bytes)
	}
	handle := func(ctx context.Context, in any) (any, error) {
		out, err := s.(*Server).decider.decompose(ctx, in.(*wire.Incoming))
		if err != nil {
			return nil, err // not a nil *wire.Outgoing, which would be a non-nil any
		}
		return out, nil
	}
	if intercept == nil {
		return handle(ctx, in)
	}
	return intercept(ctx, in, &grpc.UnaryServerInfo{Server: s, FullMethod: ckdv1.UncertaintyService_Decompose_FullMethodName}, handle)
}
