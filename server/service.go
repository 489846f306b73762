package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// streamName is the name of the streaming RPC.
const streamName = "DecomposeStream"

// service is the generated service with handlers of its own for the two hot RPCs, whose messages
// package wire reads and writes.
var service = func() grpc.ServiceDesc {
	d := *bare(&ckdv1.UncertaintyService_ServiceDesc)
	d.Streams = slices.Clone(d.Streams)
	for i := range d.Methods {
		if d.Methods[i].MethodName == "Decompose" {
			d.Methods[i].Handler = withSlot(handleDecompose)
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
		account := s.(*Server).budget.of(ctx)
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

// bare returns a service whose unary messages are decoded here. A message that does not decode, or
// would take far more memory than its bytes, is then the client's fault; gRPC itself would say
// INTERNAL, or accept it.
func bare(of *grpc.ServiceDesc) *grpc.ServiceDesc {
	d := *of
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		handler := d.Methods[i].Handler
		d.Methods[i].Handler = withSlot(func(
			s any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor,
		) (any, error) {
			return handler(s, ctx, func(to any) error { return receive(ctx, read, to) }, intercept)
		})
	}
	return &d
}

// receive reads and decodes a message.
func receive(ctx context.Context, read func(any) error, to any) error {
	var in wire.Incoming
	defer in.Free()
	if err := take(ctx, read, &in); err != nil {
		return err
	}
	if err := in.Message(to.(proto.Message)); err != nil {
		return undecodable(err)
	}
	return nil
}

// undecodable returns the status of bytes that are no message.
func undecodable(err error) error {
	return status.Error(codes.InvalidArgument, "a message does not decode: "+clip(err.Error()))
}
